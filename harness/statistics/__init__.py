"""Quantiles, verdicts and closure of interval-censored samples, with their confidence.

Plain values in, plain values out. A sample is an interval (`earliest`, `latest`) that holds
the true value: an observer that polls says "between these two samples". All numbers of one
call share one unit, which the caller chooses.

Every interval here assumes independent samples: one per reconfiguration event. The circuits
of one event move together and are not further samples; take one value for each event, such
as the slowest circuit.
"""

from harness.statistics.closure import Closure, closure
from harness.statistics.limits import judge
from harness.statistics.quantiles import NotEnough, Quantile, Sides, quantile, samples_needed
from harness.statistics.samples import SampleError
from harness.statistics.verdicts import Outcome, Verdict, judge_maximum, judge_quantile

__all__ = [
    "Closure",
    "NotEnough",
    "Outcome",
    "Quantile",
    "SampleError",
    "Sides",
    "Verdict",
    "closure",
    "judge",
    "judge_maximum",
    "judge_quantile",
    "quantile",
    "samples_needed",
]
