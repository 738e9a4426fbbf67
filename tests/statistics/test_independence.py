"""Samples that follow each other are found, and count as fewer."""

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.independence import effective_samples, runs_p, serial_p
from lightrig.harness.statistics.quantiles import NotEnough, quantile


def following(random, n, rho):
    """A process of the first order with unit variance."""
    values = [random.normal()]
    for _ in range(n - 1):
        values.append(rho * values[-1] + np.sqrt(1 - rho**2) * random.normal())
    return np.array(values)


@pytest.mark.parametrize("test", [serial_p, runs_p])
def test_independent_samples_are_rarely_taken_for_dependent(test):
    random = np.random.default_rng(3)
    alarms = sum(test(random.lognormal(0, 1, 60)) < 0.05 for _ in range(1000))
    assert scipy.stats.binomtest(alarms, 1000, 0.05).proportion_ci().low <= 0.05


def test_samples_that_follow_each_other_and_a_change_of_level_are_found():
    random = np.random.default_rng(4)
    assert sum(serial_p(following(random, 60, 0.6)) < 0.005 for _ in range(100)) >= 90
    stepped = np.concatenate([random.normal(0, 1, 30), random.normal(3, 1, 30)])
    assert runs_p(stepped) < 1e-4


def test_samples_to_and_fro_keep_their_number():
    random = np.random.default_rng(5)
    alternating = np.tile([0.0, 5.0], 30) + random.normal(0, 1, 60)
    assert effective_samples(alternating) == 60


def test_serial_p_is_bartels_table():
    # Bartels (1982), example 1: changes of stock levels 1968-1977, ratio 1.3 by ranks.
    values = [528, 348, 264, -20, -167, 575, 410, -4, 430, -122]
    ranks = scipy.stats.rankdata(values)
    ratio = (np.diff(ranks) ** 2).sum() / ((ranks - ranks.mean()) ** 2).sum()
    exact = _by_permutations(ratio)
    assert serial_p(values) == pytest.approx(exact, abs=0.02)


def _by_permutations(ratio):
    random, ranks = np.random.default_rng(6), np.arange(1, 11)
    shuffled = random.permuted(np.tile(ranks, (20_000, 1)), axis=1)
    spread = ((ranks - ranks.mean()) ** 2).sum()
    return float(((np.diff(shuffled, axis=1) ** 2).sum(axis=1) / spread <= ratio + 1e-9).mean())


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.6, 0.92)])
def test_intervals_of_medians_hold_with_effective_samples(rho, least):
    random = np.random.default_rng(7)
    held = counted = plain = 0
    for _ in range(400):
        values = following(random, 100, rho)
        found = quantile(values, values, 0.5, effective=effective_samples(values))
        naive = quantile(values, values, 0.5)
        counted += not isinstance(found, NotEnough)
        held += isinstance(found, NotEnough) or found.lower <= 0 <= found.upper
        plain += naive.lower <= 0 <= naive.upper
    assert held / 400 >= least
    assert counted > 380
    if rho:
        assert plain / 400 < 0.85
