"""Baselines: rules by which a quantity is compared with earlier nights.

They stand in a file beside the testbed's own, `mine.baselines.yaml` beside `mine.yaml`.
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.limits import LimitError, QuantityNames, Unit, format_value, parse_value
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.quantities import Share

Test = Literal["rank", "interval"]
"""Comparisons that a rule chose between in version 0.1; there is one now."""
Direction = Literal["both", "up", "down"]
Effect = Literal["ratio", "difference"]
Correction = Literal["bonferroni", "none"]

FEWEST_NIGHTS = 5
"""Least number of earlier nights that a rule can ask for."""
MOST_NIGHTS = 20
"""Latest nights before that are looked at, unless a rule states another number."""

_NAME = r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*"
_DIFFERENCES = frozenset({"dB", "dBm", "°C"})
"""Units in which a change is a difference: their zero is a convention, or their scale a ratio."""


DETECT_RATIO = 1.2
"""Factor that must be seen before a night is called unchanged, unless its rule states another."""

_DETECT_DIFFERENCE = {"dB": 0.5, "dBm": 0.5}
"""The same as a difference: less than a connector that is worth cleaning."""

_FORMER_CORRECTIONS = ("holm", "benjamini-hochberg")
_NO_CHOICE = "chooses nothing since version 0.2, and will be refused in 0.3; remove it"


class RuleError(LightrigError, ValueError):
    """An invalid rule; `key` is the wrong key in the file."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True)
class Guard:
    """Absolute bounds on a night's level, independent of earlier nights, in `unit`."""

    max: float | None
    min: float | None
    unit: Unit

    def written(self, value: float) -> str:
        """Return a value with its unit, for people."""
        return format_value(self.unit, value)


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule by which a quantity is compared with earlier nights.

    quantity: the name of it, or a pattern: `reconfiguration.*`, `*`.
    test: deprecated; it chooses nothing.
    error: the probability of calling a night changed that is not.
    minimum: samples that a night must have to count.
    nights: how many nights before are looked at, the latest ones.
    direction: which way counts as a change.
    effect: how a change is expressed; a ratio needs values above zero. None: by the unit, see
        `in_unit`.
    guard: bounds on tonight's level.
    ratio: the most that tonight's level may be of the level before.
    detect: the change that matters, as `effect`: a factor above 1, or a difference. One that is
        surely less is no departure; where one as large might be missed, the outcome is "cannot
        tell", never "unchanged". None: all changes matter, and `in_unit` states which must be
        seen.
    line, column: where the file states it.

    Raises `RuleError`.
    """

    quantity: str = "*"
    test: Test | None = None
    error: float = 0.01
    minimum: int = 1
    nights: int = MOST_NIGHTS
    direction: Direction = "both"
    effect: Effect | None = None
    guard: Guard | None = None
    ratio: float | None = None
    detect: float | None = None
    line: int = 0
    column: int = 0

    def __post_init__(self) -> None:
        if self.test is not None:
            warnings.warn(f"Rule(test={self.test!r}) {_NO_CHOICE}", DeprecationWarning, 3)
        if not 0 < self.error <= 0.5:
            raise RuleError(f"found an error of {self.error:.6g}, expected up to 50 %", "error")
        if self.minimum < 1:
            raise RuleError(f"found {self.minimum} samples, expected at least 1", "min")
        if self.nights < FEWEST_NIGHTS:
            raise RuleError(
                f"found {self.nights} nights, expected at least {FEWEST_NIGHTS}", "nights"
            )
        if self.ratio is not None and not self.ratio > 1:
            raise RuleError(f"found a ratio of {self.ratio:g}, expected more than 1", "ratio")
        if self.detect is not None and not self.detect > 0:
            raise RuleError(f"found a change of {self.detect:g}, expected one above zero", "detect")

    def in_unit(self, unit: Unit) -> "Rule":
        """Return the rule with its effect settled: a difference in dB, dBm or °C, else a ratio.

        The change that must be seen before a night is called unchanged is then by default a factor
        of 1.2, or 0.5 dB; in other units of a difference it is infinite, and no night is. Raises
        `RuleError` for one that the effect cannot have.
        """
        effect = self.effect or ("difference" if unit in _DIFFERENCES else "ratio")
        detect = self.detect
        if detect is None:
            detect = DETECT_RATIO if effect == "ratio" else _DETECT_DIFFERENCE.get(unit, math.inf)
        elif effect == "ratio" and not detect > 1:
            raise RuleError(f"found a ratio of {detect:g}, expected more than 1", "detect")
        return dataclasses.replace(self, effect=effect, detect=detect)


@dataclass(frozen=True, slots=True)
class Baselines:
    """The rules of a testbed, and the error rate of all verdicts of one night.

    rules: by quantity or pattern. family_error: the probability that any quantity of a night
    departs where none has changed; None where the file states none. correction: "bonferroni"
    shares it among all series of a night; with "none" each has the error of its own rule. notes:
    sentences on what the file should state differently, such as a former name of a quantity.
    """

    path: Path
    rules: Mapping[str, Rule]
    family_error: float | None
    correction: Correction
    notes: tuple[str, ...] = ()

    def rule_for(self, quantity: str) -> Rule | None:
        """Return the rule of the name, else of the longest pattern that fits, else None."""
        fitting = [name for name in self.rules if name == quantity or _fits(name, quantity)]
        if not fitting:
            return None
        return self.rules[max(fitting, key=lambda name: (name == quantity, len(name)))]


def _fits(pattern: str, quantity: str) -> bool:
    return pattern.endswith("*") and quantity.startswith(pattern[:-1])


class GuardPart(Part):
    """Absolute bounds on a night's level, independent of earlier nights."""

    max: str | float | None = None
    min: str | float | None = None


class RulePart(Part):
    """Rule by which a quantity is compared with earlier nights."""

    test: Test | None = Field(None, description="Deprecated: it chooses nothing")
    error: Share | None = Field(None, description="Rate of false alarms; default 1 %")
    min: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Samples of a series that a night must have; default 1"
    )
    nights: Annotated[int, Field(ge=FEWEST_NIGHTS)] | None = Field(
        None, description=f"Nights before that are looked at; default {MOST_NIGHTS}"
    )
    direction: Direction | None = Field(None, description="What counts; default both")
    effect: Effect | None = Field(None, description="How a change is expressed")
    guard: GuardPart | None = Field(None, examples=[{"max": "200 ms"}])
    ratio: float | None = Field(
        None, description="The most that tonight's level may be of the level before", examples=[10]
    )
    detect: str | float | None = Field(
        None,
        description="The change that matters, a factor or a difference: one that is surely less "
        "is none, and where one as large might be missed, the outcome is 'cannot tell'. Without "
        "it all matter, and 1.2 or 0.5 dB must be seen",
        examples=[1.5, "0.5 dB"],
    )


class BaselinesDocument(Part):
    """Rules for the quantities of a testbed, by name or by pattern: reconfiguration.*, *."""

    family_error: Share | None = Field(
        None, description="Of all series of one night together; default 1 % of all testbeds"
    )
    correction: Literal["bonferroni", "none", "holm", "benjamini-hochberg"] = Field(
        "bonferroni", description="How it is kept: shared among all series, or not at all"
    )
    quantities: dict[str, RulePart]


def baselines_path(testbed_path: Path) -> Path:
    """Return the path of the rules for the testbed at `testbed_path`: mine.baselines.yaml."""
    return testbed_path.with_suffix(f".baselines{testbed_path.suffix}")


def load_baselines(path: Path, quantities: QuantityNames | None = None) -> Baselines:
    """Return the rules that the file at `path` states, by the present names of quantities.

    quantities: names and units that are known; guards on others are read in the unit that is
    written. Raises `TestbedError` with every problem that was found, each with line and column.
    """
    document, located, findings = read_as(BaselinesDocument, path)
    rules: dict[str, Rule] = {}
    notes: list[str] = []
    for written, part in document.quantities.items():
        place = located.place(("quantities", written), of_key=True)
        known = (quantities or {}).get(written)
        quantity, unit = (known.name, known.unit) if known else (written, None)
        if quantity != written:
            if quantity in document.quantities:
                findings.add(
                    ("quantities", written),
                    f"{written!r} is {quantity!r} now, which has a rule as well",
                    of_key=True,
                )
            notes.append(
                f"{path}:{place.line}:{place.column}: {written!r} is {quantity!r} now; "
                "write the new name"
            )
        if part.test is not None:
            spot = located.place(("quantities", written, "test"), of_key=True)
            notes.append(f"{path}:{spot.line}:{spot.column}: 'test' {_NO_CHOICE}")
        rule = _rule(quantity, unit, part, findings, written)
        if rule is not None:
            rules[quantity] = dataclasses.replace(rule, line=place.line, column=place.column)
    error = document.family_error
    if error is not None and not 0 < error < 1:
        findings.add(("family_error",), "found an error that is no percentage, expected e.g. 5 %")
    findings.raise_if_any()
    correction: Correction = "none" if document.correction == "none" else "bonferroni"
    if document.correction in _FORMER_CORRECTIONS:
        spot = located.place(("correction",))
        notes.append(
            f"{path}:{spot.line}:{spot.column}: {document.correction!r} is read as "
            "'bonferroni', and will be refused in 0.3; remove it"
        )
    return Baselines(path, rules, error, correction, tuple(notes))


def _rule(
    quantity: str, unit: Unit | None, part: RulePart, findings: Findings, written: str
) -> Rule | None:
    keys = ("quantities", written)
    if not re.fullmatch(rf"\*|{_NAME}(\.\*)?", quantity):
        findings.add(
            keys,
            f"found the quantity {quantity!r}, expected a name such as 'outage' or a pattern "
            "such as 'reconfiguration.*'",
            of_key=True,
        )
        return None
    stated: dict[str, Any] = part.model_dump(
        exclude_unset=True, exclude={"guard", "detect", "test"}
    )
    if "min" in stated:
        stated["minimum"] = stated.pop("min")
    try:
        stated["detect"] = _change(quantity, unit, part.detect)
    except LimitError as error:
        findings.add((*keys, "detect"), str(error))
        return None
    try:
        rule = Rule(quantity, guard=_guard(quantity, unit, part.guard), **stated)
        if unit is not None:
            rule.in_unit(unit)
        return rule
    except LimitError as error:
        findings.add((*keys, "guard", error.key or ""), str(error))
    except RuleError as error:
        findings.add((*keys, error.key), str(error))
    return None


def _change(quantity: str, unit: Unit | None, stated: str | float | None) -> float | None:
    """A factor as it stands, or a difference with its unit."""
    if not isinstance(stated, str):
        return stated
    return parse_value(quantity, "detect", stated, unit)[0]


def _guard(quantity: str, unit: Unit | None, part: GuardPart | None) -> Guard | None:
    if part is None:
        return None
    stated = part.model_dump(exclude_unset=True)
    if not stated:
        raise LimitError("found no bound, expected max or min, e.g. {max: 200 ms}")
    parsed = {key: parse_value(quantity, key, found, unit) for key, found in stated.items()}
    if len(units := {unit for _, unit in parsed.values()}) > 1:
        raise LimitError(f"found bounds in {' and in '.join(sorted(units))}, expected one unit")
    values = {key: value for key, (value, _) in parsed.items()}
    return Guard(values.get("max"), values.get("min"), units.pop())


def baselines_schema() -> dict[str, Any]:
    """Return the JSON Schema of a baselines file, which `baselines.schema.json` holds."""
    return schema_of(BaselinesDocument, "Lightrig baselines")
