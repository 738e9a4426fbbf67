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
