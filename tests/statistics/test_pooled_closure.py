"""Pooled closure: right intervals pass, and the stated bias and factor are noticed."""

import numpy as np
import pytest

from tests.campaigns.hard_labs.power import (
    ERROR,
    POWER,
    judge,
    power_of_bias,
    power_of_factor,
    seeds_needed,
)

TRIALS = 2_000


@pytest.fixture
def draws() -> np.ndarray:
    return np.random.default_rng(71).standard_normal((TRIALS, seeds_needed()))


def test_as_many_seeds_as_needed_have_the_stated_power() -> None:
    """Normal quantiles from a table: 0.5 sqrt(n) reaches 3.4808 + 1.6449 with n = 105.1."""
    assert seeds_needed() == 106
    assert power_of_bias(106) >= POWER > power_of_bias(105)
    assert power_of_factor(106) >= POWER
    assert power_of_factor(106, 1 / 1.5) >= POWER


def test_a_bias_of_half_an_uncertainty_is_noticed(draws: np.ndarray) -> None:
    for bias in (0.5, -0.5):
        noticed = np.mean([judge(one + bias).bias for one in draws])
        assert noticed == pytest.approx(power_of_bias(106), abs=0.02)


def test_an_uncertainty_that_is_wrong_by_half_is_noticed(draws: np.ndarray) -> None:
    for factor in (1.5, 1 / 1.5):
        noticed = np.mean([judge(one * factor).factor for one in draws])
        assert noticed == pytest.approx(power_of_factor(106, factor), abs=0.02)
        assert noticed >= POWER - 0.02


def test_right_intervals_are_closed(draws: np.ndarray) -> None:
    wrong = sum(not judge(one).closed for one in draws)
    # 2 expected; 10 or more happen in one of 20,000 runs.
    assert wrong < 10
    assert wrong / TRIALS <= 5 * ERROR
