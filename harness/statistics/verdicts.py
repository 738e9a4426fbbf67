"""Verdicts on limits: pass, fail, or not enough data and how much more it takes.

A sample is an interval, and the decision rule says what one means that holds the limit
(`DecisionRule`; ISO 14253-1, ILAC-G8). By the default, guarded acceptance:

A sample exceeds an upper limit surely when its `earliest` is above it, possibly when its
`latest` is; it falls below a lower limit surely when its `latest` does, possibly when its
`earliest` does. A pass must hold even if every possible one was one, a fail even if only the
sure ones were.

Two things break the stated error rate, and both are the caller's to prevent. Samples that are
not independent: the circuits of one reconfiguration event move together, so one event is one
sample. And looking again after each new sample until the verdict pleases: fix the number of
samples beforehand (`needed` says it), then judge once.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.binomial import first_true_from
from lightrig.harness.statistics.sample_plans import SamplePlan
from lightrig.harness.statistics.samples import (
    SampleError,
    as_intervals,
    check_confidence,
    check_share,
)
from lightrig.harness.statistics.serial_counts import at_least, at_most
from lightrig.testbeds.limits import DecisionRule

Outcome: TypeAlias = Literal["pass", "marginal", "fail", "not enough data"]
Side: TypeAlias = Literal["upper", "lower"]

_BEYOND: dict[Side, str] = {"upper": "exceed", "lower": "fall below"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of samples on a limit.

    outcome: "pass", "marginal" (a pass, but not at the stricter level that was to warn), "fail"
        or "not enough data".
    n: number of samples judged.
    exceeding: samples that are surely beyond the limit: above an upper, below a lower one.
    possibly_exceeding: those, and the samples whose interval holds the limit.
    needed: further samples within the limit that would make it pass; None when decided.
    reason: one sentence for people.
    subject: whose samples decided it; empty where all are judged together.
    ports: over how many ports, such as "6 of 8 ports", where it is not over all; else empty.
    """

    outcome: Outcome
    n: int
    exceeding: int
    possibly_exceeding: int
    needed: int | None
    reason: str
    subject: str = ""
    ports: str = ""

    @property
    def shown(self) -> str:
        """The outcome for people: a pass is never one of all ports where some took no part."""
        return f"{self.outcome}, {self.ports}" if self.ports else self.outcome


def judge_quantile(
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    limit_value: float,
    q: float,
    confidence: float = 0.95,
    side: Side = "upper",
    decision: DecisionRule = "guarded",
    effective: int | None = None,
    correlation: float = 0.0,
) -> Verdict:
    """Judge the claim that at least the share `q` of the population keeps `limit_value`.

    It is kept by what is at most the limit, or, where `side` is "lower", at least. The number
    of exceedances is binomial. It passes where the one-sided Clopper-Pearson upper
    bound of the exceeding share, at `confidence`, is at most 1 - q; it fails where the lower
    bound is above 1 - q. A claim that is false passes, and one that is true fails, each with
    a probability of at most 1 - `confidence`, at a number of samples fixed beforehand.

    `limit_value` has the unit of the samples, which must be independent: one per event, not
    one per circuit of an event. effective: as how many independent ones they count, where events
    depend on each other (`independence.effective_samples`); the shares of exceedances stay.
    correlation: of successive events, where it is declared (`serial_counts`).
    Raises `SampleError` for samples or shares that make no sense.
    """
    check_share("q", q)
    check_confidence(confidence)
    n, sure, possible = _count(earliest, latest, limit_value, side, decision)
    allowed, error = 1 - q, 1 - confidence
    count = n if effective is None else min(effective, n)
    share = count / n if n else 1.0

    def passes(samples: int) -> bool:
        return at_most(math.ceil(possible * share), samples, allowed, correlation) <= error

    counted = _counted(n, sure, possible, side)
    if count < n:
        counted += f" (events depend on each other, and count as {count:,} independent ones)"
    claim = f"{_percent(q)} keep the limit"
    sureness = f"with {_percent(confidence)} confidence"
    if passes(count):
        reason = f"{counted}, so at least {claim} {sureness}."
        return Verdict("pass", n, sure, possible, None, reason)
    if at_least(math.floor(sure * share), count, allowed, correlation) < error:
        reason = f"{counted}, so fewer than {claim} {sureness}."
        return Verdict("fail", n, sure, possible, None, reason)
    needed = math.ceil((first_true_from(count + 1, passes) - count) / share)
    reason = (
        f"{counted}, which does not decide whether {claim} {sureness}:"
        f" {needed:,} more needed if all of them keep it."
    )
    return Verdict("not enough data", n, sure, possible, needed, reason)


def judge_plan(
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    limit_value: float,
    q: float,
    plan: SamplePlan,
    confidence: float = 0.95,
    side: Side = "upper",
    decision: DecisionRule = "guarded",
) -> Verdict:
    """Judge the claim of `judge_quantile` by the looks of `plan`, which was fixed beforehand.

    Samples are in the order in which they were taken. The first look that decides stands, whatever
    follows. Before a look nothing passes; so many beyond the limit that the look must fail fail at
    once. `needed` is how many are missing at the next look, and None where there is none.
    """
    low, high = as_intervals(earliest, latest)
    claim = f"{_percent(q)} keep the limit with {_percent(confidence)} confidence"
    stages = ", else ".join(f"at most {look.passes} of {look.samples}" for look in plan)
    for look in plan:
        n, sure, possible = _count(
            low[: look.samples], high[: look.samples], limit_value, side, decision
        )
        counted = _counted(n, sure, possible, side)
        if sure >= look.fails:
            reason = f"{counted}, so fewer than {claim} (plan: {stages})."
            return Verdict("fail", n, sure, possible, None, reason)
        if n == look.samples and possible <= look.passes:
            reason = f"{counted}, so at least {claim} (plan: {stages})."
            return Verdict("pass", n, sure, possible, None, reason)
        if low.size <= look.samples:
            break
    ahead = next((look for look in plan if look.samples > low.size), None)
    needed = None if ahead is None else ahead.samples - low.size
    more = f": {needed:,} more needed" if needed is not None else ""
    reason = f"{counted}, which does not decide whether {claim} (plan: {stages}){more}."
    return Verdict("not enough data", n, sure, possible, needed, reason)


def judge_maximum(
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    limit_value: float,
    side: Side = "upper",
    decision: DecisionRule = "guarded",
) -> Verdict:
    """Judge the claim that none of these samples is beyond `limit_value`.

    Above it, or, where `side` is "lower", below. It speaks of the samples taken, not of the
    population, hence has no confidence: one that is surely beyond fails, none passes. A sample
    whose interval holds the limit decides nothing, and more samples do not help: a smaller
    uncertainty would. No sample at all is not enough data. Raises `SampleError` for samples
    that make no sense.
    """
    n, sure, possible = _count(earliest, latest, limit_value, side, decision)
    counted = _counted(n, sure, possible, side)
    if n == 0:
        return Verdict("not enough data", 0, 0, 0, 1, f"{counted}: at least 1 needed.")
    if sure:
        return Verdict("fail", n, sure, possible, None, f"{counted}, and none may.")
    if possible:
        reason = (
            f"{counted}: their intervals hold the limit, which neither shows that it is kept nor "
            "that it is not (guarded acceptance)."
        )
        return Verdict("not enough data", n, sure, possible, None, reason)
    return Verdict("pass", n, sure, possible, None, f"{counted}.")


def _count(
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    limit_value: float,
    side: Side,
    decision: DecisionRule,
) -> tuple[int, int, int]:
    low, high = as_intervals(earliest, latest)
    if np.isnan(limit_value):
        raise SampleError("limit: found NaN, expected a number")
    if side == "upper":
        surely, possibly = low > limit_value, high > limit_value
    else:
        surely, possibly = high < limit_value, low < limit_value
    if decision == "simple":
        # An event that was not seen to end has no middle, and is beyond an upper limit.
        middle = np.where(np.isfinite(high), low / 2 + high / 2, high)
        surely = possibly = middle > limit_value if side == "upper" else middle < limit_value
    elif decision == "lenient":
        possibly = surely
    return low.size, int(np.count_nonzero(surely)), int(np.count_nonzero(possibly))


def _counted(n: int, sure: int, possible: int, side: Side) -> str:
    if n == 0:
        return "Nothing was measured"
    doubt = f" and {possible - sure:,} more may" if possible > sure else ""
    return f"{sure:,} of {n:,} samples {_BEYOND[side]} the limit{doubt}"


def _percent(share: float) -> str:
    return f"{100 * share:.10g} %"
