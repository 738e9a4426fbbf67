"""Limits of a testbed, held against samples."""

import dataclasses

import numpy.typing as npt

from lightrig.harness.statistics.binomial import at_most, first_true_from
from lightrig.harness.statistics.verdicts import Verdict, judge_maximum, judge_quantile
from lightrig.testbeds import Limit


def judge(limit: Limit, earliest: npt.ArrayLike, latest: npt.ArrayLike) -> Verdict:
    """The verdict on `limit` from one interval an event, in the limit's unit.

    What passes is judged again at the level of `limit.warn`, if there is one, with the same
    confidence: unless it passes there too, it is marginal. Raises `SampleError`.
    """
    verdict = _judge(limit, limit.value, earliest, latest)
    if limit.warn is None or verdict.outcome != "pass":
        return verdict
    warning = _judge(limit, limit.warn, earliest, latest)
    if warning.outcome == "pass":
        return verdict
    seen = warning.reason.replace("the limit", "the warning level")
    reason = f"{verdict.reason} But {seen[0].lower()}{seen[1:]}"
    return dataclasses.replace(verdict, outcome="marginal", reason=reason)


def samples_needed(limit: Limit) -> int | None:
    """Least number of samples that can pass `limit`; None where each sample is judged by itself.

    All of them must keep the limit: a p99 at 95 % confidence needs 299, a p95 needs 59.
    """
    share = limit.quantile if limit.side == "upper" else 1 - limit.quantile
    if limit.confidence is None or share >= 1:
        return None
    allowed, error = 1 - share, 1 - limit.confidence
    return first_true_from(1, lambda samples: at_most(0, samples, allowed) <= error)


def _judge(limit: Limit, value: float, earliest: npt.ArrayLike, latest: npt.ArrayLike) -> Verdict:
    share = limit.quantile if limit.side == "upper" else 1 - limit.quantile
    if limit.confidence is None or share >= 1:
        return judge_maximum(earliest, latest, value, limit.side, limit.decision)
    return judge_quantile(
        *(earliest, latest, value, share), limit.confidence, limit.side, limit.decision
    )
