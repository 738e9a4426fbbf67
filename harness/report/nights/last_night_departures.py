"""Series of which the last night lies apart from the nights before, the first morning after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lightrig.harness.report.nights.cells import Numbers
from lightrig.harness.report.nights.series import Lab, Series
from lightrig.harness.report.nights.series_changes import ERROR
from lightrig.harness.statistics.departures import FEWEST_BEFORE, Departure, find_departures

_GREATEST = "outage"
"""Family of quantities whose greatest value of a night is compared too: few outages last longer
than they did where a link is lost now and then, and the median of a night stays."""

_INTERVAL_OF_SD = 3.92
"""Width of a 95 % interval in standard uncertainties."""


@dataclass(frozen=True, slots=True)
class SeriesDeparture:
    """A series and the departure of its last night; `greatest` if it is of the greatest values."""

    series: Series
    departure: Departure
    greatest: bool = False

    @property
    def levels(self) -> Numbers:
        """The levels of the nights that are compared; NaN where a night has none."""
        return self.series.greatest if self.greatest else self.series.level


def find_series_departures(labs: Sequence[Lab]) -> list[list[SeriesDeparture]]:
    """Return, for each lab, the series whose level departs on the lab's last night.

    All series of the page with enough nights share the error (Bonferroni): where nothing changed,
    the probability of any departure on a page is `ERROR`, for nights that scatter normally.
    """
    tried = sum(
        1 + _has_greatest(one)
        for lab in labs
        for one in lab.series
        if np.isfinite(one.level).sum() > FEWEST_BEFORE
    )
    return [list(_departures(lab, ERROR / max(tried, 1))) for lab in labs]


def _departures(lab: Lab, error: float) -> Iterator[SeriesDeparture]:
    last = max(night for night, runs in enumerate(lab.runs) if runs)
    families: dict[tuple[str, str, str], list[Series]] = {}
    for one in lab.series:
        if np.isfinite(one.level[last]):
            families.setdefault((one.quantity, one.test, one.case), []).append(one)
    for family in families.values():
        levels = [one.level[np.isfinite(one.level)] for one in family]
        widths = [(one.upper - one.lower)[np.isfinite(one.level)] for one in family]
        uncertainties = [width / _INTERVAL_OF_SD for width in widths]
        for one, found in zip(family, find_departures(levels, uncertainties, error), strict=True):
            if found is not None:
                yield SeriesDeparture(one, found)
        if not _has_greatest(family[0]):
            continue
        tops = [one.greatest[np.isfinite(one.greatest)] for one in family]
        exact = [np.zeros(top.size) for top in tops]
        for one, found in zip(family, find_departures(tops, exact, error), strict=True):
            if found is not None and np.isfinite(one.greatest[last]):
                yield SeriesDeparture(one, found, greatest=True)


def _has_greatest(series: Series) -> bool:
    return series.quantity.partition(".")[0] == _GREATEST
