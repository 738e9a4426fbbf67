"""The staircase finds thresholds that the tests put in."""

import math

import numpy as np
import pytest

from lightrig.harness.jobs.statistics.staircase import Staircase


def test_a_sharp_threshold_is_found() -> None:
    stairs, levels = Staircase(0.01, 30), []
    for _ in range(14):
        levels.append(stairs.next_level())
        stairs.answered(levels[-1], failed=levels[-1] > 2.7)
    found = stairs.threshold()
    assert found.lower <= 2.7 <= found.upper < 1.3 * found.lower
    assert found.lower <= found.value <= found.upper
    assert all(0.0099 < each < 30.1 for each in levels)
    # Half of a range of three decades is ruled out by the first answer.
    assert levels[0] == pytest.approx(math.sqrt(0.01 * 30), rel=0.1)


@pytest.mark.parametrize(("fails", "value"), [(False, math.inf), (True, 0.0)])
def test_a_threshold_beyond_the_levels_has_no_value(fails: bool, value: float) -> None:
    stairs = Staircase(0.1, 30)
    for _ in range(8):
        stairs.answered(stairs.next_level(), failed=fails)
    found = stairs.threshold()
    assert found.value == value
    assert (found.lower < 0.2) == fails


@pytest.mark.long
def test_intervals_hold_the_threshold() -> None:
    draw = np.random.default_rng(5)
    inside = 0
    for _ in range(100):
        threshold, spread = 10 ** draw.uniform(-1.5, 1.3), draw.choice([0.004, 0.03, 0.1])
        stairs = Staircase(0.01, 30)
        for _ in range(16):
            level = stairs.next_level()
            fails = 0.5 + 0.5 * math.tanh(math.log10(level / threshold) / spread)
            stairs.answered(level, failed=draw.random() < fails)
        found = stairs.threshold()
        inside += found.lower <= threshold <= found.upper
    # 95 of 100, and at least 90 with probability 0.99.
    assert inside >= 90


def test_the_interval_is_that_of_a_sum_over_thresholds_and_slopes() -> None:
    """Bayes' rule on a grid of its own; a trial fails by chance once in a hundred."""
    answers = [(0.3, False), (2.0, True), (0.9, False), (1.5, True), (1.1, False)]
    stairs = Staircase(0.01, 30, confidence=0.8)
    for level, failed in answers:
        stairs.answered(level, failed=failed)
    thresholds = np.arange(math.log10(0.01) - 0.7, math.log10(30) + 0.7, 0.0005)
    posterior = np.zeros_like(thresholds)
    for spread in (0.005, 0.02, 0.05, 0.1, 0.2):
        likelihood = np.ones_like(thresholds)
        for level, failed in answers:
            away = np.clip((math.log10(level) - thresholds) / spread, -300, 300)
            fails = 0.01 + 0.98 / (1 + np.exp(-2 * away))
            likelihood *= fails if failed else 1 - fails
        posterior += likelihood
    shares = np.cumsum(posterior) / posterior.sum()
    low, middle, high = 10 ** np.interp([0.1, 0.5, 0.9], shares, thresholds)
    found, step = stairs.threshold(), 10 ** (2 * 4.9 / 194)
    assert found.value == pytest.approx(middle, rel=step - 1)
    assert low / step <= found.lower <= low
    assert high <= found.upper <= high * step
