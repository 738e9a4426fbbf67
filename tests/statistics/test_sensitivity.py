"""The sensitivity of a receiver: the fit finds the truth as often as it says."""

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.sensitivity import NoSensitivity, Sensitivity, sensitivity

POWERS = np.arange(-12.0, -5.0, 0.5)
TARGET = 2.4e-4


def counts(
    generator: np.random.Generator, at: float, slope: float, floor: float, bits: float = 1e9
) -> tuple[np.ndarray, np.ndarray]:
    q = -scipy.special.ndtri(TARGET) * 10 ** (slope * (POWERS - at))
    ratio = scipy.special.ndtr(-q) + floor
    return generator.poisson(bits * ratio), np.full(POWERS.size, bits)


@pytest.mark.long
@pytest.mark.parametrize(("slope", "floor"), [(0.1, 0.0), (0.06, 0.0), (0.1, 3e-7)])
def test_the_interval_holds_the_truth_as_often_as_it_says(slope: float, floor: float) -> None:
    generator = np.random.default_rng(5)
    held, trials = 0, 30
    for _ in range(trials):
        at = generator.uniform(-10, -8)
        errors, bits = counts(generator, at, slope, floor, 1e7)
        fit = sensitivity(POWERS, errors, bits, TARGET, with_floor=floor > 0)
        assert isinstance(fit, Sensitivity)
        held += fit.lower <= at <= fit.upper
        assert abs(fit.dbm - at) < 0.1
        assert fit.misfit > 1e-6
    assert held >= 24  # binomial(30, 0.95) is below with a probability of 0.06 %


def test_the_curve_goes_through_the_target() -> None:
    errors, bits = counts(np.random.default_rng(1), -9.0, 0.1, 0.0)
    fit = sensitivity(POWERS, errors, bits, TARGET)
    assert isinstance(fit, Sensitivity)
    assert fit.ratio_at(fit.dbm) == pytest.approx(TARGET, rel=1e-6)
    assert fit.ratio_at(-12) > TARGET > fit.ratio_at(-6)
    assert fit.slope == pytest.approx(0.1, rel=0.02)


def test_a_wrong_model_is_told_by_its_misfit() -> None:
    errors, bits = counts(np.random.default_rng(1), -9.0, 0.1, 1e-5)
    without = sensitivity(POWERS, errors, bits, TARGET)
    within = sensitivity(POWERS, errors, bits, TARGET, with_floor=True)
    assert isinstance(without, NoSensitivity)
    assert without.misfit is not None
    assert without.misfit < 1e-6
    assert "do not follow the curve of NRZ (p = " in without.reason
    assert isinstance(within, Sensitivity)
    assert within.misfit > 0.01
    assert within.floor == pytest.approx(1e-5, rel=0.1)


def test_the_power_scale_is_in_the_interval() -> None:
    errors, bits = counts(np.random.default_rng(1), -9.0, 0.1, 0.0, 1e11)
    exact = sensitivity(POWERS, errors, bits, TARGET)
    scaled = sensitivity(POWERS, errors, bits, TARGET, scale_db=0.06)
    assert isinstance(exact, Sensitivity)
    assert isinstance(scaled, Sensitivity)
    # Of 1e11 bits the counts know it to a part of the step that the solver once took.
    assert 0 < exact.upper - exact.lower < 1e-3
    for end in (scaled.lower, scaled.upper):
        assert abs(end - scaled.dbm) == pytest.approx(1.96 * 0.06, rel=0.01)
    assert scaled.dbm == exact.dbm


@pytest.mark.long
def test_counts_of_many_bits_hold_the_truth_as_often_as_they_say() -> None:
    generator = np.random.default_rng(6)
    held = 0
    for _ in range(20):
        at = generator.uniform(-10, -8)
        fit = sensitivity(POWERS, *counts(generator, at, 0.1, 0.0, 1e11), TARGET)
        assert isinstance(fit, Sensitivity)
        held += fit.lower <= at <= fit.upper
    assert held >= 15  # binomial(20, 0.95) is below with a probability of 0.03 %


def test_counts_that_do_not_fit_widen_the_interval() -> None:
    """Errors in bursts of 30: as many, but scattered by more than counts are."""
    generator = np.random.default_rng(7)
    held = widened = 0
    for _ in range(20):
        bursts, bits = counts(generator, -9.0, 0.1, 0.0, 1e7 / 30)
        fit = sensitivity(POWERS, 30 * bursts, 30 * bits, TARGET, least_p=0)
        assert isinstance(fit, Sensitivity)
        held += fit.lower <= -9.0 <= fit.upper
        widened += fit.misfit < 0.05
    assert widened >= 18
    assert held >= 16


def four_levels(generator: np.random.Generator, bits: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts of PAM4, 1e-12 at -9 dBm: 0.75 Phi(-Q / 3), Q in proportion to power."""
    q = -3 * scipy.special.ndtri(1e-12 / 0.75) * 10 ** ((np.linspace(-14, -9.5, 9) + 9) / 10)
    return generator.poisson(bits * 0.75 * scipy.special.ndtr(-q / 3)), np.full(9, bits)


@pytest.mark.parametrize("target", [1e-12, 2.4e-4])
def test_four_levels_have_a_curve_of_their_own(target: float) -> None:
    generator, held = np.random.default_rng(8), 0
    truth = -9 + 10 * np.log10(
        scipy.special.ndtri(target / 0.75) / scipy.special.ndtri(1e-12 / 0.75)
    )
    powers = np.linspace(-14, -9.5, 9)
    for _ in range(20):
        counted = four_levels(generator, 1e11)
        fit = sensitivity(powers, *counted, target, modulation="PAM4", least_p=0)
        assert isinstance(fit, Sensitivity)
        held += fit.lower <= truth <= fit.upper
        assert abs(fit.dbm - truth) < 0.002
        assert fit.ratio_at(fit.dbm) == pytest.approx(target, rel=1e-6)
        as_two = sensitivity(powers, *counted, target)
        assert isinstance(as_two, NoSensitivity)
    assert held >= 15  # binomial(20, 0.95) is below with a probability of 0.03 %


def test_too_few_errors_make_no_fit() -> None:
    zeros = np.zeros(POWERS.size)
    fit = sensitivity(POWERS, zeros, zeros + 1e9, TARGET)
    assert isinstance(fit, NoSensitivity)
    assert "3 needed" in fit.reason


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(SampleError):
        sensitivity([1.0, 2.0], [1], [10], TARGET)
