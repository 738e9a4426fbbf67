"""What the samples of one test say about one quantity: median, p99 and verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.report.frames import TestbedFrame, TestFrame
from harness.statistics import (
    NotEnough,
    Quantile,
    Verdict,
    judge,
    quantile,
)
from testbeds import Limit

CONFIDENCE = 0.95
"""Of every interval and bound in the report."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One quantity, in ns, of one test; one sample an event.

    n: events with a sample, of `events` that the test recorded.
    width: mean of latest - earliest, in ns.
    median: two-sided interval; p99: one-sided upper bound.
    limit, verdict: where the testbed states a limit on the quantity.
    """

    test: TestFrame
    quantity: str
    n: int
    events: int
    width: float
    median: Quantile | NotEnough
    p99: Quantile | NotEnough
    limit: Limit | None
    verdict: Verdict | None


def estimate(test: TestFrame, quantity: str, limit: Limit | None = None) -> Estimate | None:
    """Estimate a time of `test`, by the last subject of each event; None if it recorded none."""
    series = test.series.get(quantity)
    if series is None or series.unit != "ns":
        return None
    low, high = series.each_event()
    return Estimate(
        test=test,
        quantity=quantity,
        n=low.size,
        events=max(test.events, low.size),
        width=float(np.mean(high - low)),
        median=quantile(low, high, 0.5, CONFIDENCE),
        p99=quantile(low, high, 0.99, CONFIDENCE, "upper"),
        limit=limit,
        verdict=None if limit is None else _judge(limit, test),
    )


def estimates(frame: TestbedFrame, quantity: str, limit: Limit | None) -> Iterator[Estimate]:
    """Estimate `quantity` for each test of a testbed that recorded it."""
    if limit is not None and limit.unit != "ns":
        limit = None
    for test in frame.tests:
        found = estimate(test, quantity, limit)
        if found is not None:
            yield found


def _judge(limit: Limit, test: TestFrame) -> Verdict:
    """Judge as the test itself does; an event's worst subject speaks for the event."""
    low, high = test.series[limit.quantity].each_event(greatest=limit.side == "upper")
    return judge(limit, low, high)
