"""Series of which the last night lies apart from the nights before, the first morning after.

The nights page and `lightrig results compare` ask the same judge, which knows the rules of the
lab's baselines file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from lightrig.harness.quantities.registry import find, quantity_of
from lightrig.harness.report.nights.cells import Numbers
from lightrig.harness.report.nights.series import Lab, NightSeries, Statistic
from lightrig.harness.report.nights.series_changes import ERROR
from lightrig.harness.statistics.counts import count_departure, count_reach
from lightrig.harness.statistics.departures import (
    FEWEST_BEFORE,
    Departure,
    Reach,
    find_departures,
    find_reaches,
)
from lightrig.testbeds.baselines import MOST_NIGHTS, Baselines, Rule

Word: TypeAlias = Literal["guard broken", "changed", "departed, unconfirmed"]

_WHOLE = "reconfiguration."
"""How the name of a quantity of whole reconfigurations begins; the rest is that of subjects."""
_INTERVAL_OF_SD = 3.92
"""Width of a 95 % interval in standard uncertainties."""


@dataclass(frozen=True, slots=True)
class SeriesDeparture:
    """A series and the departure of its last night; `guard` is how it breaks its rule's guard."""

    series: NightSeries
    departure: Departure
    guard: str = ""

    @property
    def word(self) -> Word:
        """What is said of the series."""
        if self.guard:
            return "guard broken"
        return "changed" if self.departure.confirmed else "departed, unconfirmed"


@dataclass(frozen=True, slots=True)
class JudgedSeries:
    """A series of a lab's last night, judged by `rule`.

    found: its departure, or None. reach: what would have been found; None with too few nights
    before, or where the last night does not count. nights: the number of nights before that count.
    n: samples of the last night. error: rate at which the series may depart where nothing changed.
    """

    series: NightSeries
    rule: Rule
    error: float
    n: int
    nights: int
    found: SeriesDeparture | None
    reach: Reach | None


def find_series_departures(
    labs: Sequence[Lab], stated: Mapping[str, Baselines] = MappingProxyType({})
) -> list[list[SeriesDeparture]]:
    """Return, for each lab, the series whose level departs on the lab's last night.

    stated: the rules of testbeds that have any, by name. Where nothing changed, the probability of
    any departure on a page without rules is `ERROR`, for nights that scatter normally.
    """
    names = {lab.testbed for lab in labs}
    judges = {
        name: LastNightJudge(
            [lab for lab in labs if lab.testbed == name], stated.get(name), len(names)
        )
        for name in names
    }
    return [list(judges[lab.testbed].departures(lab)) for lab in labs]


class LastNightJudge:
    """Judges the last night of one testbed's series.

    The testbeds of a page share its error, and the series of one with nights enough share the error
    that its baselines file states, or else its part of the page's (Bonferroni).

    labs: of the testbed. stated: its rules. sharing: the number of testbeds of the page.
    """

    def __init__(self, labs: Iterable[Lab], stated: Baselines | None, sharing: int) -> None:
        self._stated = stated
        tried = sum(
            1 for lab in labs for one in lab.series if np.isfinite(one.level).sum() > FEWEST_BEFORE
        )
        family = ERROR / sharing
        if stated is not None and stated.family_error is not None:
            family = stated.family_error
        shared = stated is None or stated.correction != "none"
        self._share = family / max(tried, 1) if shared else 1.0

    def rule(self, quantity: str, unit: str) -> tuple[Rule, bool]:
        """Return the rule of a quantity, and whether the command compares it between nights.

        It is the rule of the baselines file, else that of the quantity's declaration, of which
        samples and nights do not count: they are the lab's to choose. What a file states of whole
        reconfigurations holds for what their subjects show, but for guards. A quantity that is
        declared without a rule is compared only where a file names it.
        """
        declared = quantity_of(quantity, unit).baseline
        stated = self._stated_rule(quantity, named=declared is None)
        if stated is not None:
            return stated, True
        if declared is None:
            return Rule(), False
        return replace(declared, minimum=1, nights=MOST_NIGHTS), True

    def _stated_rule(self, quantity: str, *, named: bool) -> Rule | None:
        if self._stated is None:
            return None
        if named:
            return self._stated.rules.get(quantity)
        whole = self._stated.rule_for(f"{_WHOLE}{quantity}") if find(_WHOLE + quantity) else None
        if whole is not None and whole.quantity != "*" and quantity not in self._stated.rules:
            return replace(whole, guard=None, ratio=None)
        return self._stated.rule_for(quantity)

    def departures(self, lab: Lab) -> Iterator[SeriesDeparture]:
        """Yield the series of a lab that depart on its last night."""
        for family in self._families(lab):
            yield from (found for found in family.departures() if found is not None)

    def judged(self, lab: Lab) -> Iterator[JudgedSeries]:
        """Yield every series of a lab's last night that is compared, with what would be found."""
        for family in self._families(lab):
            if self.rule(family.series[0].quantity, family.series[0].unit)[1]:
                yield from family.judged()

    def _families(self, lab: Lab) -> Iterator[_Family]:
        last = max(night for night, runs in enumerate(lab.runs) if runs)
        families: dict[tuple[str, str, str], list[NightSeries]] = {}
        kin: dict[tuple[str, Statistic], list[NightSeries]] = {}
        for one in lab.series:
            if np.isfinite(one.level[last]):
                families.setdefault(one.family, []).append(one)
                kin.setdefault((one.quantity, one.statistic), []).append(one)
        for family in families.values():
            first = family[0]
            rule = self.rule(first.quantity, first.unit)[0]
            rest = [
                one for one in kin[first.quantity, first.statistic] if one.family != first.family
            ]
            yield _Family(family, rest, rule, min(rule.error, self._share), last)


class _Family:
    """Series that scatter alike, on the nights up to `last` that count by their rule.

    kin: series of the same quantity in other tests or cases.
    """

    def __init__(
        self,
        series: Sequence[NightSeries],
        kin: Sequence[NightSeries],
        rule: Rule,
        error: float,
        last: int,
    ) -> None:
        self.series = series
        self._rule, self._error, self._last = rule, error, last
        nights = [self._nights(one) for one in series]
        self._levels = [one.level[at] for one, at in zip(series, nights, strict=True)]
        self._uncertainties = [
            _width(one)[at] / _INTERVAL_OF_SD for one, at in zip(series, nights, strict=True)
        ]
        self._kin = [one.level[self._nights(one)] for one in kin]

    def departures(self) -> list[SeriesDeparture | None]:
        """Return the departure of each series, if its rule makes it one."""
        found: Sequence[Departure | None]
        if self.series[0].statistic == "count":
            found = [count_departure(each, self._error, self._rule.nights) for each in self._levels]
        else:
            found = find_departures(
                self._levels,
                self._uncertainties,
                self._error,
                kin=self._kin,
                tails=self.series[0].is_of_tails,
                most=self._rule.nights,
            )
        return [self._ruled(one, each) for one, each in zip(self.series, found, strict=True)]

    def judged(self) -> Iterator[JudgedSeries]:
        """Yield each series with what would be found of it."""
        reaches: Sequence[Reach | None]
        if self.series[0].statistic == "count":
            reaches = [count_reach(each, self._error, self._rule.nights) for each in self._levels]
        else:
            reaches = find_reaches(
                self._levels,
                self._uncertainties,
                self._error,
                kin=self._kin,
                tails=self.series[0].is_of_tails,
                most=self._rule.nights,
            )
        for one, found, reach in zip(self.series, self.departures(), reaches, strict=True):
            nights = np.flatnonzero(self._nights(one))
            before = min(int((nights < self._last).sum()), self._rule.nights)
            yield JudgedSeries(
                *(one, self._rule, self._error, int(one.n[self._last]), before, found),
                reach if self._counts(one) else None,
            )

    def _counts(self, one: NightSeries) -> bool:
        return bool(one.n[self._last] >= self._rule.minimum) or one.statistic == "count"

    def _nights(self, one: NightSeries) -> Numbers:
        enough = one.n >= self._rule.minimum
        return np.isfinite(one.level) & (enough | (one.statistic == "count"))

    def _ruled(self, one: NightSeries, found: Departure | None) -> SeriesDeparture | None:
        """Return the departure by the rule, whose guard may make it one, or its direction none."""
        if found is not None and (not self._counts(one) or not self._matters(one, found)):
            found = None
        guard = self._broken(one)
        if found is None and guard:
            before = one.level[: self._last][np.isfinite(one.level[: self._last])]
            usual = float(before[-1]) if before.size else float(one.level[self._last])
            level = float(one.level[self._last])
            ends = float(one.lower[self._last]), float(one.upper[self._last])
            found = Departure(usual, level, 1.0, before.size, *ends)
        return None if found is None else SeriesDeparture(one, found, guard)

    def _matters(self, one: NightSeries, found: Departure) -> bool:
        """Whether a change has the rule's direction, and may be as large as what matters."""
        up = found.level > found.before
        if self._rule.direction == ("down" if up else "up"):
            return False
        farthest = found.upper if up else found.lower
        size = change_of(self._rule, one.unit, found.before, farthest)
        return self._rule.detect is None or size is None or size >= self._rule.detect

    def _broken(self, one: NightSeries) -> str:
        """Return how the median of the last night breaks the rule's guard or ratio, or nothing."""
        guard, ratio, last = self._rule.guard, self._rule.ratio, self._last
        if one.statistic != "median" or not (guard or ratio):
            return ""
        low, high, level = (float(of[last]) for of in (one.lower, one.upper, one.level))
        if guard and guard.max is not None and low > guard.max:
            above = f"is above the guard of {guard.written(guard.max)}"
            return f"Tonight's median of {guard.written(level)} {above}."
        if guard and guard.min is not None and high < guard.min:
            below = f"is below the guard of {guard.written(guard.min)}"
            return f"Tonight's median of {guard.written(level)} {below}."
        before = one.upper[:last][self._nights(one)[:last]][-self._rule.nights :]
        if ratio and before.size and low > ratio * float(before.mean()):
            return f"Tonight's median is more than {ratio:g} times that of the nights before."
        return ""


def _width(one: NightSeries) -> Numbers:
    """Return the width of the interval of each night's level, by what differs from night to night.

    How far apart observers look is the same every night: it shifts all levels of a time alike, and
    where in it each sample lies differs. So the level is as uncertain as its samples scatter, and
    no less than the median of n values that are uniform over the width: that has a standard
    deviation of width / (2 sqrt(n)) (Cramer, Mathematical Methods of Statistics, 28.5), which few
    samples show too small by chance.
    """
    width = one.upper - one.lower
    if one.unit != "ns":
        return width
    uniform = _INTERVAL_OF_SD * width / (2 * np.sqrt(np.maximum(one.n, 1)))
    found: Numbers = np.maximum(one.sampling, np.minimum(width, uniform))
    return found


def change_of(rule: Rule, unit: str, before: float, level: float) -> float | None:
    """Return the size of a change as its rule expresses it: a factor from 1 on, or a difference.

    None where there is no ratio.
    """
    if rule.in_unit(unit).effect == "difference":
        return abs(level - before)
    if before <= 0 or level <= 0:
        return None
    return math.exp(abs(math.log(level / before)))
