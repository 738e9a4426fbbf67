"""Series of which the last night lies apart from the nights before, the first morning after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lightrig.harness.report.nights.series import Lab, NightSeries
from lightrig.harness.report.nights.series_changes import ERROR
from lightrig.harness.statistics.counts import count_departure
from lightrig.harness.statistics.departures import FEWEST_BEFORE, Departure, find_departures

_INTERVAL_OF_SD = 3.92
"""Width of a 95 % interval in standard uncertainties."""


@dataclass(frozen=True, slots=True)
class SeriesDeparture:
    """A series and the departure of its last night."""

    series: NightSeries
    departure: Departure


def find_series_departures(labs: Sequence[Lab]) -> list[list[SeriesDeparture]]:
    """Return, for each lab, the series whose level departs on the lab's last night.

    All series of the page with enough nights share the error (Bonferroni): where nothing changed,
    the probability of any departure on a page is `ERROR`, for nights that scatter normally.
    """
    tried = sum(
        1 for lab in labs for one in lab.series if np.isfinite(one.level).sum() > FEWEST_BEFORE
    )
    return [list(_departures(lab, ERROR / max(tried, 1))) for lab in labs]


def _departures(lab: Lab, error: float) -> Iterator[SeriesDeparture]:
    last = max(night for night, runs in enumerate(lab.runs) if runs)
    families: dict[tuple[str, str, str], list[NightSeries]] = {}
    for one in lab.series:
        if np.isfinite(one.level[last]):
            families.setdefault(one.family, []).append(one)
    for family in families.values():
        levels = [one.level[np.isfinite(one.level)] for one in family]
        widths = [(one.upper - one.lower)[np.isfinite(one.level)] for one in family]
        uncertainties = [width / _INTERVAL_OF_SD for width in widths]
        if family[0].statistic == "count":
            departures = [count_departure(each, error) for each in levels]
        else:
            tails = family[0].is_of_tails
            departures = find_departures(levels, uncertainties, error, tails=tails)
        for one, found in zip(family, departures, strict=True):
            if found is not None:
                yield SeriesDeparture(one, found)
