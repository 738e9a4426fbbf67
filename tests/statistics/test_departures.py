"""Last night against the nights before: found where it must be, and at the stated error rate."""

import math

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.departures import find_departures
from lightrig.harness.statistics.heavy_tails import FEWEST_NIGHTS

ERROR = 1e-5
"""As on a page of a thousand series."""
NIGHTS = 9


def family(random, series=32, spread=0.04):
    return [np.asarray(random.normal(1.2, spread, NIGHTS + 1)) for _ in range(series)]


def test_a_dirty_connector_is_found_beside_nine_nights_and_alone():
    for seed in range(20):
        nights = family(np.random.default_rng(seed))
        nights[5][-1] += 0.7
        found = find_departures(nights, [0.0] * len(nights), ERROR)
        assert [at for at, one in enumerate(found) if one] == [5]
        assert found[5].before == pytest.approx(1.2, abs=0.1)
        assert found[5].nights == NIGHTS


def test_a_level_that_sinks_departs_like_one_that_rises():
    nights = family(np.random.default_rng(1))
    nights[5][-1] = 1.2 - 0.7
    mirrored = [1 / one for one in nights]  # levels are compared by their ratios
    still = [0.0] * len(nights)
    sunk, risen = find_departures(nights, still, ERROR), find_departures(mirrored, still, ERROR)
    assert [at for at, one in enumerate(sunk) if one] == [5]
    assert sunk[5].p == pytest.approx(risen[5].p, rel=1e-6)


def test_still_nights_depart_at_most_at_the_stated_rate():
    random = np.random.default_rng(3)
    share = np.mean([
        one is not None
        for _ in range(100)
        for one in find_departures(family(random), [0.0] * 32, 0.01)
    ])  # fmt: skip
    assert 0.001 < share < 0.013


def test_a_noisy_series_of_a_quiet_family_keeps_its_scatter():
    random = np.random.default_rng(4)
    alarms = 0
    for _ in range(200):
        nights = family(random, series=8, spread=0.01)
        nights[0] = random.normal(1.2, 0.1, NIGHTS + 1)
        alarms += find_departures(nights, [0.0] * 8, 0.001)[0] is not None
    assert alarms <= 2


def test_copies_and_too_few_nights_say_nothing():
    copies = [np.array([5.0] * 9 + [6.0]), np.array([5.0] * 10)]
    assert find_departures(copies, [0.0, 0.0], ERROR) == [None, None]
    assert find_departures(copies, [0.0, 0.0], 0.2)[1] is None
    assert find_departures([np.array([1.0, 1.1, 9.0])], [0.0], 0.2) == [None]


def test_nights_are_never_closer_than_a_level_is_uncertain():
    nights = [np.array([1.0, 1.0001, 1.0002, 1.0001, 1.0, 1.0001, 1.0, 1.0001, 1.01])]
    assert find_departures(nights, [0.0], ERROR)[0] is not None
    assert find_departures(nights, [0.02], ERROR) == [None]


BEFORE = (-1.0, 1.0, 2.0)
"""Expected: -1, then 0, then 1. Misses 2 and 2, of nights whose weights are 1 and 1/2.

Sum of squares 4 / 2 + 4 / 1.5 = 14/3 of two degrees of freedom; the next miss scatters by 1.375.
"""
VARIANCE = 14 / 3 / 2 * 1.375


def p_of(miss: float, variance: float = VARIANCE) -> float:
    """Two-sided p of Student's t with two degrees of freedom, in closed form."""
    t2 = miss**2 / variance
    return 1 - math.sqrt(t2 / (2 + t2))


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize("level", [9.0, -6.0])
def test_one_night_by_hand(ratio: bool, level: float) -> None:
    nights = np.array([*BEFORE, level])
    levels = np.exp(nights) if ratio else nights
    (found,) = find_departures([levels], [0.0], 0.2)
    assert found is not None
    assert found.p == pytest.approx(p_of(level - 1))
    assert found.before == pytest.approx(math.e if ratio else 1.0)
    assert (found.level, found.nights, found.run) == (levels[-1], 3, 1)
    assert find_departures([levels], [0.0], found.p)[0] == found
    assert find_departures([levels], [0.0], math.nextafter(found.p, 0)) == [None]


@pytest.mark.parametrize("ratio", [False, True])
def test_an_uncertain_level_by_hand(ratio: bool) -> None:
    """A level's own uncertainty, 4, scatters a miss by as much more as nights do."""
    nights = np.array([*BEFORE, 9.0])
    levels = np.exp(nights) if ratio else nights
    (found,) = find_departures([levels], [4 * math.exp(9) if ratio else 4.0], 1.0)
    assert found is not None
    assert found.p == pytest.approx(p_of(8, 16 * 1.375))


def test_a_level_of_zero_is_compared_by_difference() -> None:
    found = find_departures([np.array([0.0, 2.0, 3.0, 10.0]), np.array([])], [0.0, 0.0], 0.2)
    assert found[0] is not None
    assert found[0].before == 2.0
    assert found[0].p == pytest.approx(p_of(8))


def test_nights_in_a_row_by_hand() -> None:
    """Of two nights the less certain one counts; three confirm, and count more."""
    two, three = ([*BEFORE, 9.0, 8.0], [*BEFORE, 8.0, 9.0, 10.0])
    (twice,) = find_departures([np.array(two)], [0.0], 0.1)
    assert twice is not None
    assert (twice.run, twice.confirmed, twice.level, twice.before) == (2, False, 8.0, 1.0)
    assert twice.p == pytest.approx(p_of(7))
    (thrice,) = find_departures([np.array(three)], [0.0], 0.1)
    assert thrice is not None
    assert (thrice.run, thrice.confirmed, thrice.nights) == (3, True, 3)
    assert thrice.p == pytest.approx(p_of(7) ** (4 / 3))
    other_side = np.array([*BEFORE, 9.0, -8.0])
    found = find_departures([other_side], [0.0], 1.0)[0]
    assert found is not None
    assert found.run == 1


def test_a_confirmed_departure_precedes_a_less_probable_night() -> None:
    nights = np.array([*BEFORE, 8.0, 9.0, 1e5])
    (found,) = find_departures([nights], [0.0], 0.1)
    assert found is not None
    assert (found.run, found.level) == (3, 1e5)
    (last,) = find_departures([nights], [0.0], 1e-3)
    assert last is not None
    assert (last.run, last.nights) == (1, 5)


def test_copies_depart_once_in_as_many_nights() -> None:
    """Beside three nights that agree, a fourth has p = 1/4, and so have three others."""
    (one,) = find_departures([np.array([5.0, 5.0, 5.0, 6.0])], [0.0], 0.3)
    (run,) = find_departures([np.array([5.0, 5.0, 5.0, 6.0, 8.0, 7.0])], [0.0], 0.3)
    assert one is not None
    assert run is not None
    assert (one.p, one.nights, run.p, run.run) == (0.25, 3, 0.25, 3)
    assert find_departures([np.array([5.0, 5.0, 5.0, 5.0])], [0.0], 1.0) == [None]


def test_twenty_nights_before_are_looked_at() -> None:
    older, nights = [1e3, 2e3], [1.0, 3.0, 2.0, 5.0] * 5
    (found,) = find_departures([np.array([*older, *nights, 40.0])], [0.0], 0.1)
    (same,) = find_departures([np.array([*nights, 40.0])], [0.0], 0.1)
    assert found is not None
    assert same is not None
    assert (found.nights, found.p, found.before) == (20, same.p, same.before)


@pytest.mark.parametrize("wild", [1.0, 40.0])
def test_a_family_lends_its_scatter_by_smyth(wild: float) -> None:
    """Equations of Smyth (2004), section 6.2, solved by bisection; alike, and very unlike."""
    family = [
        np.array([*start, 0.0, *more, last])
        for start, more, last in [
            ((1.0, 3.0), (2.5,), 19.0),
            ((-1.0, 1.0), (0.5, 2.0), 22.0),
            ((0.0, 4.0), (1.0, 3.5, 2.0), -29.0),
            ((2.0, 2.5), (5.0,), 31.0),
            ((wild, -wild), (wild,), 999.0),
        ]
    ]
    spreads, dfs, misses = [], [], []
    for levels in family:
        expected, weight, squares = levels[0], 1.0, 0.0
        for level in levels[1:-1]:
            squares += (level - expected) ** 2 / (1 + weight)
            expected, weight = (expected + level) / 2, (weight + 1) / 4
        dfs.append(levels.size - 2)
        spreads.append(math.sqrt(squares / dfs[-1] * (1 + weight)))
        misses.append(levels[-1] - expected)
    half = np.array(dfs) / 2
    z = np.log(np.square(spreads))
    e = z - scipy.special.psi(half) + np.log(half)
    excess = float(np.var(e, ddof=1) - np.mean(scipy.special.polygamma(1, half)))
    assert (excess > 0) is (wild > 1)
    prior = float(sum(dfs))
    if excess > 0:
        prior = 2 * scipy.optimize.brentq(
            lambda x: scipy.special.polygamma(1, x) - excess, 1e-3, 1e3, xtol=1e-12
        )
    variance = math.exp(e.mean() + scipy.special.psi(prior / 2) - math.log(prior / 2))
    found = find_departures(family, [0.0] * 5, 0.05)
    for one, spread, df, miss in zip(found, spreads, dfs, misses, strict=True):
        pooled = math.sqrt((prior * variance + df * spread**2) / (prior + df))
        t = abs(miss) / max(pooled, spread)
        assert one is not None
        assert one.run == 1
        assert one.p == pytest.approx(2 * scipy.stats.t.sf(t, prior + df), rel=1e-6)


TAIL = 1e-5
"""Error of one series."""


def greatest(random, *, nights, series=16, tries=0.01, second_try=2.0):
    """Greatest bring-up of 20 a night and port, in s, where some need a second try of training."""
    up = random.normal(3.2, 0.12, (series, nights, 20))
    return (up + second_try * (random.random(up.shape) < tries)).max(axis=2)


@pytest.mark.parametrize("nights", [6, 12, 24])
def test_tails_of_rare_events_depart_at_most_at_the_stated_rate(nights):
    """18 % of the nights of a port have one of 1 % of 20 events: those without lie together."""
    random = np.random.default_rng(6)
    labs = [list(greatest(random, nights=nights)) for _ in range(100)]
    found = [find_departures(one, [0.0] * 16, TAIL, tails=True) for one in labs]
    assert sum(each is not None for one in found for each in one) == 0
    # With few nights nothing but the precedents tells that they are no surprise.
    if nights < FEWEST_NIGHTS:
        taken = [find_departures(one, [0.0] * 16, TAIL) for one in labs]
        assert sum(each is not None for one in taken for each in one) >= 5


def test_a_tail_farther_out_than_any_before_departs_beside_rare_events():
    random = np.random.default_rng(7)
    for _ in range(20):
        nights = list(greatest(random, nights=20))
        # A port that never needed a second try is dark for 30 s now and then.
        nights[3] = random.normal(3.4, 0.05, 20)
        nights[3][-1] += 30.0
        assert find_departures(nights, [0.0] * 16, TAIL, tails=True)[3] is not None


def test_precedents_are_as_large_and_before_all_nights_of_a_run():
    still = [np.array(LEVELS) * factor for factor in (1.0, 1.1, 0.9, 1.05)]
    grown = [one.copy() for one in still]
    grown[0][-3:] *= 1.6
    alone = find_departures(grown, [0.0] * 4, 5e-4, tails=True)
    assert (alone[0].run, alone[0].confirmed) == (3, True)
    less = [one.copy() for one in grown]
    less[2][2] *= 1.3  # log 1.3 is less than 3/4 of log 1.6
    assert find_departures(less, [0.0] * 4, 5e-4, tails=True)[0] is not None
    for factor in (1.6, 1 / 1.6):
        equal = [one.copy() for one in grown]
        equal[2][2] *= factor
        # Before the run no night of its own of nine, and of the family's one of 36: of one night
        # more 1 of 10 or 2 of 37. Three nights of the greater probability follow each other.
        assert find_departures(equal, [0.0] * 4, 5e-4, tails=True)[0] is None
        found = find_departures(equal, [0.0] * 4, 0.01, tails=True)[0]
        assert found.p == pytest.approx((1 / 10) ** 3)


LEVELS = (3.31, 3.29, 3.33, 3.30, 3.28, 3.32, 3.30, 3.31, 3.29, 3.30, 3.31, 3.30)
