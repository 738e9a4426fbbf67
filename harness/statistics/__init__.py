"""Quantiles, verdicts, drift and closure of interval-censored samples, with their confidence.

Plain values in, plain values out. A sample is an interval (`earliest`, `latest`) that holds
the true value: an observer that polls says "between these two samples". All numbers of one
call share one unit, which the caller chooses.

Intervals and verdicts within a night assume independent samples: one per reconfiguration
event. The circuits of one event move together and are not further samples; take one value for
each event, such as the slowest circuit. Between nights, a night is the unit.

Modules write `import scipy` and `scipy.special.f`: SciPy then loads `scipy.special` at the first
use, and a run that needs none of it does not wait for it.
"""

from lightrig.harness.statistics.changes import Change, Gap, Trend, find_changes, gaps, trend
from lightrig.harness.statistics.closure import (
    Closure,
    ClosureVerdict,
    closure,
    judge_bounds,
    judge_deviations,
)
from lightrig.harness.statistics.confirmation import judge_nights
from lightrig.harness.statistics.corrections import benjamini_hochberg, correct, holm
from lightrig.harness.statistics.drift import DriftRule, DriftVerdict, judge_drift
from lightrig.harness.statistics.limits import judge
from lightrig.harness.statistics.quantiles import (
    NotEnough,
    Quantile,
    Sides,
    quantile,
    samples_needed,
)
from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.verdicts import Outcome, Verdict, judge_maximum, judge_quantile

__all__ = [
    "Change",
    "Closure",
    "ClosureVerdict",
    "DriftRule",
    "DriftVerdict",
    "Gap",
    "NotEnough",
    "Outcome",
    "Quantile",
    "SampleError",
    "Sides",
    "Trend",
    "Verdict",
    "benjamini_hochberg",
    "closure",
    "correct",
    "find_changes",
    "gaps",
    "holm",
    "judge",
    "judge_bounds",
    "judge_deviations",
    "judge_drift",
    "judge_maximum",
    "judge_nights",
    "judge_quantile",
    "quantile",
    "samples_needed",
    "trend",
]
