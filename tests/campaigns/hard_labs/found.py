"""Results of one seed of a lab: intervals beside the truth, verdicts, reported causes."""

import math
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

MOST = 24
"""Most errors and widths of one quantity that are stored of a seed; all are counted."""

Kind = Literal["bound", "interval"]


@dataclass(frozen=True)
class Lab(ABC):
    """Hard lab: a world, and the results that are allowed and required there.

    Attributes:
        declined: quantities that may lack a result, or a verdict.
        named: pattern of a message that must report the cause; empty where no cause is required.
        declined_by_chance: share of a quantity that may lack a result in any lab.
        excused: quantities whose intervals may miss the truth, and why; then the cause must be
            reported.
    """

    _: KW_ONLY
    declined: tuple[str, ...] = ()
    declined_by_chance: float = 0.0
    named: str = ""
    excused: Mapping[str, str] = field(default_factory=dict)

    @abstractmethod
    def measure(self, seed: int, found: "Found") -> None:
        """Build the world of one seed, measure it with the harness, and record the results."""


@dataclass
class Found:
    """Results of one seed of a lab.

    Attributes:
        to_be_named: whether the lab's fault showed in any reading, and must be reported.
    """

    cells: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    verdicts: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    sentences: list[str] = field(default_factory=list)
    to_be_named: bool = True

    UNDECIDED: ClassVar[str] = "not enough data"

    def holds(
        self,
        quantity: str,
        kind: Kind,
        value: float,
        lower: float,
        upper: float,
        truth: float,
        resolution: float = 0.0,
    ) -> None:
        """Record an interval beside the truth, all in the unit that the page shows.

        The truth is NaN for an event that did not happen. resolution: how long a change may have
        happened for all that the observer tells, whatever is known of its noise: two windows of a
        monitor whose weights are not known, a period of polls, a round trip.
        """
        cell = self._cell(quantity)
        cell["kind"], cell["resolution"] = kind, resolution
        cell["n"] += 1
        # The nanosecond to which both were rounded, and the digits of a float.
        slack = 1e-9 * max(abs(truth), abs(value))
        cell["missed"] += not lower - slack <= truth <= upper + slack
        if math.isnan(truth):
            return
        cell["bias"] += value - truth
        if len(cell["errors"]) < MOST:
            cell["errors"].append(round(value - truth, 7))
            cell["widths"].append(round(upper - lower, 7))

    def declines(self, quantity: str, count: int = 1) -> None:
        """Record quantities with a truth and without a result."""
        self._cell(quantity)["declined"] += count

    def judges(self, what: str, outcome: str, *, truly: Literal["pass", "fail"]) -> None:
        """Record a verdict; `truly` is the verdict on the truth."""
        outcome = "pass" if outcome == "marginal" else outcome
        word = "undecided" if outcome == self.UNDECIDED else "right"
        if outcome not in (self.UNDECIDED, truly):
            word = "wrong"
        cell = self.verdicts[what]
        cell[word] = cell.get(word, 0) + 1

    def names(self, pattern: str) -> bool:
        """Whether any message of the run reports a cause."""
        return any(re.search(pattern, sentence) for sentence in self.sentences)

    def as_line(self, lab: Lab) -> dict[str, Any]:
        """Return the line of this seed in the campaign's file."""
        return {
            "cells": self.cells,
            "verdicts": self.verdicts,
            "named": self.names(lab.named) if lab.named and self.to_be_named else None,
        }

    def _cell(self, quantity: str) -> dict[str, Any]:
        cell = self.cells[quantity]
        if not cell:
            cell |= {"kind": "bound", "n": 0, "missed": 0, "declined": 0, "bias": 0.0}
            cell |= {"resolution": 0.0, "errors": [], "widths": []}
        return cell
