"""Baselines: by which rule a quantity is compared with its nights before.

They stand in a file beside the testbed's own, `mine.baselines.yaml` beside `mine.yaml`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from testbeds.errors import LightrigError
from testbeds.findings import Findings
from testbeds.limits import LimitError, Unit, format_value, parse_value
from testbeds.parsing import read_as
from testbeds.parts import Part, schema_of
from testbeds.quantities import Share

Test = Literal["rank", "interval"]
Direction = Literal["both", "up", "down"]
Effect = Literal["ratio", "difference"]
Correction = Literal["holm", "benjamini-hochberg", "none"]

FEWEST_NIGHTS = 5
"""With fewer nights before, what they say of their own spread is hardly anything."""

_NAME = r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*"
_IN_DECIBELS = frozenset({"insertion_loss", "received_power", "sensitivity"})


class RuleError(LightrigError, ValueError):
    """A rule makes no sense; `key` names the part of it that is wrong, as the file calls it."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True)
class Guard:
    """Bounds on a night's level that hold whatever the nights before were; in `unit`."""

    max: float | None
    min: float | None
    unit: Unit

    def written(self, value: float) -> str:
        """A value in its unit, for people."""
        return format_value(self.unit, value)


@dataclass(frozen=True, slots=True)
class Rule:
    """How a quantity is compared with its nights before.

    quantity: the name of it, or a pattern: `reconfiguration.*`, `*`.
    test: "rank" compares where a night's samples stand among all, and its level is the median;
        "interval" compares means, for nights that differ more than the samples of one.
    error: the probability of calling a night changed that is not.
    minimum: samples that a night must have to count.
    nights: how many nights before are looked at, the latest ones.
    direction: which way counts as a change.
    effect: how a change is expressed; a ratio needs values above zero. None: a difference for
        what is measured in dB or dBm, a ratio for all else.
    guard: bounds on tonight's level.
    ratio: the most that tonight's level may be of the level before.
    line, column: where the file states it.

    Raises `RuleError`.
    """

    quantity: str = "*"
    test: Test = "rank"
    error: float = 0.01
    minimum: int = 30
    nights: int = 10
    direction: Direction = "both"
    effect: Effect | None = None
    guard: Guard | None = None
    ratio: float | None = None
    line: int = 0
    column: int = 0

    def __post_init__(self) -> None:
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


@dataclass(frozen=True, slots=True)
class Baselines:
    """The rules of a testbed, and what many verdicts of one night may err together.

    rules: by quantity or pattern. family_error: the probability that any quantity of a night
    is called changed where none is ("holm"), or the expected share of those called changed
    that are not ("benjamini-hochberg").
    """

    path: Path
    rules: Mapping[str, Rule]
    family_error: float
    correction: Correction

    def rule_for(self, quantity: str) -> Rule | None:
        """The rule for `quantity`, of its own or of the longest pattern that fits; else None."""
        fitting = [name for name in self.rules if name == quantity or _fits(name, quantity)]
        if not fitting:
            return None
        rule = self.rules[max(fitting, key=lambda name: (name == quantity, len(name)))]
        in_decibels = quantity.partition(".")[0] in _IN_DECIBELS
        effect = rule.effect or ("difference" if in_decibels else "ratio")
        return dataclasses.replace(rule, effect=effect)


def _fits(pattern: str, quantity: str) -> bool:
    return pattern.endswith("*") and quantity.startswith(pattern[:-1])


class GuardPart(Part):
    """Bounds on a night's level, whatever the nights before were."""

    max: str | float | None = None
    min: str | float | None = None


class RulePart(Part):
    """How a quantity is compared with its nights before."""

    test: Test | None = Field(None, description="Ranks of samples (default), or means of nights")
    error: Share | None = Field(None, description="Rate of false alarms; default 1 %")
    min: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Samples that a night must have; default 30"
    )
    nights: Annotated[int, Field(ge=FEWEST_NIGHTS)] | None = Field(
        None, description="Nights before that are looked at; default 10"
    )
    direction: Direction | None = Field(None, description="What counts; default both")
    effect: Effect | None = Field(None, description="How a change is expressed")
    guard: GuardPart | None = Field(None, examples=[{"max": "200 ms"}])
    ratio: float | None = Field(
        None, description="The most that tonight's level may be of the level before", examples=[10]
    )


class BaselinesDocument(Part):
    """Rules for the quantities of a testbed, by name or by pattern: reconfiguration.*, *."""

    family_error: Share | None = Field(
        None, description="Of all quantities of one night together; default 5 %"
    )
    correction: Correction = Field("holm", description="How it is kept")
    quantities: dict[str, RulePart]


def baselines_path(testbed_path: Path) -> Path:
    """Where the rules for the testbed at `testbed_path` stand: mine.baselines.yaml."""
    return testbed_path.with_suffix(f".baselines{testbed_path.suffix}")


def load_baselines(path: Path) -> Baselines:
    """Return the rules that the file at `path` states.

    Raises `TestbedError` with every problem that was found, each with line and column.
    """
    document, located, findings = read_as(BaselinesDocument, path)
    rules = {}
    for quantity, part in document.quantities.items():
        place = located.place(("quantities", quantity), of_key=True)
        rule = _rule(quantity, part, findings)
        if rule is not None:
            rules[quantity] = dataclasses.replace(rule, line=place.line, column=place.column)
    error = 0.05 if document.family_error is None else document.family_error
    if not 0 < error < 1:
        findings.add(("family_error",), "found an error that is none, expected e.g. 5 %")
    findings.raise_if_any()
    return Baselines(path, rules, error, document.correction)


def _rule(quantity: str, part: RulePart, findings: Findings) -> Rule | None:
    keys = ("quantities", quantity)
    if not re.fullmatch(rf"\*|{_NAME}(\.\*)?", quantity):
        findings.add(
            keys,
            f"found the quantity {quantity!r}, expected a name such as 'outage' or a pattern "
            "such as 'reconfiguration.*'",
            of_key=True,
        )
        return None
    stated: dict[str, Any] = part.model_dump(exclude_unset=True, exclude={"guard"})
    if "min" in stated:
        stated["minimum"] = stated.pop("min")
    try:
        return Rule(quantity, guard=_guard(quantity, part.guard), **stated)
    except LimitError as error:
        findings.add((*keys, "guard", error.key or ""), str(error))
    except RuleError as error:
        findings.add((*keys, error.key), str(error))
    return None


def _guard(quantity: str, part: GuardPart | None) -> Guard | None:
    if part is None:
        return None
    stated = part.model_dump(exclude_unset=True)
    if not stated:
        raise LimitError("found no bound, expected max or min, e.g. {max: 200 ms}")
    parsed = {key: parse_value(quantity, key, found) for key, found in stated.items()}
    if len(units := {unit for _, unit in parsed.values()}) > 1:
        raise LimitError(f"found bounds in {' and in '.join(sorted(units))}, expected one unit")
    values = {key: value for key, (value, _) in parsed.items()}
    return Guard(values.get("max"), values.get("min"), units.pop())


def baselines_schema() -> dict[str, Any]:
    """Return the JSON Schema of a baselines file, which `baselines.schema.json` holds."""
    return schema_of(BaselinesDocument, "Lightrig baselines")
