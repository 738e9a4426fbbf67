"""Bit errors: are intervals as sure as they say, and what does stopping early save?

Coverage: for true ratios from 1e-15 to 1e-3, how often the exact 95 % interval of a gate holds
the true one, for gates in which half an error, three and thirty are expected. Sequential test:
how often a good line is rejected and a bad one accepted, and how many bits it takes, against
the shortest test of fixed length that keeps the same two rates.
"""

from collections.abc import Callable

import numpy as np

from lightrig.harness.statistics.bit_errors import anytime_interval, error_ratio
from lightrig.harness.statistics.sequential import SequentialTest

TRIALS = 10_000
CONFIDENCE = 0.95
RATIOS = tuple(10.0**-decade for decade in range(15, 2, -1))
EXPECTED = (0.5, 3.0, 30.0)
PAIRS = ((1e-13, 1e-12), (2e-13, 1e-12), (5e-13, 1e-12), (5e-10, 1e-9))
LOOKS, LOOKED_AT = 60, 500
_MOST_ERRORS = 400


def main() -> None:
    random = np.random.default_rng(1)
    print(f"coverage of the exact {CONFIDENCE:.0%} interval, {TRIALS:,} gates each, in %")
    print("true ratio" + "".join(f"{f'{mean:g} errors':>14}" for mean in EXPECTED))
    worst = 1.0
    for ratio in RATIOS:
        found = [coverage(ratio, mean, random) for mean in EXPECTED]
        worst = min(worst, *found)
        print(f"{ratio:>10.0e}" + "".join(f"{100 * each:>14.2f}" for each in found))
    print(f"  {worst:.2%} at worst, {CONFIDENCE:.0%} promised")

    covered = looked_at(1e-12, random)
    print(f"looked at {LOOKS} times, the any-time interval covered in {covered:.1%} of {LOOKED_AT}")

    print(f"sequential test, alpha = beta = {1 - CONFIDENCE:.0%}, {TRIALS:,} lines each")
    print("good : bad          rejects good   accepts bad   bits of the fixed test (good, bad)")
    for good, bad in PAIRS:
        test = SequentialTest(good, bad, 1 - CONFIDENCE, 1 - CONFIDENCE)
        fixed = test.fixed_bits()
        wrongly, bits_good = sequential(test, good, random)
        accepted, bits_bad = sequential(test, bad, random)
        print(
            f"{good:.0e} : {bad:.0e}  {100 * wrongly:>11.2f} % {100 * (1 - accepted):>11.2f} %"
            f"   {bits_good / fixed:.2f}, {bits_bad / fixed:.2f}: "
            f"{(bits_good + bits_bad) / 2 / fixed:.2f} in the mean"
        )


def coverage(ratio: float, errors: float, random: np.random.Generator) -> float:
    """The share of gates of so many expected errors whose interval holds the true ratio."""
    bits = max(round(errors / ratio), 1)
    counts = (
        random.binomial(bits, ratio, TRIALS) if bits < 2**62 else random.poisson(errors, TRIALS)
    )
    covered = 0
    for count, many in zip(*np.unique(counts, return_counts=True), strict=True):
        found = error_ratio(int(count), bits, CONFIDENCE)
        covered += int(many) * (found.lower <= ratio <= found.upper)
    return covered / TRIALS


def looked_at(ratio: float, random: np.random.Generator) -> float:
    """The share of lines whose interval for any time covered the true ratio at every look."""
    each = round(0.5 / ratio)
    covered = 0
    for counts in np.cumsum(random.poisson(0.5, (LOOKED_AT, LOOKS)), axis=1).tolist():
        intervals = (
            anytime_interval(count, each * (look + 1), ratio, CONFIDENCE)
            for look, count in enumerate(counts)
        )
        covered += all(lower <= ratio <= upper for lower, upper in intervals)
    return covered / LOOKED_AT


def sequential(
    test: SequentialTest, ratio: float, random: np.random.Generator
) -> tuple[float, float]:
    """Return the share of rejected lines of this ratio, and the mean number of bits taken.

    Between errors the likelihood falls evenly, so a line is accepted between two of them and
    rejected at one; where each of these is, `SequentialTest.decide` confirms.
    """
    at = np.cumsum(random.exponential(1 / ratio, (TRIALS, _MOST_ERRORS)), axis=1)
    errors = np.arange(_MOST_ERRORS + 1)
    accepted_at = np.array([_accepted(test, int(count)) for count in errors])
    rejected_to = np.array([_rejected(test, int(count)) for count in errors])
    accepts = at >= accepted_at[:-1]  # before the next error, with so many
    rejects = at <= rejected_to[1:]  # at this error
    first_accept = np.where(accepts.any(axis=1), accepts.argmax(axis=1), _MOST_ERRORS)
    first_reject = np.where(rejects.any(axis=1), rejects.argmax(axis=1), _MOST_ERRORS)
    rejected = first_reject < first_accept
    lines = np.arange(TRIALS)
    bits = np.where(
        rejected,
        at[lines, np.minimum(first_reject, _MOST_ERRORS - 1)],
        accepted_at[first_accept],
    )
    return float(rejected.mean()), float(bits.mean())


def _accepted(test: SequentialTest, errors: int) -> float:
    """The fewest bits with which a line of so many errors is accepted."""
    return _boundary(lambda bits: test.decide(errors, bits) == "accept", test, errors)


def _rejected(test: SequentialTest, errors: int) -> float:
    """The most bits with which a line of so many errors is rejected."""
    if errors == 0 or test.decide(errors, errors) != "reject":
        return 0.0
    return _boundary(lambda bits: test.decide(errors, bits) != "reject", test, errors) - 1


def _boundary(holds: Callable[[int], bool], test: SequentialTest, errors: int) -> float:
    low, high = errors, max(test.bits_without_errors(), 2)
    while not holds(high):
        low, high = high, 2 * high
    while high - low > max(low * 1e-9, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(high)


if __name__ == "__main__":
    main()
