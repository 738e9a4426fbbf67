"""Estimates of one quantity of one test: median, p99, and the verdict on its limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lightrig.harness.quantities.declarations import LOOK, PORTS_IN_SERVICE
from lightrig.harness.report.frames import Numbers, TestbedFrame, TestFrame
from lightrig.harness.report.units import Value
from lightrig.harness.statistics.clusters import clustered_samples
from lightrig.harness.statistics.independence import effective_samples
from lightrig.harness.statistics.limits import judge
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile, samples_needed
from lightrig.harness.statistics.sample_plans import Look, SamplePlan
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.testbeds import Limit
from lightrig.testbeds.plans import circuit_in

CONFIDENCE = 0.95
"""Confidence of every interval and bound in the report."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One quantity of one test, in its unit; see `TestFrame.samples`.

    n: samples, of `events` that the test recorded.
    width: mean of latest - earliest.
    median: two-sided interval; p99: one-sided upper bound.
    limit, verdict: where the testbed states a limit on the quantity.
    answer: how the quantity's section states it, where no quantile does: zero errors in some bits
        have no median.
    """

    test: TestFrame
    quantity: str
    unit: str
    n: int
    events: int
    width: float
    median: Quantile | NotEnough
    p99: Quantile | NotEnough
    limit: Limit | None
    verdict: Verdict | None
    answer: Value | None = None


def estimate(test: TestFrame, quantity: str, limit: Limit | None = None) -> Estimate | None:
    """Estimate a quantity of `test`, one sample an event; None if it recorded none."""
    series = test.series.get(quantity)
    if series is None:
        return None
    low, high, value = test.valued_samples(quantity)
    if limit is not None and limit.unit != series.unit:
        limit = None
    half, most = (
        independent_samples(
            value, q, of_events=bool((series.event >= 0).all()), subjects=series.subject
        )
        for q in (0.5, 0.99)
    )
    return Estimate(
        test=test,
        quantity=quantity,
        unit=series.unit,
        n=low.size,
        events=max(test.events, low.size),
        width=float(np.mean(high - low)),
        median=quantile(low, high, 0.5, CONFIDENCE, points=value, effective=half),
        p99=quantile(low, high, 0.99, CONFIDENCE, "upper", value, most),
        limit=limit,
        verdict=None if limit is None else _judge(limit, test, quantity),
    )


def independent_samples(
    values: Numbers, q: float, *, of_events: bool, subjects: Sequence[str]
) -> int | None:
    """Return as how many independent samples events count, or circuits; None for other subjects.

    of_events: whether each value is that of an event, and they stand in their order. subjects:
    otherwise, what each value is of.
    """
    if of_events:
        return effective_samples(values, q)
    circuits = [one for subject in subjects if (one := circuit_in(subject)) is not None]
    ports = [(f"{name} {one.ingress}", f"{name} {one.egress}") for name, one in circuits]
    if len(ports) < values.size:
        return None
    # An interval from the least sample to the greatest is the widest that there is.
    least = samples_needed(q, CONFIDENCE, "two" if q == 0.5 else "upper")
    ingress, egress = zip(*ports, strict=True)
    return clustered_samples(values, ingress, egress, q, least=least)


def estimates(frame: TestbedFrame, quantity: str, limit: Limit | None) -> Iterator[Estimate]:
    """Estimate `quantity` for each test of a testbed that recorded it."""
    for test in frame.tests:
        found = estimate(test, quantity, limit)
        if found is not None:
            yield found


def estimates_of(
    frame: TestbedFrame, names: Iterable[str], limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """Estimate several quantities, by name; those that were not measured are left out."""
    found = {name: list(estimates(frame, name, limits.get(name))) for name in names}
    return {name: each for name, each in found.items() if each}


def _judge(limit: Limit, test: TestFrame, quantity: str) -> Verdict:
    # The side of the limit decides which subject of an event is the worst one.
    low, high = test.samples(quantity, limit.side)
    return replace(judge(limit, low, high, _plan(test, quantity)), ports=ports_of(test))


def ports_of(test: TestFrame) -> str:
    """Return over how many ports a test was, as "6 of 8 ports"; empty where it was over all."""
    if (found := test.series.get(PORTS_IN_SERVICE)) is None:
        return ""
    return f"{found.value[-1]:.0f} of {found.conditions['of'][-1]:.0f} ports"


def _plan(test: TestFrame, quantity: str) -> SamplePlan | None:
    """Return the plan by which the test took its samples; None where their number was fixed."""
    if (looks := test.series.get(LOOK)) is None:
        return None
    decisions = looks.conditions["passes"], looks.conditions["fails"]
    found = {
        Look(int(n), int(passes), int(fails))
        for name, n, passes, fails in zip(looks.subject, looks.value, *decisions, strict=True)
        if name == quantity
    }
    return tuple(sorted(found)) or None
