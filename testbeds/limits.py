"""Limits: bounds that a testbed must meet, as plain values."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.quantities import (
    QuantityError,
    format_celsius,
    format_db,
    format_dbm,
    format_duration,
    format_rate,
    format_share,
    format_watt,
    parse_celsius,
    parse_db,
    parse_dbm,
    parse_duration,
    parse_rate,
    parse_share,
    parse_watt,
)

Unit = str
"""Of values in the program: "ns", "dB", "dBm", "bit/s", "W", "°C", "share", "1", or any symbol."""

DecisionRule: TypeAlias = Literal["guarded", "simple", "lenient"]
"""Rule by which a sample's interval decides about a limit (ISO 14253-1, ILAC-G8).

"guarded": a limit is kept by intervals that keep it wholly, broken by those wholly beyond it, and
undecided by those that hold it: guard bands on both sides. "simple": by the middle, as if it were
exact. "lenient": only an interval wholly beyond breaks it, all others keep it. See
docs/statistics.md.
"""

DEFAULT_RULE: DecisionRule = "guarded"

DEFAULT_CONFIDENCE = 0.95
"""The confidence of a limit on a quantile that states none."""

LEAST_SHARE = 0.5
"""The least confidence and quantile of a limit: below, most samples may break what is claimed."""

CLOSEST_CORRELATION = 0.9
"""Greatest correlation of successive events that a limit may state: what was tried by draws."""

EXAMPLE = "{p99: 70 ms, confidence: 95 %}"


class LimitedQuantity(NamedTuple):
    """A quantity as a file may name it: its present name, and the unit of its values.

    better: direction of improvement, if any. least, greatest: possible values, where declared.
    """

    name: str
    unit: Unit
    better: Literal["lower", "higher"] | None = None
    least: float | None = None
    greatest: float | None = None


QuantityNames: TypeAlias = Mapping[str, LimitedQuantity]
"""Quantities by every name that a file may use, former names included."""


class _UnitText(NamedTuple):
    """Notation of a unit: reading, writing, and an example for messages."""

    parse: Callable[[str], float] | None
    format: Callable[[float], str]
    expected: str


# In this order the unit of a text is looked for where the quantity is not known.
_TEXTS: Mapping[Unit, _UnitText] = {
    "ns": _UnitText(parse_duration, format_duration, "a duration, e.g. '70 ms'"),
    "dB": _UnitText(parse_db, format_db, "a ratio in dB, e.g. '3 dB'"),
    "dBm": _UnitText(parse_dbm, format_dbm, "a power in dBm, e.g. '-8 dBm'"),
    "W": _UnitText(parse_watt, format_watt, "an electrical power, e.g. '3.2 W'"),
    "share": _UnitText(parse_share, format_share, "a percentage, e.g. '80 %'"),
    "bit/s": _UnitText(parse_rate, format_rate, "a rate, e.g. '80 Gbit/s'"),
    "°C": _UnitText(parse_celsius, format_celsius, "a temperature, e.g. '45 °C'"),
    "1": _UnitText(None, "{:g}".format, "a plain number, e.g. 1.0e-12"),
}


class LimitError(LightrigError, ValueError):
    """A limit cannot be read; `key` names the part of it that is wrong, or is None.

    `of_key` says that the key itself is wrong, not its value.
    """

    def __init__(self, message: str, key: str | None = None, *, of_key: bool = False) -> None:
        super().__init__(message)
        self.key = key
        self.of_key = of_key


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a quantile of a quantity, and the confidence with which it is claimed.

    `value` is in `unit`. For an upper bound, `quantile` 1.0 means every sample; for a lower
    bound (`side` is "lower") every sample is at least `value`, and `quantile` is 0.0.
    `confidence` is None where every sample is judged by itself. `decision`: what an interval that
    holds the limit means. `correlation`: of each event with the one before, for which samples are
    planned and judged. `line` and `column` say where the testbed file states it.
    """

    quantity: str
    side: Literal["upper", "lower"]
    quantile: float
    value: float
    unit: Unit
    confidence: float | None
    line: int = 0
    column: int = 0
    warn: float | None = None
    decision: DecisionRule = DEFAULT_RULE
    correlation: float = 0.0

    def __str__(self) -> str:
        which = {0.0: "min", 0.5: "median", 1.0: "max"}.get(
            self.quantile, f"p{self.quantile * 100:.6g}"
        )
        sign = "<=" if self.side == "upper" else ">="
        sure = f" ({format_share(self.confidence)} confident)" if self.confidence else ""
        warn = ""
        if self.warn is not None:
            beyond = "above" if self.side == "upper" else "below"
            warn = f", warn {beyond} {format_value(self.unit, self.warn)}"
        rule = "" if self.decision == DEFAULT_RULE else f", {self.decision} acceptance"
        follow = f", events correlated by {self.correlation:g}" if self.correlation else ""
        bound = f"{self.quantity} {which} {sign} {format_value(self.unit, self.value)}"
        return f"{bound}{warn}{rule}{follow}{sure}"


def format_value(unit: Unit, value: float) -> str:
    """Write a value in `unit` for a person."""
    text = _TEXTS.get(unit)
    return text.format(value) if text else f"{value:g} {unit}"


def parse_limit(
    quantity: str,
    body: Mapping[str, object],
    unit: Unit | None = None,
    known: LimitedQuantity | None = None,
) -> Limit:
    """Read one limit, e.g. `{p99: 70 ms, confidence: 95 %}`, `{max: 3 dB, warn: 2.5 dB}`.

    unit: of the quantity; None where it is not known, and the text alone decides. known: what is
    declared of it, by which a bound that nothing or everything keeps is refused. Raises
    `LimitError`.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", quantity):
        raise LimitError(
            f"found the quantity {quantity!r}, expected a name such as 'reconfiguration.carrier_up'"
        )
    bounds = [key for key in body if key not in ("confidence", "warn", "decision", "correlation")]
    for key in bounds:
        if not re.fullmatch(r"median|min|max|p\d{1,2}(\.\d{1,6})?", key, re.ASCII):
            # Percentiles of three digits and more have a point: p999 is p99.9.
            meant = f"p{key[1:3]}.{key[3:]}" if re.fullmatch(r"p\d{3,8}", key) else ""
            expected = meant or "p50, p95, p99, p99.9, median, min or max"
            raise LimitError(
                f"found {key!r}, expected {expected}, e.g. {EXAMPLE}", key, of_key=True
            )
    if len(bounds) != 1:
        found = " and ".join(bounds) or "none"
        raise LimitError(
            f"found {found}, expected one of p99, median, min or max, e.g. {EXAMPLE}",
            bounds[1] if bounds else None,
            of_key=True,
        )
    (which,) = bounds
    quantile = {"median": 0.5, "min": 0.0, "max": 1.0}.get(which)
    if quantile is None:
        # Divided as text, so that p99.9 is 0.999 to the last bit.
        quantile = float(f"{which[1:]}e-2")
        if quantile < LEAST_SHARE:
            raise LimitError(
                f"found {which}, expected p50 or more, e.g. p99, or min for a lower bound",
                which,
                of_key=True,
            )
    value, unit = parse_value(quantity, which, body[which], unit)
    if known is not None:
        _check_possible(known, which, value, body[which])
    confidence = None
    if "confidence" in body:
        try:
            confidence = parse_share(body["confidence"])  # type: ignore[arg-type]
        except QuantityError as error:
            raise LimitError(str(error), "confidence") from None
        if not LEAST_SHARE <= confidence < 1:
            raise LimitError(
                f"found a confidence of {body['confidence']!r}, expected 50 % or more and below "
                "100 %, e.g. 95 %",
                "confidence",
            )
    elif 0 < quantile < 1:
        confidence = DEFAULT_CONFIDENCE
    side: Literal["upper", "lower"] = "lower" if which == "min" else "upper"
    decision = _decision(body.get("decision", DEFAULT_RULE))
    limit = Limit(quantity, side, quantile, value, unit, confidence, decision=decision)
    if "correlation" in body:
        limit = dataclasses.replace(limit, correlation=_correlation(limit, body["correlation"]))
    return dataclasses.replace(limit, warn=_warn(limit, body["warn"])) if "warn" in body else limit


def _check_possible(known: LimitedQuantity, which: str, value: float, found: object) -> None:
    """Raise `LimitError` for a bound on the wrong side, or at a value that cannot occur."""
    if known.better == "lower" and which == "min":
        raise LimitError(
            f"found a lower bound on {known.name}, of which less is better, expected "
            f"{{max: {found}}} or {{p99: {found}}}",
            which,
            of_key=True,
        )
    if known.better == "higher" and which != "min":
        raise LimitError(
            f"found an upper bound on {known.name}, of which more is better, expected "
            f"{{min: {found}}}",
            which,
            of_key=True,
        )
    least = known.least
    if least is None and known.better == "lower" and known.unit in ("ns", "W", "1", "share"):
        least = 0.0
    is_never_zero = known.unit in ("ns", "W")
    if least is not None and (value < least or (value == least and is_never_zero)):
        raise LimitError(
            f"found {found!r} for {known.name}, which is impossible for this quantity", which
        )
    if known.greatest is not None and value > known.greatest:
        raise LimitError(
            f"found {found!r} for {known.name}, expected at most {known.greatest:g}", which
        )


def _decision(found: object) -> DecisionRule:
    for rule in get_args(DecisionRule):
        if found == rule:
            return rule  # type: ignore[no-any-return]
    raise LimitError(f"found {found!r}, expected guarded, simple or lenient", "decision")


def _correlation(limit: Limit, found: object) -> float:
    if not 0 < limit.quantile < 1:
        raise LimitError(
            "found a correlation of events beside a bound on each of them, expected it beside "
            "median, p90 or p99",
            "correlation",
            of_key=True,
        )
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not 0 <= found <= CLOSEST_CORRELATION:  # type: ignore[operator]
        raise LimitError(
            f"found a correlation of {found!r}, expected a number from 0 to "
            f"{CLOSEST_CORRELATION:g}, e.g. 0.6",
            "correlation",
        )
    return float(found)  # type: ignore[arg-type]


def _warn(limit: Limit, found: object) -> float:
    value, _ = parse_value(limit.quantity, "warn", found, limit.unit)
    if limit.side == "upper" and value >= limit.value:
        raise LimitError(f"found a warning at {found!r}, expected it below the limit", "warn")
    if limit.side == "lower" and value <= limit.value:
        raise LimitError(f"found a warning at {found!r}, expected it above the limit", "warn")
    return value


def parse_value(
    quantity: str, key: str, found: object, unit: Unit | None = None
) -> tuple[float, Unit]:
    """Read the value of `key` for `quantity`, with its unit.

    unit: of the quantity; None where it is not known, and the text alone decides. Raises
    `LimitError`.
    """
    if unit is not None:
        value = _in_unit(found, unit)
        if value is None:
            text = _TEXTS.get(unit)
            expected = text.expected if text else f"a number with its unit, e.g. '3 {unit}'"
            raise LimitError(f"found {found!r} for {quantity}, expected {expected}", key)
        return value, unit
    for each in _TEXTS:
        value = _in_unit(found, each)
        if value is not None:
            return value, each
    raise LimitError(f"found {found!r}, expected a value with its unit, e.g. '70 ms'", key)


def _in_unit(found: object, unit: Unit) -> float | None:
    """Return the value that `found` states in `unit`; None if it states none in that unit."""
    if unit == "1":
        number = isinstance(found, int | float) and not isinstance(found, bool)
        return found if number and math.isfinite(found) else None  # type: ignore[arg-type, return-value]
    if not isinstance(found, str):
        return None
    text = _TEXTS.get(unit)
    if text is None or text.parse is None:
        number_of, _, rest = found.strip().partition(" ")
        try:
            value = float(number_of)
        except ValueError:
            return None
        return value if rest.strip() == unit and math.isfinite(value) else None
    try:
        return text.parse(found)
    except QuantityError:
        return None
