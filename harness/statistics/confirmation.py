"""Confirmation of a departure by later nights, which separates a change from a single bad night.

A night that is off as a whole is off again when it is measured again the same night: no number of
its samples tells such a night from a change of the lab. Later nights do. One night that lies apart
has "departed, unconfirmed"; a level has "changed" once `CONFIRMING` nights in a row lie apart to
the same side from the nights before all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.drift import DriftRule, DriftVerdict, judge_drift
from lightrig.harness.statistics.levels import median
from lightrig.harness.statistics.nights import as_night

CONFIRMING = 3
"""Nights in a row, the first one included, that make a departure a change."""
LONGEST_RUN = 5
"""Most nights in a row that are compared with those before; a longer change is the new level."""

_AGREEMENT = 4 / 3
"""Exponent of what further nights add; 3 is independence, and 1 that they add nothing.

With 2, nights that are autocorrelated by 0.6 gave false changes on 25 % of pages.
"""


def p_of_run(each: Sequence[float]) -> float:
    """Return the probability of nights in a row that all depart to one side, if nothing changed.

    each: probability of every night's own miss. Of independent nights it would be their product.
    Nights share the estimate of their scatter, and may follow one another, so the greatest one
    counts, from `CONFIRMING` nights on raised to `_AGREEMENT`. `benchmarks.alarms` checks the rate
    for nights with heavy tails, for nights that are off one by one and for autocorrelated ones.
    """
    worst = max(each)
    return worst**_AGREEMENT if len(each) >= CONFIRMING else worst


def judge_nights(
    baseline: Sequence[npt.ArrayLike],
    tonight: npt.ArrayLike,
    rule: DriftRule,
    *,
    corrected_error: float | None = None,
) -> DriftVerdict:
    """Judge tonight by `rule`, as `judge_drift` does, and confirm what departs over nights.

    The outcome "changed" is given only to `CONFIRMING` to `LONGEST_RUN` nights in a row, tonight
    the last of them, each of which departs to the same side from the `rule.nights` nights before
    the first of them. Arguments, errors and other outcomes are those of `judge_drift`.
    """
    alone = judge_drift(baseline, tonight, rule, corrected_error=corrected_error)
    if alone.p is None:
        return alone
    error = rule.error if corrected_error is None else min(rule.error, corrected_error)
    found = [alone, *_runs(baseline, tonight, rule)]
    departed, changed = (
        min(
            (one for one in found if (one.run >= CONFIRMING) is confirmed and _claims(one, rule)),
            key=lambda one: one.p or 0.0,
            default=None,
        )
        for confirmed in (False, True)
    )
    if changed is not None and (departed is None or _p(changed) <= max(error, _p(departed))):
        return _with_power(changed, alone)
    return alone if departed is None else _with_power(departed, alone)


def _with_power(found: DriftVerdict, alone: DriftVerdict) -> DriftVerdict:
    return replace(found, detectable=alone.detectable, sees=alone.sees)


def _claims(verdict: DriftVerdict, rule: DriftRule) -> bool:
    return verdict.outcome in {"departed, unconfirmed", "changed"} and _p(verdict) <= rule.error


def _p(verdict: DriftVerdict) -> float:
    return 1.0 if verdict.p is None else verdict.p


def _runs(
    baseline: Sequence[npt.ArrayLike], tonight: npt.ArrayLike, rule: DriftRule
) -> Iterator[DriftVerdict]:
    """Yield a verdict on each run of two nights and more that departs to one side."""
    enough = [night for night in baseline if np.shape(night)[-1] >= rule.minimum]
    for length in range(2, LONGEST_RUN + 1):
        reference = enough[: 1 - length]
        if len(reference) < rule.nights:
            return
        if not _on_one_side(reference[-rule.nights :], [*enough[1 - length :], tonight]):
            continue
        last = judge_drift(reference, tonight, rule)
        each = [_p(last)]
        for night in reversed(enough[1 - length :]):
            # A night may confirm another with less certainty than it would depart with alone.
            if p_of_run([*each, *[0.0] * (length - len(each))]) > rule.error:
                break
            judged = judge_drift(reference, night, rule)
            each.append(_p(judged) if _is_up(judged) is _is_up(last) else 1.0)
        p = p_of_run(each)
        if len(each) == length and p <= rule.error:
            yield _of_run(last, length, p)


def _on_one_side(before: Sequence[npt.ArrayLike], run: Sequence[npt.ArrayLike]) -> bool:
    """Whether the levels of all nights of a run are on one side of the median of those before."""
    usual = float(np.median([_level(night) for night in before]))
    return len({_level(night) > usual for night in run}) == 1


def _level(night: npt.ArrayLike) -> float:
    return median(as_night("night", night).middle)


def _is_up(verdict: DriftVerdict) -> bool:
    return verdict.effect is not None and verdict.effect > (1.0 if verdict.ratio else 0.0)


def _of_run(last: DriftVerdict, length: int, p: float) -> DriftVerdict:
    if length < CONFIRMING:
        reason = f"{last.reason} So did the night before; a third in a row would confirm it."
        return replace(last, outcome="departed, unconfirmed", p=p, run=length, reason=reason)
    reason = (
        f"{last.reason} Each of the last {length} nights departs to this side (p = {p:.2g} of all)."
    )
    return replace(last, outcome="changed", p=p, run=length, reason=reason)
