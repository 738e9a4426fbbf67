"""Drift: the promised rate of false alarms, what is found, and what is not claimed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.comparisons import Midmeans
from lightrig.harness.statistics.corrections import correct, least_error
from lightrig.harness.statistics.drift import DriftRule, DriftVerdict, judge_drift
from lightrig.harness.statistics.nights import expect
from lightrig.harness.statistics.samples import SampleError
from lightrig.testbeds.baselines import Guard, RuleError

RANK, INTERVAL = DriftRule(), DriftRule(test="interval")
BOTH = pytest.mark.parametrize("rule", [RANK, INTERVAL], ids=lambda rule: rule.test)


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


NIGHTS = [lognormal, bimodal, autocorrelated, scattered, drifting, wandering]


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("draw", NIGHTS, ids=lambda draw: draw.__name__)
def test_false_alarms_are_as_rare_as_stated(draw, rule):
    random = np.random.default_rng(30)
    trials = 150
    alarms = 0
    for _ in range(trials):
        *before, tonight = draw(random, 11)
        alarms += judge_drift(before, tonight, rule).outcome == "departed, unconfirmed"
    assert alarms / trials <= rule.error + 0.005


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


@BOTH
def test_a_change_of_a_tenth_is_found_from_a_hundred_samples(rule):
    random = np.random.default_rng(32)
    found = 0
    for _ in range(100):
        *before, tonight = lognormal(random, 11, 100)
        verdict = judge_drift(before, 1.1 * tonight, rule)
        found += verdict.outcome == "departed, unconfirmed"
        assert 1.0 < verdict.effect < 1.2
    assert found >= 90


def test_ranks_are_deaf_to_strays_and_hear_the_rest():
    random = np.random.default_rng(33)
    *before, tonight = bimodal(random, 11, 60)
    tonight[0] = 1000.0
    assert judge_drift(before, tonight, RANK).outcome == "unchanged"
    # A mean that one sample moves so far would not have shown twice as much.
    assert judge_drift(before, tonight, INTERVAL).outcome == "cannot tell"
    assert judge_drift(before, 1.1 * tonight, RANK).outcome == "departed, unconfirmed"


@BOTH
def test_the_interval_holds_the_change_as_often_as_it_says(rule):
    random = np.random.default_rng(34)
    rule = DriftRule(test=rule.test, error=0.1)
    held = 0
    for _ in range(200):
        *before, tonight = scattered(random, 11)
        verdict = judge_drift(before, 1.3 * tonight, rule)
        held += verdict.lower <= 1.3 <= verdict.upper
    assert held / 200 >= 0.9 - 3 * math.sqrt(0.09 / 200)


@BOTH
def test_the_detectable_change_is_found_with_the_stated_power(rule):
    random = np.random.default_rng(35)
    detectable = np.median(
        [
            judge_drift(night[:-1], night[-1], rule).detectable
            for night in (lognormal(random, 11) for _ in range(100))
        ]
    )
    found = 0
    for _ in range(200):
        *before, tonight = lognormal(random, 11)
        found += judge_drift(before, detectable * tonight, rule).outcome == "departed, unconfirmed"
    assert 0.7 <= found / 200 <= 0.9


def test_more_nights_and_more_samples_detect_less():
    random = np.random.default_rng(36)
    few, more_samples, more_nights = (
        np.median(
            [
                judge_drift(n[:-1], n[-1], DriftRule(nights=nights)).detectable
                for n in (lognormal(random, nights + 1, samples) for _ in range(20))
            ]
        )
        for nights, samples in ((10, 30), (10, 120), (30, 30))
    )
    assert more_samples < few
    assert more_nights < few


@BOTH
def test_directions(rule):
    random = np.random.default_rng(37)
    *before, tonight = lognormal(random, 11, 100)
    for direction, by, outcome in (
        ("up", 1.3, "departed, unconfirmed"),
        ("up", 0.7, "unchanged"),
        ("down", 1.3, "unchanged"),
        ("down", 0.7, "departed, unconfirmed"),
    ):
        one_sided = DriftRule(test=rule.test, direction=direction)
        verdict = judge_drift(before, by * tonight, one_sided)
        assert verdict.outcome == outcome, (direction, by)
        assert (verdict.upper == math.inf) == (direction == "up")
        assert (verdict.lower == 0) == (direction == "down")
        assert (verdict.detectable > 1) == (direction == "up")


def test_too_few_samples_and_nights_say_how_many_more():
    random = np.random.default_rng(38)
    before = [*lognormal(random, 4), *lognormal(random, 9, 20)]
    verdict = judge_drift(before, lognormal(random, 1, 18)[0], RANK)
    assert (verdict.outcome, verdict.needed, verdict.needed_nights) == ("not enough data", 12, 6)
    assert (verdict.n, verdict.nights, verdict.samples, verdict.p) == (18, 4, 120, None)
    assert verdict.reason == (
        "Not enough data: 18 samples tonight, 12 more needed; "
        "4 nights before with 30 samples or more, 6 more needed."
    )
    nothing = judge_drift([], [], RANK)
    assert (nothing.needed, nothing.needed_nights, nothing.level) == (30, 10, None)


def test_only_the_last_nights_are_looked_at_and_no_more_of_them_than_of_tonight():
    random = np.random.default_rng(39)
    old, recent = lognormal(random, 20, 90), lognormal(random, 10, 90)
    tonight = lognormal(random, 1, 40)[0]
    verdict = judge_drift([*(5 * old), *recent], tonight, RANK)
    assert verdict == judge_drift([night[:40] for night in recent], tonight, RANK)
    assert (verdict.nights, verdict.samples) == (10, 400)


def test_a_guard_needs_no_baseline():
    rule = DriftRule(guard=Guard(50_000_000, 10_000_000, "ns"), ratio=1.5)
    above = judge_drift([], [60e6, 61e6, 62e6], rule)
    assert above.outcome == "guard broken"
    assert above.reason == "Tonight's median of 61 ms is above the guard of 50 ms."
    below = judge_drift([], [1e6], rule)
    assert below.reason == "Tonight's median of 1 ms is below the guard of 10 ms."
    ratio = judge_drift([[20e6] * 30], [31e6] * 5, rule)
    assert ratio.reason == "Tonight's median is more than 1.5 times that of the nights before."
    assert judge_drift([[20e6] * 30], [29e6], rule).outcome == "not enough data"
    # Surely above only where the least that it can have been is.
    assert judge_drift([], [[49e6], [90e6]], rule).outcome == "not enough data"


def test_copies_of_a_night_say_nothing_of_how_nights_differ():
    random = np.random.default_rng(40)
    night, other = lognormal(random, 2)
    same = judge_drift([night] * 10, night, RANK)
    assert (same.outcome, same.p) == ("unchanged", 1.0)
    verdict = judge_drift([night] * 10, 2 * other, RANK)
    assert (verdict.outcome, verdict.needed_nights) == ("not enough data", 89)
    assert verdict.p == pytest.approx(1 / 11)
    many = judge_drift([night] * 99, 2 * other, DriftRule(nights=99))
    assert many.outcome == "departed, unconfirmed"


def apart(random, within, between, nights=11, samples=30):
    """Lognormal nights: standard deviation of the logarithm within a night and between nights."""
    levels = random.normal(0, between, (nights, 1))
    return np.exp(levels + random.normal(0, within, (nights, samples)))


APART = [(0.03, 0.01), (0.03, 0.03), (0.03, 0.05), (0.1, 0.05), (0.1, 0.1), (0.3, 0.1)]


@BOTH
@pytest.mark.parametrize(("within", "between"), APART)
def test_a_gross_change_is_found_however_far_nights_lie_apart(within, between, rule):
    random = np.random.default_rng(47)
    for _ in range(6):
        *before, tonight = apart(random, within, between)
        for change in (0.01, 10, 1000):
            verdict = judge_drift(before, change * tonight, rule)
            assert verdict.outcome == "departed, unconfirmed", (change, verdict.reason)
            assert verdict.p < 1e-3 / 60  # also among 60 quantities of a night at 0.1 %
            assert verdict.detectable < 10
            assert verdict.lower / 1.5 < change < verdict.upper * 1.5


def test_a_gross_change_of_polled_values_is_found():
    random = np.random.default_rng(48)
    before = [polled(night, 10) for night in 40 * apart(random, 0.1, 0.03, 10)]
    tonight = polled(400 * apart(random, 0.1, 0.03, 1)[0], 10)
    assert judge_drift(before, tonight, RANK).outcome == "departed, unconfirmed"


def tied(random, share, nights=11, samples=30):
    """Values most of which are equal."""
    others = random.lognormal(0.3, 0.3, (nights, samples))
    return np.where(random.random((nights, samples)) < share, 1.0, others)


def steps(random, nights=11, samples=30):
    """Three values, as of a poll that is locked to the command."""
    return random.choice([41.6, 52.0, 62.4], p=[0.2, 0.7, 0.1], size=(nights, samples))


@pytest.mark.long
@pytest.mark.parametrize(
    "draw",
    [*(lambda r, s=share: tied(r, s) for share in (0.5, 0.6, 0.7, 0.75, 0.8, 0.9)), steps],
    ids=["tied 50", "tied 60", "tied 70", "tied 75", "tied 80", "tied 90", "steps"],
)
def test_false_alarms_of_values_of_which_many_are_equal(draw):
    random = np.random.default_rng(49)
    trials = 1500
    alarms = 0
    for _ in range(trials):
        *before, tonight = draw(random)
        alarms += judge_drift(before, tonight, RANK).outcome == "departed, unconfirmed"
    assert alarms / trials <= 0.015


def test_a_gate_that_may_miss_the_stated_change_cannot_tell():
    random = np.random.default_rng(41)
    *before, tonight = apart(random, 0.03, 0.05)
    found = judge_drift(before, tonight, DriftRule(detect=1.5))
    assert (found.outcome, found.sees) == ("unchanged", True)
    assert 1.2 < found.detectable < 1.5
    blind = judge_drift(before, tonight, DriftRule(detect=1.1))
    assert (blind.outcome, blind.sees) == ("cannot tell", False)
    assert blind.reason.startswith(
        "Cannot tell: nights lie too far apart to find 1.1 times what the 10 nights before led"
    )
    assert f"{blind.detectable:.3g} times would have been found" in blind.reason


def test_without_a_change_to_detect_no_night_is_unchanged():
    random = np.random.default_rng(43)
    *before, tonight = 40 + 0.1 * random.standard_normal((11, 40))
    rule = DriftRule().in_unit("°C")
    found = judge_drift(before, tonight, rule)
    assert (found.outcome, found.sees) == ("cannot tell", False)
    assert 0.05 < abs(found.detectable) < 0.5
    assert found.reason.startswith("Cannot tell: the rule states no change to detect")
    stated = judge_drift(before, tonight, DriftRule(detect=1.0).in_unit("°C"))
    assert stated.outcome == "unchanged"


def test_the_change_to_detect_is_a_fifth_or_half_a_decibel_unless_stated():
    random = np.random.default_rng(50)
    *before, tonight = apart(random, 0.03, 0.1)
    assert judge_drift(before, tonight, RANK).outcome == "cannot tell"
    level = 10 * np.log10(apart(random, 0.03, 0.1))
    assert judge_drift(level[:-1], level[-1], RANK.in_unit("dB")).outcome == "cannot tell"
    assert RANK.in_unit("dB").detect == 0.5
    assert RANK.in_unit("ns").detect == 1.2
    assert RANK.in_unit("°C").detect == math.inf
    with pytest.raises(RuleError):
        DriftRule(detect=0.9).in_unit("ns")


@pytest.mark.parametrize("among", [10, 100])
def test_the_stated_power_is_that_after_correction_for_many_comparisons(among):
    random = np.random.default_rng(51)
    trials, error = 60, least_error(among, "holm", 0.05)
    detectable = np.median(
        [
            judge_drift(night[:-1], night[-1], RANK, corrected_error=error).detectable
            for night in (apart(random, 0.05, 0.03) for _ in range(40))
        ]
    )
    found = 0
    for _ in range(trials):
        *before, tonight = apart(random, 0.05, 0.03)
        verdict = judge_drift(before, detectable * tonight, RANK, corrected_error=error)
        others = dict(enumerate(random.random(among - 1)))
        verdicts = {n: DriftVerdict("unchanged", "", 30, 10, 300, p=p) for n, p in others.items()}
        corrected = correct({**verdicts, "moved": verdict}, "holm", 0.05)
        found += corrected["moved"].outcome == "departed, unconfirmed"
    assert found / trials >= 0.7


# ------------------------------------------------------------------- what is only known within


def polled(values, every, phase=0.0):
    """A poll every so often sees a value between two looks."""
    low = np.floor((values - phase) / every) * every + phase
    return np.stack([low, low + every])


@BOTH
def test_intervals_without_width_are_values(rule):
    random = np.random.default_rng(42)
    *before, tonight = lognormal(random, 11)
    pairs = [np.stack([night, night]) for night in before]
    expected = judge_drift(before, tonight, rule)
    assert judge_drift(pairs, np.stack([tonight, tonight]), rule) == expected


@BOTH
def test_a_level_is_that_of_the_midpoints(rule):
    pairs = [[38, 36, 34], [40, 44, 46]]
    verdict = judge_drift([pairs] * 10, pairs, DriftRule(test=rule.test, minimum=3))
    expected = 40 if rule is RANK else 119 / 3
    assert (verdict.level, verdict.before) == pytest.approx((expected, expected))


@BOTH
def test_observers_widen_the_interval_and_not_the_doubt_about_nothing(rule):
    random = np.random.default_rng(43)
    *before, tonight = 40 * lognormal(random, 11, 100)
    narrow = judge_drift(before, tonight, rule)
    wide = judge_drift([(n - 2, n + 2) for n in before], (tonight - 2, tonight + 2), rule)
    assert wide.p == pytest.approx(narrow.p, abs=0.01)
    assert wide.lower < narrow.lower / 1.05
    assert wide.upper > narrow.upper * 1.05


@BOTH
def test_another_observer_is_no_change(rule):
    """Tonight everything was stamped up to 20 late, which moves midpoints by 10."""
    random = np.random.default_rng(44)
    *before, tonight = 40 * lognormal(random, 11, 100)
    pairs = [(night, night + 0.1) for night in before]
    assert judge_drift(pairs, tonight + 10, rule).outcome == "departed, unconfirmed"
    assert judge_drift(pairs, (tonight, tonight + 20), rule).outcome == "unchanged"
    assert judge_drift(pairs, (tonight + 30, tonight + 50), rule).outcome == "departed, unconfirmed"


@BOTH
def test_false_alarms_of_what_is_polled(rule):
    random = np.random.default_rng(45)
    alarms = 0
    for _ in range(140):
        *before, tonight = (polled(night, 10) for night in 42 * lognormal(random, 11))
        alarms += judge_drift(before, tonight, rule).outcome == "departed, unconfirmed"
    assert alarms / 140 <= 0.015


def test_an_unbounded_sample_counts_from_its_bound():
    random = np.random.default_rng(46)
    *before, tonight = 40 * lognormal(random, 11)
    lost = np.stack([tonight, tonight])
    lost[:, :20] = [[60_000], [math.inf]]
    verdict = judge_drift(before, lost, RANK)
    assert (verdict.outcome, verdict.upper) == ("departed, unconfirmed", math.inf)
    assert verdict.lower > 1


# ------------------------------------------------------------------------------- properties

SEEDS = st.integers(0, 2**32 - 1)


@BOTH
@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, factor=st.floats(1e-12, 1e12))
def test_the_unit_does_not_matter(rule, seed, factor):
    *before, tonight = scattered(np.random.default_rng(seed), 11)
    one = judge_drift(before, tonight, rule)
    other = judge_drift([night * factor for night in before], tonight * factor, rule)
    assert other.p == pytest.approx(one.p, rel=1e-3, abs=1e-9)
    assert (other.effect, other.lower, other.upper) == pytest.approx(
        (one.effect, one.lower, one.upper), rel=1e-6
    )


@BOTH
@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_up_and_down_are_alike(rule, seed):
    rule = DriftRule(test=rule.test, effect="difference")
    *before, tonight = scattered(np.random.default_rng(seed), 11)
    one = judge_drift(before, tonight, rule)
    other = judge_drift([-night for night in before], -tonight, rule)
    assert other.p == pytest.approx(one.p)
    assert (-other.effect, -other.upper, -other.lower) == pytest.approx(
        (one.effect, one.lower, one.upper), abs=0.02
    )


@BOTH
@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, by=st.floats(0.5, 2))
def test_the_effect_lies_in_its_interval_which_excludes_nothing_if_changed(rule, seed, by):
    *before, tonight = lognormal(np.random.default_rng(seed), 11)
    verdict = judge_drift(before, by * tonight, rule)
    assert verdict.lower <= verdict.effect <= verdict.upper
    if verdict.p < 0.008:
        assert not verdict.lower <= 1 <= verdict.upper
    if verdict.p > 0.012:
        assert verdict.lower <= 1 <= verdict.upper


@pytest.mark.parametrize(
    ("before", "tonight", "message"),
    [
        ([], [1.0, math.nan], "tonight: found NaN at index 1"),
        ([[1.0], [[1, 2], [0, 3]]], [1.0], "index 0: earliest 1 is after latest 0"),
        ([[[1, 2], [3]]], [1.0], "night 0: found rows of different lengths"),
        ([[[1, 2]]], [1.0], "night 0: found 2 dimensions"),
        ([[math.inf]], [1.0], "night 0: found infinity at index 0"),
        ([[0.0] * 30] * 10, [1.0] * 30, "effect: difference"),
    ],
)
def test_samples_that_make_no_sense_are_refused(before, tonight, message):
    with pytest.raises(SampleError, match=message):
        judge_drift(before, tonight, RANK)


@pytest.mark.parametrize(
    ("key", "stated"),
    [
        ("error", {"error": 0}),
        ("error", {"error": 0.6}),
        ("min", {"minimum": 0}),
        ("nights", {"nights": 4}),
        ("ratio", {"ratio": 1}),
    ],
)
def test_rules_that_make_no_sense_are_refused(key, stated):
    with pytest.raises(RuleError) as caught:
        DriftRule(**stated)
    assert caught.value.key == key


def test_nights_whose_middles_agree_scatter_by_the_standard_error_of_their_samples():
    """Nine tenths of even samples span 1.8, those of normal ones 2 * 1.645 standard deviations."""
    night = np.linspace(-1, 1, 21)
    assert Midmeans([night, night + 1], np.zeros(25)).least_spread == pytest.approx(
        1.8 / (2 * 1.6449) / 5, rel=1e-3
    )
