"""Limits of a testbed, held against samples."""

import dataclasses

import numpy.typing as npt

from lightrig.harness.statistics.binomial import first_true_from
from lightrig.harness.statistics.independence import effective_samples, follow_more_closely
from lightrig.harness.statistics.sample_plans import SamplePlan, two_stage_plan
from lightrig.harness.statistics.samples import Samples, as_intervals
from lightrig.harness.statistics.serial_counts import at_most
from lightrig.harness.statistics.verdicts import (
    Verdict,
    judge_maximum,
    judge_plan,
    judge_quantile,
)
from lightrig.testbeds import Limit

MOST_SAMPLES = 300
"""Most samples of a plan's second look; a p99 would take 1,002, and is judged once, after 299."""

TELLING = 70
"""Samples from which on their dependence is found where it would change a verdict."""


def judge(
    limit: Limit,
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    plan: SamplePlan | None = None,
) -> Verdict:
    """The verdict on `limit` from one interval an event, in the limit's unit.

    plan: that the samples, in their order, were taken by; without one their number was fixed.

    What passes is judged again at the level of `limit.warn`, if there is one, with the same
    confidence: unless it passes there too, it is marginal. Samples are in the order of their
    events; where these depend on each other, a pass or a fail has to hold also for as few
    independent ones as they count (`independence.effective_samples`); the reason says where they
    are too few to tell. A plan's first look that is not decided for this reason alone is followed
    by one after so many more as are missing, at most those of its second look. A limit that states
    their correlation is judged by that, unless they follow each other more closely. Raises
    `SampleError`.
    """
    verdict = _judge(limit, limit.value, earliest, latest, plan)
    if limit.warn is None or verdict.outcome != "pass":
        return verdict
    warning = _judge(limit, limit.warn, earliest, latest, plan)
    if warning.outcome == "pass":
        return verdict
    seen = warning.reason.replace("the limit", "the warning level")
    reason = f"{verdict.reason} But {seen[0].lower()}{seen[1:]}"
    return dataclasses.replace(verdict, outcome="marginal", reason=reason)


def samples_needed(limit: Limit) -> int | None:
    """Least number of samples that can pass `limit`; None where each sample is judged by itself.

    All of them must keep the limit: a p99 at 95 % confidence needs 299, a p95 needs 59.
    """
    shares = _shares(limit)
    if shares is None:
        return None
    allowed, error = shares
    return first_true_from(1, lambda n: at_most(0, n, allowed, limit.correlation) <= error)


def sample_plan(limit: Limit) -> SamplePlan | None:
    """The plan of two stages for `limit`; None where it would take more than `MOST_SAMPLES`.

    A p95 at 95 % confidence passes with 70 samples of which none exceeds the limit, else with 198
    of which at most four do. None as well where each sample is judged by itself.
    """
    shares = _shares(limit)
    if shares is None:
        return None
    plan = two_stage_plan(*shares, limit.correlation)
    return plan if plan[-1].samples <= MOST_SAMPLES else None


def _shares(limit: Limit) -> tuple[float, float] | None:
    """Return the share that may be beyond `limit`, and the probability of a wrong verdict."""
    share = _share_within(limit)
    return None if limit.confidence is None or share >= 1 else (1 - share, 1 - limit.confidence)


def _share_within(limit: Limit) -> float:
    return limit.quantile if limit.side == "upper" else 1 - limit.quantile


def _judge(
    limit: Limit,
    value: float,
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    plan: SamplePlan | None,
) -> Verdict:
    share = _share_within(limit)
    if limit.confidence is None or share >= 1:
        return judge_maximum(earliest, latest, value, limit.side, limit.decision)
    low, high = as_intervals(earliest, latest)
    rules = (limit.confidence, limit.side, limit.decision)
    if plan is None:
        verdict = judge_quantile(low, high, value, share, *rules, correlation=limit.correlation)
        return _of_dependent(limit, verdict, low, high, value)
    verdict = judge_plan(low, high, value, share, plan, *rules)
    found = _of_dependent(limit, verdict, low, high, value)
    if found.outcome == verdict.outcome:
        return found
    last = plan[-1].samples
    # None of the first ones is beyond the limit, but they count as too few: some more may do.
    while found.needed and not found.possibly_exceeding and (n := found.n + found.needed) < last:
        if low.size < n:
            return dataclasses.replace(found, needed=n - low.size)
        verdict = judge_quantile(low[:n], high[:n], value, share, *rules)
        found = _of_dependent(limit, verdict, low, high, value)
        if found.outcome == verdict.outcome:
            return found
    if found.n == last:
        return found
    if low.size < last:
        return dataclasses.replace(found, needed=last - low.size)
    verdict = judge_plan(low, high, value, share, plan[-1:], *rules)
    return _of_dependent(limit, verdict, low, high, value)


def _of_dependent(
    limit: Limit, verdict: Verdict, low: Samples, high: Samples, value: float
) -> Verdict:
    """Return a verdict that holds also for as few independent samples as the first ones count."""
    if limit.confidence is None or verdict.outcome not in {"pass", "fail"}:
        return verdict
    share = _share_within(limit)
    # What was decided by the first samples stands, whatever those of a later stage are.
    low, high = low[: verdict.n], high[: verdict.n]
    if limit.correlation and not follow_more_closely(low, limit.correlation):
        stated = f" Events are taken to follow each other by {limit.correlation:g}, as it states."
        return dataclasses.replace(verdict, reason=f"{verdict.reason}{stated}")
    effective = effective_samples(low, share)
    if effective == verdict.n:
        few = " It assumes independent events; too few to tell." if effective < TELLING else ""
        return dataclasses.replace(verdict, reason=f"{verdict.reason}{few}")
    rules = (limit.confidence, limit.side, limit.decision)
    dependent = judge_quantile(low, high, value, share, *rules, effective)
    return verdict if dependent.outcome == verdict.outcome else dependent
