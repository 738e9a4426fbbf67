"""What nights before would have shown: rates of false alarms, power, intervals, and copies."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.counts import count_departure, count_reach
from lightrig.harness.statistics.departures import find_departures, find_reaches
from lightrig.harness.statistics.nights import expect


def lognormal(random, nights, samples=30):
    return random.lognormal(0, 0.15, (nights, samples))


def bimodal(random, nights, samples=30):
    slow = np.where(random.random((nights, samples)) < 0.05, 3, 1)
    return slow * random.lognormal(0, 0.05, (nights, samples))


def autocorrelated(random, nights, samples=30):
    drawn = random.normal(size=(nights, samples))
    for at in range(1, samples):
        drawn[:, at] = 0.7 * drawn[:, at - 1] + math.sqrt(1 - 0.7**2) * drawn[:, at]
    return np.exp(0.15 * drawn)


def scattered(random, nights, samples=30):
    return np.exp(random.normal(0, 0.05, (nights, 1))) * lognormal(random, nights, samples)


def drifting(random, nights, samples=30):
    return 1.02 ** np.arange(nights)[:, None] * lognormal(random, nights, samples)


def wandering(random, nights, samples=30):
    steps = random.normal(0, 0.02, (nights, 1))
    return np.exp(np.cumsum(steps, axis=0)) * lognormal(random, nights, samples)


def levels(draw, random, nights=11, samples=30):
    return np.median(draw(random, nights, samples), axis=1)


@pytest.mark.parametrize(
    "draw", [lognormal, bimodal, autocorrelated, scattered, drifting, wandering]
)
def test_one_night_departs_as_rarely_as_stated(draw):
    random = np.random.default_rng(30)
    found = [find_departures([levels(draw, random)], [0.0], 0.05)[0] for _ in range(1000)]
    alone = sum(one is not None and one.run == 1 for one in found)
    assert alone / 1000 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize("nights", [5, 10, 30])
@pytest.mark.parametrize("step", [0, 0.3, 1], ids="steps of {}".format)
def test_the_rate_is_spent_and_not_hoarded(nights, step):
    """The prediction of nights keeps the error rate, for steady and for wandering levels."""
    random = np.random.default_rng(31)
    trials = 3000
    alarms = 0
    scores = random.normal(size=(trials, nights + 1))
    scores += np.cumsum(random.normal(0, step, scores.shape), axis=1)
    for *before, tonight in scores.tolist():
        expected = expect(before)
        miss = abs(tonight - expected.value)
        alarms += 2 * expected.misses.tail(miss) <= 0.05
    assert 0.04 <= alarms / trials <= 0.0625


def test_an_expectation_follows_the_nights_by_halves():
    expected = expect([8.0, 12.0, 14.0])
    assert expected.value == 12.0
    # Misses of 4 and 4, which would be 2**0.5 and 1.5**0.5 standard deviations of a night.
    spread = math.sqrt((16 / 2 + 16 / 1.5) / 2 * (1 + 0.375))
    assert expected.misses.spread == pytest.approx(spread)
    assert expected.misses.df == 2


def test_the_reach_of_three_nights_is_that_of_the_noncentral_t():
    """Nights -1, 1, 2: expected 1; misses 2 and 2 of 2 and 1.5 variances; the next has 1.375."""
    spread = math.sqrt((4 / 2 + 4 / 1.5) / 2 * 1.375)
    (found,) = find_reaches([np.array([-1.0, 1.0, 2.0, 3.0])], [0.0], 0.02)
    assert (found.before, found.level, found.nights, found.copies) == (1.0, 3.0, 3, False)
    assert found.p == pytest.approx(2 * scipy.stats.t.sf(2 / spread, 2))
    reach = scipy.stats.t.ppf(0.975, 2) * spread
    assert (found.lower, found.upper) == pytest.approx((3 - reach, 3 + reach))
    shift = (found.above - 1) / spread
    assert found.above - 1 == pytest.approx(1 - found.below)
    power = scipy.stats.nct.sf(scipy.stats.t.ppf(0.99, 2), 2, shift)
    assert power == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(("series", "nights"), [(1, 10), (8, 5), (8, 10)])
def test_what_is_stated_to_be_seen_is_seen_in_four_of_five_nights(series, nights):
    random = np.random.default_rng(35)
    error, seen, kept = 0.01 / 57, 0, 0
    for _ in range(300):
        family = [levels(scattered, random, nights + 1) for _ in range(series)]
        still = [0.0] * series
        (first, *_) = find_reaches(family, still, error)
        kept += first.lower <= first.before <= first.upper
        family[0][-1] *= first.above / first.before
        seen += find_departures(family, still, error)[0] is not None
    assert 0.74 <= seen / 300 <= 0.92  # more where nights are few, of uncertain scatter
    assert kept / 300 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)


def test_more_nights_more_samples_and_more_likes_let_less_be_seen():
    random = np.random.default_rng(36)

    def least(series=1, nights=10, samples=30):
        return np.median(
            [
                found.above / found.before
                for _ in range(20)
                for found in find_reaches(
                    [levels(lognormal, random, nights + 1, samples) for _ in range(series)],
                    [0.0] * series,
                    0.001,
                )[:1]
            ]
        )

    usual = least()
    assert least(samples=120) < usual
    assert least(nights=18) < usual
    assert least(series=16) < usual


def test_copies_say_nothing_of_how_nights_differ():
    same, other = np.array([5.0] * 10), np.array([5.0] * 9 + [6.0])
    alike, apart = find_reaches([same, other], [0.0, 0.0], 0.01)
    assert (alike.copies, apart.copies) == (True, True)
    assert (alike.differs, apart.differs) == (False, True)
    assert (alike.above, apart.p) == (None, pytest.approx(0.1))
    assert find_reaches([np.array([5.0, 6.0, 7.0])], [0.0], 0.01) == [None]
    assert find_reaches([np.array([5.0, 6.0, 7.0, 6.0])], [math.inf], 0.01) == [None]


def test_a_tail_is_seen_where_no_rare_event_reached():
    usual = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 0.98, 1.0, 1.01])
    rare = np.where(np.arange(9) == 4, 3.0, usual)
    (before, _) = find_reaches([usual, rare], [0.0, 0.0], 0.001, tails=True)
    assert before.above / before.before == pytest.approx(3 ** (4 / 3), rel=0.05)
    beyond = usual.copy()
    for level, is_found in ((before.above * 1.01, True), (before.above**0.9, False)):
        beyond[-1] = level
        found = find_departures([beyond, rare], [0.0, 0.0], 0.001, tails=True)[0]
        assert (found is not None) is is_found


def test_as_many_events_as_are_stated_are_seen_in_four_of_five_nights():
    """Poisson's counts about 4 a night; grouped ones, two at a time, take more."""
    before = np.array([4.0, 2.0, 5.0, 3.0, 6.0, 4.0, 2.0, 5.0, 5.0, 4.0, 4.0])
    found = count_reach(before, 0.001)
    assert (found.before, found.level) == (4.0, 4.0)
    random = np.random.default_rng(5)
    seen = [
        count_departure(np.append(before[:-1], float(count)), 0.001) is not None
        for count in random.poisson(found.above, 500)
    ]
    assert 0.75 <= np.mean(seen) <= 0.88
    assert found.lower == pytest.approx(scipy.stats.chi2.ppf(0.025, 8) / 2)
    assert found.upper == pytest.approx(scipy.stats.chi2.ppf(0.975, 10) / 2)
    assert count_reach(np.repeat([2.0, 10.0], 6), 0.001).above > found.above
    assert count_reach(before[:3], 0.001) is None


@given(seed=st.integers(0, 999), factor=st.sampled_from([1e-9, 0.37, 1e6]))
@settings(max_examples=20)
def test_the_unit_does_not_matter(seed, factor):
    nights = levels(scattered, np.random.default_rng(seed))
    (one,) = find_reaches([nights], [0.01], 0.01)
    (scaled,) = find_reaches([factor * nights], [0.01 * factor], 0.01)
    assert scaled.p == pytest.approx(one.p, rel=1e-6)
    assert scaled.above == pytest.approx(factor * one.above, rel=1e-6)
