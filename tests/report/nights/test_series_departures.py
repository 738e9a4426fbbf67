"""Departures of the last night: which series share the error of the page."""

from dataclasses import replace

import numpy as np

from lightrig.harness.report.nights.last_night_departures import ERROR, find_series_departures
from lightrig.harness.report.nights.series import Lab, NightSeries

NIGHTS = 7
LEVELS = 44.5, 43.9, 45.1, 44.2, 44.9, 44.0, 51.5
"""In ms; the last one has p = 5.9e-5 by scipy's t distribution of 5 degrees of the logarithms."""


def series(subject, levels):
    level = np.array(levels)
    none = np.full(NIGHTS, np.nan)
    ends = {"lower": level - 0.5, "upper": level + 0.5, "p99": none, "p99_upper": none}
    n = np.isfinite(level) * 30.0
    return NightSeries(
        "acknowledged", subject, "t", "", "ms", n, median=level, level=level, greatest=level, **ends
    )


def departed(*more):
    several = Lab("bench", True, (series("ocs", LEVELS), *more), (("run",),) * NIGHTS)
    ((*found,),) = find_series_departures([several])
    return [one.series.subject for one in found]


def test_series_of_one_night_take_no_share_of_the_error():
    alone = [np.nan] * 6
    new = [
        replace(series(f"new{n}", [*alone, 3.0]), quantity="bit_errors", case=f"bits {n}")
        for n in range(200)
    ]
    assert departed() == ["ocs"]
    assert departed(*new) == ["ocs"]
    assert ERROR / 201 < 5.9e-5 < ERROR / 2


def test_every_series_of_enough_nights_takes_its_share():
    still = [
        replace(series(f"old{n}", [3.0, 3.1, 2.9, 3.05, 3.02, 2.98, 3.01]), case=f"old {n}")
        for n in range(200)
    ]
    assert departed(*still) == []
