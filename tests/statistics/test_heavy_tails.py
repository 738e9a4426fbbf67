"""How heavy the tails of nights are, and departures in labs whose nights have such tails."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics.departures import find_departures
from lightrig.harness.statistics.heavy_tails import degrees_of_tails

PORTS, NIGHTS = 16, 20
ERROR = 1e-4


def levels(seed, df, ports=PORTS):
    """Return levels of a family, each series around its own level and with its own scale."""
    random = np.random.default_rng(seed)
    drawn = random.standard_t(df, (ports, NIGHTS)) if df else random.normal(size=(ports, NIGHTS))
    return [100 + port + (1 + port % 5) * each for port, each in enumerate(drawn)]


@pytest.mark.parametrize("seed", range(1, 6))
def test_normal_nights_are_normal_and_heavy_ones_are_not(seed):
    assert degrees_of_tails(levels(seed, None)) == math.inf
    assert degrees_of_tails(levels(seed, 2.5, ports=40)) < 5


def test_sixteen_ports_are_enough():
    """Three degrees of freedom are found in nearly all such labs, and in no normal one."""
    seeds = range(100, 200)
    assert sum(degrees_of_tails(levels(seed, 3)) < math.inf for seed in seeds) >= 92
    assert sum(degrees_of_tails(levels(seed, None)) < math.inf for seed in seeds) <= 2


@pytest.mark.parametrize("df", [None, 2.5])
def test_what_all_series_did_in_a_night_tells_nothing_of_each(df):
    """Nights alternate between two levels, which no heavy tail does, and one lies far out."""
    common = 3.0 * (-1) ** np.arange(NIGHTS)
    common[7] += 90
    found = degrees_of_tails([each + common for each in levels(6, df, ports=40)])
    assert found == math.inf if df is None else found < 5


def test_parts_that_failed_are_no_heavy_tails():
    """Three ports that were bad for a night or two; the rest of the family scatters normally.

    Of sixteen ports, ten are left that may scatter by chance as those of heavy tails do.
    """
    taken = 0
    for seed in range(40):
        family = levels(seed, None)
        for port, night in ((2, 4), (9, 13), (9, 14), (14, 7)):
            family[port][night] += 400
        taken += degrees_of_tails(family) < math.inf
    assert taken <= 12


@pytest.mark.parametrize("count", [0, 3, 9])
def test_few_series_tell_nothing(count):
    assert degrees_of_tails(levels(4, 2.5, ports=count)) == math.inf


def test_series_of_few_nights_or_of_one_value_tell_nothing():
    family = levels(3, 2.5, ports=9)
    assert degrees_of_tails([*family, np.full(NIGHTS, 3.0), family[0][:7]]) == math.inf


def false_departures(df, seeds):
    """Return how many of the last nights depart where nothing has changed."""
    found = 0
    for seed in seeds:
        family = [each[-NIGHTS:] for each in levels(seed, df, ports=32)]
        found += sum(each is not None for each in find_departures(family, [0.0] * 32, ERROR))
    return found


def test_nights_of_heavy_tails_depart_at_the_stated_rate():
    """Of 1,920 nights of Student's t of 3 degrees; a normal yardstick lets six of them depart."""
    assert false_departures(3, range(1, 61)) <= 1
    assert false_departures(None, range(1, 61)) <= 1


def test_a_departure_is_found_in_heavy_tails_too():
    family = levels(21, 3, ports=32)
    family[5][-1] += 400
    found = find_departures(family, [0.0] * 32, ERROR)
    assert found[5] is not None
