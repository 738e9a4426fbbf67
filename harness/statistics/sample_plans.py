"""Sample plans of two stages: few samples where none is late, more where some are.

A plan states beforehand at which numbers of samples they are judged, and what decides there;
nothing is judged in between. A p95 at 95 % confidence passes with 59 samples of which none exceeds
the limit, or with 181 of which four do: the first is often undecided, the second slow. The plan
takes 70, and goes on to 198 where any exceeds the limit.

The number beyond the limit is binomial; that at the second look is that of the first plus that of
the samples in between. At the limit, a pass at either look has a probability of at most the error
in total, and so has a fail. Both are bounded for the union of the looks: a sample whose interval
holds the limit may count at one look and not at the other, and a second stage may be left out for
any reason, such as its time, without a further error.

Where a limit declares that events follow each other, the numbers are those of such samples
(`serial_counts`): a median takes 11 at a correlation of 0.6, else 24.

Source: H. F. Dodge and H. G. Romig, Sampling Inspection Tables (2nd ed., 1959), double sampling.
"""

from functools import cache
from typing import NamedTuple

import scipy

from lightrig.harness.statistics.binomial import first_true_from
from lightrig.harness.statistics.serial_counts import (
    at_least,
    at_most,
    first_sample,
    further_samples,
)

MOST_PASSING = 4
"""Most samples beyond the limit with which the second look passes.

With four, a population with a tenth of the allowed share beyond the limit passes in 99.7 %.
"""

FIRST_PART = 0.56
"""Part of the error that the first look takes; 70 samples for a p95 at 95 % confidence."""


class Look(NamedTuple):
    """One look at the samples so far.

    samples: their number. passes: most of them beyond the limit with which it passes. fails: least
    number with which it fails. Between the two it does not decide.
    """

    samples: int
    passes: int
    fails: int


SamplePlan = tuple[Look, ...]
"""Looks in their order; each counts all samples from the first one on."""


@cache
def two_stage_plan(allowed: float, error: float, correlation: float = 0.0) -> SamplePlan:
    """Plan two looks at whether at most the share `allowed` of a population is beyond a limit.

    error: greatest total probability of a wrong pass, and of a wrong fail. correlation: of
    successive samples.
    """
    part = FIRST_PART * error
    first = first_true_from(1, lambda n: at_most(0, n, allowed, correlation) <= part)
    first_fails = first_true_from(1, lambda k: at_least(k, first, allowed, correlation) <= part)

    def wrong_pass(second: int) -> float:
        looks = Look(first, 0, first_fails), Look(second, MOST_PASSING, second)
        return pass_probability(looks, allowed, correlation)

    second = first_true_from(first + MOST_PASSING, lambda n: wrong_pass(n) <= error)
    at_first = Look(first, 0, first_fails)

    def wrong_fail(fails: int) -> float:
        looks = at_first, Look(second, MOST_PASSING, fails)
        return fail_probability(looks, allowed, correlation)

    second_fails = first_true_from(first_fails, lambda k: wrong_fail(k) <= error)
    return at_first, Look(second, MOST_PASSING, second_fails)


def pass_probability(plan: SamplePlan, beyond: float, correlation: float = 0.0) -> float:
    """Return the probability that either look of a plan passes; `beyond` is the true share."""
    first, second = plan
    if correlation:
        masses = first_sample(beyond, correlation, second.passes)
        masses = further_samples(masses, first.samples - 1, beyond, correlation)
        passed = float(masses[: first.passes + 1].sum())
        masses[: first.passes + 1] = 0
        more = second.samples - first.samples
        return passed + float(further_samples(masses, more, beyond, correlation).sum())
    return at_most(first.passes, first.samples, beyond) + sum(
        _exactly(k, first.samples, beyond)
        * at_most(second.passes - k, second.samples - first.samples, beyond)
        for k in range(first.passes + 1, second.passes + 1)
    )


def fail_probability(plan: SamplePlan, beyond: float, correlation: float = 0.0) -> float:
    """Return the probability that either look of a plan fails; `beyond` is the true share."""
    first, second = plan
    if correlation:
        masses = first_sample(beyond, correlation, second.fails - 1)
        masses = further_samples(masses, first.samples - 1, beyond, correlation)
        masses[first.fails :] = 0
        more = second.samples - first.samples
        return 1 - float(further_samples(masses, more, beyond, correlation).sum())
    return at_least(first.fails, first.samples, beyond) + sum(
        _exactly(k, first.samples, beyond)
        * at_least(second.fails - k, second.samples - first.samples, beyond)
        for k in range(first.fails)
    )


def _exactly(k: int, n: int, p: float) -> float:
    return float(scipy.special.binom(n, k)) * p**k * (1 - p) ** (n - k)
