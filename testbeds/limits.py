"""Limits: what a testbed claims about itself, as plain values."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from testbeds.errors import LightrigError
from testbeds.quantities import (
    QuantityError,
    format_db,
    format_dbm,
    format_duration,
    format_rate,
    format_share,
    format_watt,
    parse_db,
    parse_dbm,
    parse_duration,
    parse_rate,
    parse_share,
    parse_watt,
)

Unit = Literal["ns", "dB", "dBm", "bit/s", "W", "share", "1"]

DEFAULT_CONFIDENCE = 0.95
"""The confidence of a limit on a quantile that states none."""

EXAMPLE = "{p99: 70 ms, confidence: 95 %}"

_FORMATS: Mapping[Unit, Callable[[float], str]] = {
    "ns": format_duration,
    "dB": format_db,
    "dBm": format_dbm,
    "bit/s": format_rate,
    "W": format_watt,
    "share": format_share,
    "1": "{:g}".format,
}
_PARSERS: tuple[tuple[Unit, Callable[[str], float]], ...] = (
    ("ns", parse_duration),
    ("dB", parse_db),
    ("dBm", parse_dbm),
    ("W", parse_watt),
    ("share", parse_share),
    ("bit/s", parse_rate),
)
# Families whose unit is settled by what they are; others may carry any.
_FAMILIES: Mapping[str, tuple[Unit, str]] = {
    "reconfiguration": ("ns", "a duration, e.g. '70 ms'"),
    "outage": ("ns", "a duration, e.g. '70 ms'"),
    "insertion_loss": ("dB", "a ratio in dB, e.g. '3 dB'"),
    "bit_error_ratio": ("1", "a plain number, e.g. 1.0e-12"),
    "nic_error_ratio": ("1", "a plain number, e.g. 1.0e-12"),
    "sensitivity": ("dBm", "a power in dBm, e.g. '-8 dBm'"),
    "module_power": ("W", "an electrical power, e.g. '3.2 W'"),
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
    `confidence` is None where every sample is judged by itself. `line` and `column` say where
    the testbed file states it.
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
        return f"{self.quantity} {which} {sign} {format_value(self.unit, self.value)}{warn}{sure}"


def format_value(unit: Unit, value: float) -> str:
    """Write a value in `unit` for a person."""
    return _FORMATS[unit](value)


def parse_limit(quantity: str, body: Mapping[str, object]) -> Limit:
    """Read one limit, e.g. `{p99: 70 ms, confidence: 95 %}`, `{max: 3 dB, warn: 2.5 dB}`.

    Raises `LimitError`.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", quantity):
        raise LimitError(
            f"found the quantity {quantity!r}, expected a name such as 'reconfiguration.carrier_up'"
        )
    bounds = [key for key in body if key not in ("confidence", "warn")]
    for key in bounds:
        if not re.fullmatch(r"median|min|max|p\d{1,2}(\.\d{1,6})?", key, re.ASCII):
            raise LimitError(
                f"found {key!r}, expected p50, p99, p99.9, median, min or max, e.g. {EXAMPLE}",
                key,
                of_key=True,
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
        if quantile == 0:
            raise LimitError(
                "found p0, expected e.g. p99, or min for a lower bound", which, of_key=True
            )
    value, unit = parse_value(quantity, which, body[which])
    confidence = None
    if "confidence" in body:
        try:
            confidence = parse_share(body["confidence"])  # type: ignore[arg-type]
        except QuantityError as error:
            raise LimitError(str(error), "confidence") from None
        if not 0 < confidence < 1:
            raise LimitError(
                f"found a confidence of {body['confidence']!r}, expected between 0 and 100 %",
                "confidence",
            )
    elif 0 < quantile < 1:
        confidence = DEFAULT_CONFIDENCE
    side: Literal["upper", "lower"] = "lower" if which == "min" else "upper"
    limit = Limit(quantity, side, quantile, value, unit, confidence)
    return dataclasses.replace(limit, warn=_warn(limit, body["warn"])) if "warn" in body else limit


def _warn(limit: Limit, found: object) -> float:
    value, unit = parse_value(limit.quantity, "warn", found)
    if unit != limit.unit:
        raise LimitError(f"found a warning at {found!r}, expected it in {limit.unit}", "warn")
    if limit.side == "upper" and value >= limit.value:
        raise LimitError(f"found a warning at {found!r}, expected it below the limit", "warn")
    if limit.side == "lower" and value <= limit.value:
        raise LimitError(f"found a warning at {found!r}, expected it above the limit", "warn")
    return value


def parse_value(quantity: str, key: str, found: object) -> tuple[float, Unit]:
    """Read what `key` says of `quantity`, in the unit that its family has, if it has one.

    Raises `LimitError`.
    """
    wanted = _FAMILIES.get(quantity.partition(".")[0])
    parsed = _any_unit(found)
    if wanted and (parsed is None or parsed[1] != wanted[0]):
        raise LimitError(f"found {found!r} for {quantity}, expected {wanted[1]}", key)
    if parsed is None:
        raise LimitError(f"found {found!r}, expected a value with its unit, e.g. '70 ms'", key)
    return parsed


def _any_unit(found: object) -> tuple[float, Unit] | None:
    if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found):
        return found, "1"
    if isinstance(found, str):
        for unit, parse in _PARSERS:
            try:
                return parse(found), unit
            except QuantityError:
                continue
    return None
