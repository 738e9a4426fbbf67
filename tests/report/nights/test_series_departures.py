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
    ends["sampling"] = ends["upper"] - ends["lower"]
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
        replace(series(f"old{n}", [3.0, 3.1, 2.9, 3.05, 3.02, 2.98, 3.01]), quantity=f"old {n}")
        for n in range(200)
    ]
    assert departed(*still) == []


def light(subject, test, levels, width=22e6):
    """Return how long the light of a port was away, in ns: observers look `width` apart."""
    level = np.array(levels) * 1e6
    none = np.full(level.shape, np.nan)
    return NightSeries(
        *("signal_recovered", subject, test, "", "ns"),
        n=np.full(level.shape, 150.0),
        median=level,
        lower=level - width / 2,
        upper=level + width / 2,
        sampling=np.full(level.shape, 0.3e6),
        p99=none,
        p99_upper=none,
        level=level,
        greatest=level,
    )


def slow(factor, before, width=22e6, kin=True):
    """Return which ports depart on the first night on which ocs.18 is slower by `factor`.

    Four circuits in each of two tests scatter by 1 % from night to night; with some 400 series of
    other quantities they share the error of the page.
    """
    random = np.random.default_rng(18)
    found = set()
    every = []
    for test in ("a", "b") if kin else ("a",):
        for port in (17, 18, 19, 20):
            levels = 42.9 * np.exp(random.normal(0, 0.01, before + 1))
            levels[-1] *= factor if port == 18 else 1.0
            every.append(light(f"ocs.{port}", test, levels, width))
    every += [
        replace(light("ocs", "c", 5 * np.exp(random.normal(0, 0.01, before + 1))), quantity=f"q{n}")
        for n in range(395)
    ]
    lab = Lab("bench", True, tuple(every), (("run",),) * (before + 1))
    for one in find_series_departures([lab])[0]:
        found.add(one.series.subject)
    return found


def test_the_resolution_of_observers_hides_no_slow_mirror():
    """2.4 times as slow after three nights, as a lab of four circuits had it; 1.3 after ten."""
    assert slow(2.4, 3) == {"ocs.18"}
    assert slow(1.3, 10) == {"ocs.18"}
    assert slow(1.0, 3) == slow(1.0, 10) == set()


def test_a_small_family_alone_needs_more_nights():
    assert slow(2.4, 3, kin=False) == set()
    assert slow(2.4, 7, kin=False) == {"ocs.18"}
