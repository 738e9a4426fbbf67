"""Many verdicts at once: of a hundred quantities that did not change, one in a hundred seems to.

A page that tries them all has to ask more of each.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import scipy

from lightrig.harness.statistics.drift import DriftOutcome, DriftVerdict
from lightrig.testbeds import format_share
from lightrig.testbeds.baselines import Correction

Key = TypeVar("Key", bound=Hashable)

_CLAIMS = ("changed", "departed, unconfirmed")


def holm(p: Sequence[float], error: float) -> list[bool]:
    """Return which p values are significant at a family-wise error rate (Holm).

    Where any number of them are of nothing, the probability that any of those is called
    significant is at most `error`, however they depend on each other (Holm 1979).
    """
    order = np.argsort(p, kind="stable")
    left = np.arange(len(p), 0, -1)
    retained = np.logical_and.accumulate(np.asarray(p)[order] * left <= error)
    significant = np.zeros(order.size, bool)
    significant[order] = retained
    return significant.tolist()


def benjamini_hochberg(p: Sequence[float], error: float) -> list[bool]:
    """Return which p values are significant at a false discovery rate (Benjamini-Hochberg).

    The share of those of nothing among all called significant is expected to be at most
    `error`, for p values that are independent or rise together (Benjamini and Hochberg 1995;
    Benjamini and Yekutieli 2001).
    """
    return (scipy.stats.false_discovery_control(p) <= error).tolist() if len(p) else []


def least_error(count: int, correction: Correction, error: float) -> float:
    """The p value that is called significant among `count` whatever the others are.

    It is the first step of both corrections, so a change that is found at this error rate by
    itself is found after the correction at least as often.
    """
    return 1.0 if correction == "none" else error / max(count, 1)


def correct(
    verdicts: Mapping[Key, DriftVerdict], correction: Correction, error: float
) -> dict[Key, DriftVerdict]:
    """The verdicts of one night, judged together: what only seemed to change is unchanged.

    A quantity stays "changed" or "departed, unconfirmed" if its own rule says so and the
    correction does too; else it is unchanged, or, where the change that its rule states might
    have been missed, "cannot tell". Guards and missing data are no matter of chance and stay.
    `correction` and `error` are those of `testbeds.baselines.Baselines`.
    """
    judged = [
        key
        for key, verdict in verdicts.items()
        if verdict.outcome in (*_CLAIMS, "unchanged", "cannot tell")
    ]
    p = [verdicts[key].p or 0.0 for key in judged]
    methods = {"holm": holm, "benjamini-hochberg": benjamini_hochberg}
    method = methods.get(correction)
    significant = method(p, error) if method else [True] * len(p)
    corrected = dict(verdicts)
    for key, retained in zip(judged, significant, strict=True):
        verdict = verdicts[key]
        if verdict.outcome in _CLAIMS and not retained:
            reason = (
                f"{verdict.reason} Among {len(judged):,} quantities that is no surprise"
                f" ({correction}, {format_share(error)})."
            )
            outcome: DriftOutcome = "cannot tell" if verdict.sees is False else "unchanged"
            corrected[key] = replace(verdict, outcome=outcome, reason=reason)
    return corrected
