"""Pooled closure: right intervals pass, and the stated bias and factor are noticed."""

import numpy as np
import pytest
import scipy

from tests.campaigns.hard_labs.cells import cells_of
from tests.campaigns.hard_labs.found import Found
from tests.campaigns.hard_labs.labs.losses_ideal import LAB
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


def nightly(errors: np.ndarray, width: float, several: int) -> dict[str, object]:
    """Return the cell that the nightly campaign makes of one interval a seed."""
    lines = []
    for seed, error in enumerate(errors.tolist()):
        found = Found()
        found.holds("loss", "interval", error, error - width / 2, error + width / 2, 0.0)
        lines.append({"seed": seed, **found.as_line(LAB)})
    return cells_of(lines, several)["loss"]


@pytest.mark.parametrize(
    ("says", "bias", "factor"),
    [
        ("biased", -0.5, 1.0),
        ("wrong by a factor", 0.0, 1.5),
        pytest.param("biased", 0.5, 1.0, marks=pytest.mark.long),
    ],
)
def test_the_nightly_table_notices_injected_faults_at_the_stated_rate(
    says: str, bias: float, factor: float
) -> None:
    """As many of 100 nights as a binomial count of 95 % has with a probability of 0.9999."""
    random, nights, several = np.random.default_rng(72), 100, 200
    seeds = seeds_needed(ERROR / several)
    assert seeds == 162
    noticed = 0
    for _ in range(nights):
        errors = factor * random.standard_normal(seeds) + bias
        cell = nightly(errors, 2 * scipy.special.ndtri(0.975), several)
        assert cell["pooled"] == [seeds, seeds]
        noticed += bool(cell[says])
    assert noticed >= scipy.stats.binom.ppf(1e-4, nights, POWER)


def of_losses(value: float, half: float) -> dict[str, object]:
    """Return the cell of the ideal lab's losses with so many seeds as needed.

    value: shift of each loss in its standard uncertainties. half: factor of each interval.
    """

    class Injected(Found):
        def holds(  # type: ignore[override]
            self, quantity: str, kind: str, loss: float, lower: float, upper: float, truth: float
        ) -> None:
            reach = (upper - lower) / 2
            loss += value * reach / scipy.special.ndtri(0.975)
            ends = loss, loss - half * reach, loss + half * reach
            super().holds(quantity, "interval", *ends, truth)

    lines = []
    for seed in range(1, seeds_needed() + 1):
        found = Injected()
        LAB.measure(seed, found)
        lines.append({"seed": seed, **found.as_line(LAB)})
    return cells_of(lines)["insertion_loss"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("value", "half", "biased", "wrong"),
    [
        (0.0, 1.0, False, False),
        (-0.5, 1.0, True, False),
        (0.0, 1 / 1.5, False, True),
        (0.0, 1.5, False, True),
    ],
)
def test_injected_faults_of_losses_are_noticed(
    value: float, half: float, biased: bool, wrong: bool
) -> None:
    cell = of_losses(value, half)
    assert (cell["biased"], cell["wrong by a factor"]) == (biased, wrong)
