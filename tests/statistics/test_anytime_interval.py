"""An interval that holds whenever one looks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.statistics.bit_errors import anytime_interval, error_ratio
from lightrig.harness.statistics.samples import SampleError


@given(st.integers(1, 10**6), st.integers(10**6, 10**14), st.floats(1e-15, 1e-2))
def test_it_holds_what_was_seen_and_is_wider_than_one_for_a_fixed_number(
    errors: int, bits: int, scale: float
) -> None:
    lower, upper = anytime_interval(errors, bits, scale)
    exact = error_ratio(errors, bits)
    assert lower <= errors / bits <= upper
    assert lower <= exact.lower * (1 + 1e-9)
    assert upper >= min(exact.upper, 1.0) * (1 - 1e-9)


def test_many_errors_narrow_it() -> None:
    lower, upper = anytime_interval(10**6, 10**12, 1e-12)
    assert upper / lower < 1.02


def test_without_errors_it_is_not_much_wider() -> None:
    bits = 4 * 10**12
    lower, upper = anytime_interval(0, bits, 1e-12)
    assert lower == 0
    assert -math.log(0.05) < upper * bits < 4.5


@pytest.mark.long
@pytest.mark.parametrize("ratio", [3e-13, 1e-12, 1e-10])
def test_looking_all_the_time_breaks_no_confidence(ratio: float) -> None:
    """The exact one, looked at as often, would be wrong far more often than it says."""
    random = np.random.default_rng(3)
    each, looks, trials = 10**12, 20, 60
    missed = naive = 0
    for _ in range(trials):
        errors = np.cumsum(random.poisson(ratio * each, looks))
        seen = [(int(k), each * (n + 1)) for n, k in enumerate(errors)]
        missed += any(not _holds(anytime_interval(k, bits, 1e-12), ratio) for k, bits in seen)
        exact = [error_ratio(k, bits) for k, bits in seen]
        naive += any(not _holds((e.lower, e.upper), ratio) for e in exact)
    assert missed <= 6  # of 60: 3 are expected, and more than 6 are so in 3 % of all draws
    assert naive > missed


def _holds(interval: tuple[float, float], ratio: float) -> bool:
    return interval[0] <= ratio <= interval[1]


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(SampleError):
        anytime_interval(3, 2, 1e-12)
