"""Limits of a testbed, held against samples."""

import dataclasses

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.binomial import first_true_from
from lightrig.harness.statistics.independence import effective_samples, follow_more_closely
from lightrig.harness.statistics.sample_plans import SamplePlan, two_stage_plan
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
    are too few to tell. A limit that states their correlation is judged by that, unless they
    follow each other more closely. Raises `SampleError`.
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
    claim, rules = (earliest, latest, value, share), (limit.confidence, limit.side, limit.decision)
    if plan is not None:
        verdict = judge_plan(*claim, plan, *rules)
    else:
        verdict = judge_quantile(*claim, *rules, correlation=limit.correlation)
    if verdict.outcome not in {"pass", "fail"}:
        return verdict
    # A plan decides by its first samples, whatever those of a later stage are.
    low, high = (np.asarray(ends)[: verdict.n] for ends in (earliest, latest))
    if limit.correlation and not follow_more_closely(low, limit.correlation):
        stated = f" Events are taken to follow each other by {limit.correlation:g}, as it states."
        return dataclasses.replace(verdict, reason=f"{verdict.reason}{stated}")
    effective = effective_samples(low, share)
    if effective == verdict.n:
        few = " It assumes independent events; too few to tell." if effective < TELLING else ""
        return dataclasses.replace(verdict, reason=f"{verdict.reason}{few}")
    dependent = judge_quantile(low, high, value, share, *rules, effective)
    return verdict if dependent.outcome == verdict.outcome else dependent
