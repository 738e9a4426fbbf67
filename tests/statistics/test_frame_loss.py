"""Frame loss ratio of bit errors and of histograms of FEC symbol errors."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics.frame_loss import (
    Code,
    frame_loss_of_bit_errors,
    frame_loss_of_histogram,
)
from lightrig.harness.statistics.samples import SampleError

KP4 = Code(544, 15)
KP4_INTERLEAVED = Code(544, 15, interleaved=2)
KR4 = Code(528, 7)
CODEWORDS = 550_000_000  # half a minute of 100 Gb/s


def drawn(code: Code, shares: np.ndarray, seed: int, n: int = CODEWORDS):
    """Bins and lost code words of a gate, for shares of code words by symbol errors."""
    random = np.random.default_rng(seed)
    counts = random.multinomial(n, shares / shares.sum())
    within = code.correctable + 1
    bins = [(k, k, int(count)) for k, count in enumerate(counts[:within])]
    return bins, int(counts[within:].sum())


def independent(code: Code, ber: float) -> np.ndarray:
    symbol = 1 - (1 - ber) ** 10
    return np.array(
        [
            math.comb(code.symbols, k) * symbol**k * (1 - symbol) ** (code.symbols - k)
            for k in range(60)
        ]
    )


@pytest.mark.parametrize(
    ("code", "standard"),
    [
        pytest.param(KP4, 9.2e-13, id="100GBASE-DR, IEEE 802.3 140.1.1"),
        pytest.param(KP4_INTERLEAVED, 1.7e-12, id="400GBASE-DR4, IEEE 802.3 124.1.1"),
    ],
)
def test_the_standards_bit_error_ratio_gives_its_frame_loss_ratio(code, standard):
    assert float(f"{frame_loss_of_bit_errors(2.4e-4, code):.1e}") == standard


@pytest.mark.parametrize(("ber", "lost"), [(0.0, 0.0), (1.0, 1.0)])
def test_without_errors_no_frame_is_lost_and_with_errors_alone_each_is(ber, lost):
    assert frame_loss_of_bit_errors(ber, KP4) == lost


@pytest.mark.parametrize("ber", [1e-8, 1e-6, 5e-5, 2.4e-4])
@pytest.mark.parametrize("code", [KR4, KP4, KP4_INTERLEAVED], ids=str)
def test_the_bound_holds_for_independent_errors_and_is_below_that_without_the_tail(code, ber):
    true = frame_loss_of_bit_errors(ber, code)
    shares = independent(code, ber)
    for seed in range(5):
        bins, lost = drawn(code, shares, seed)
        found = frame_loss_of_histogram(bins, lost, CODEWORDS, code, 0.95)
        assert found.lower <= true <= found.upper
        assert found.value <= found.upper
        if not lost:
            assert found.upper < 2e-9  # 7e-9 without extrapolation
            assert found.anchor is not None


def test_the_bound_holds_as_often_as_stated_for_the_heaviest_tail_that_is_allowed():
    shares = 0.35 ** np.arange(60)
    shares /= shares.sum()
    true = float(shares[8:].sum())
    n = 3_000  # few, so that chance matters
    misses = 0
    for seed in range(200):
        bins, lost = drawn(KR4, shares, seed, n)
        found = frame_loss_of_histogram(bins, lost, n, KR4, 0.95)
        misses += true * (1 + 672 / 5140) > found.upper
    assert misses <= 0.05 * 200


def test_wide_bins_are_bounded_as_well():
    shares = independent(KP4, 1e-4)
    bins, lost = drawn(KP4, shares, 1)
    count = [each for _, _, each in bins]
    wide = [
        (0, 0, count[0]),
        (1, 3, sum(count[1:4])),
        (4, 7, sum(count[4:8])),
        (8, 15, sum(count[8:])),
    ]
    found = frame_loss_of_histogram(wide, lost, CODEWORDS, KP4)
    fine = frame_loss_of_histogram(bins, lost, CODEWORDS, KP4)
    assert frame_loss_of_bit_errors(1e-4, KP4) <= fine.upper <= found.upper < 1e-9


def test_a_link_that_is_bad_for_a_part_of_the_time_is_not_extrapolated():
    shares = 0.999 * independent(KP4, 1e-6) + 0.001 * independent(KP4, 1e-3)
    bins, lost = drawn(KP4, shares, 2)
    found = frame_loss_of_histogram(bins, lost, CODEWORDS, KP4)
    assert found.anchor is None
    assert "not extrapolated" in found.reason
    true = float(shares[16:].sum()) * (1 + 672 / 5140)
    assert found.lower <= true <= found.upper


def test_lost_code_words_are_a_lower_bound_too():
    bins, lost = drawn(KR4, independent(KR4, 2.4e-4), 3)
    found = frame_loss_of_histogram(bins, lost, CODEWORDS, KR4)
    assert lost > 100
    assert 0 < found.lower < found.value < found.upper < 2 * found.lower


def test_counts_that_cannot_be_are_an_error():
    with pytest.raises(SampleError, match="code words"):
        frame_loss_of_histogram([(0, 0, 10)], 0, 9, KP4)
