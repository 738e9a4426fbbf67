"""The sequential test keeps its two error rates and stops early."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.sequential import SequentialTest

TEST = SequentialTest(good=3e-13, bad=1e-12)


def trials(test: SequentialTest, ratio: float, count: int, gate: float) -> tuple[float, float]:
    """Return the share of rejections and the mean number of bits, with a look after each gate."""
    generator = np.random.default_rng(7)
    rejected, total = 0, 0.0
    for _ in range(count):
        errors, bits = 0, 0
        while (decision := test.decide(errors, bits)) == "go on":
            errors += int(generator.poisson(gate * ratio))
            bits += round(gate)
        rejected += decision == "reject"
        total += bits
    return rejected / count, total / count


def test_it_keeps_its_rates_and_needs_a_third_less() -> None:
    gate = TEST.bits_without_errors() / 40
    wrong, bits_good = trials(TEST, TEST.good, 2_000, gate)
    right, bits_bad = trials(TEST, TEST.bad, 2_000, gate)
    chance = 3 * math.sqrt(0.05 * 0.95 / 2_000)
    assert wrong <= TEST.alpha + chance
    assert 1 - right <= TEST.beta + chance
    fixed = TEST.fixed_bits()
    assert bits_good <= fixed * 2 / 3
    assert bits_bad <= fixed * 2 / 3
    assert bits_good == pytest.approx(TEST.expected_bits(TEST.good), rel=0.2)


@pytest.mark.parametrize("ratio", [1e-14, 1e-13, 3e-13, 6e-13, 1e-12])
def test_expected_bits_agree_with_the_bits_taken(ratio: float) -> None:
    gate = TEST.bits_without_errors() / 40
    _, bits = trials(TEST, ratio, 300, gate)
    assert bits == pytest.approx(TEST.expected_bits(ratio), rel=0.4)


@pytest.mark.parametrize("burst", [1.5, 4])
@pytest.mark.parametrize(("ratio", "wrong"), [(1e-13, "reject"), (1e-12, "accept")])
def test_it_keeps_its_rates_in_declared_bursts(ratio: float, wrong: str, burst: float) -> None:
    """Bursts at random moments, of lengths that follow the geometric distribution."""
    test = SequentialTest(1e-13, 1e-12, burst=burst)
    generator, step, mistakes = np.random.default_rng(31), test.bits_without_errors() / 24, 0
    for _ in range(600):
        errors, bits = 0, 0
        while (decision := test.decide(errors, bits)) == "go on":
            bursts = generator.poisson(ratio * step / burst)
            errors += int(generator.geometric(1 / burst, bursts).sum())
            bits += round(step)
        mistakes += decision == wrong
    assert mistakes / 600 <= 0.05


def test_what_assumes_independent_errors_accepts_bursts_far_too_often() -> None:
    test, generator, accepted = TEST, np.random.default_rng(31), 0
    step = test.bits_without_errors() / 24
    for _ in range(300):
        errors, bits = 0, 0
        while (decision := test.decide(errors, bits)) == "go on":
            errors += int(generator.geometric(1 / 4, generator.poisson(test.bad * step / 4)).sum())
            bits += round(step)
        accepted += decision == "accept"
    assert accepted / 300 > 0.2


def test_a_settled_pass_has_an_interval_below_the_limit() -> None:
    for test in (SequentialTest(1e-13, 1e-12), SequentialTest(1e-13, 1e-12, burst=4)):
        bits = test.bits_to_settle_without_errors()
        assert (test.settle(0, bits), test.settle(0, bits - 1)) == ("accept", "go on")
        assert test.interval(0, bits)[1] <= test.bad < test.interval(0, bits - 1)[1]
        assert test.settle(50, 10**6) == "reject"


def test_a_burst_of_less_than_one_error_is_refused() -> None:
    with pytest.raises(SampleError, match="burst"):
        SequentialTest(1e-13, 1e-12, burst=0.5)


def test_a_dead_link_is_rejected_at_once_and_a_clean_one_accepted() -> None:
    bits = TEST.bits_without_errors()
    assert TEST.decide(0, bits) == "accept"
    assert TEST.decide(0, bits // 2) == "go on"
    assert TEST.decide(5, 10**6) == "reject"


def test_a_link_is_rejected_at_a_likelihood_ratio_of_one_over_alpha() -> None:
    """Errors in next to no bits have a ratio of `bad` / `good` each (Wald 1945)."""
    test = SequentialTest(1e-13, 4e-13, alpha=0.05)
    assert test.decide(2, 1000) == "go on"  # 16 times
    assert test.decide(3, 1000) == "reject"  # 64 times


@pytest.mark.parametrize("wrong", [{"good": 2e-12}, {"good": 0.0}, {"alpha": 0.6}, {"beta": 0.0}])
def test_rates_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SampleError):
        SequentialTest(**{"good": 3e-13, "bad": 1e-12, **wrong})


def test_a_walk_without_drift_by_hand() -> None:
    """Good 0.1, bad 0.4: log 4 an error, log 1.5 less a bit without; the variance decides."""
    test = SequentialTest(0.1, 0.4, alpha=0.02, beta=0.1)
    error, bit = math.log(4), math.log(1.5)
    still = bit / (error + bit)
    variance = still * (error + bit) ** 2
    assert test.expected_bits(still) == pytest.approx(math.log(50) * math.log(10) / variance)
    assert test.decide(3, 3) == "reject"  # 64 times as likely
    assert test.decide(2, 2) == "go on"  # 16 times
    assert test.decide(0, 6) == "accept"  # 0.088 times as likely
    assert test.decide(0, 5) == "go on"  # 0.13 times
    assert test.bits_without_errors() == 6
