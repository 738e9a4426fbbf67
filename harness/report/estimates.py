"""What the samples of one test say about one quantity: median, p99 and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    """One quantity of one test, in its own unit; see `Series.samples`.

    n: samples, of `events` that the test recorded.
    width: mean of latest - earliest.
    median: two-sided interval; p99: one-sided upper bound.
    limit, verdict: where the testbed states a limit on the quantity.
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


def estimate(test: TestFrame, quantity: str, limit: Limit | None = None) -> Estimate | None:
    """Estimate a quantity of `test`, by the greatest of each event; None if it recorded none."""
    series = test.series.get(quantity)
    if series is None:
        return None
    low, high = series.samples()
    if limit is not None and limit.unit != series.unit:
        limit = None
    return Estimate(
        test=test,
        quantity=quantity,
        unit=series.unit,
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
    for test in frame.tests:
        found = estimate(test, quantity, limit)
        if found is not None:
            yield found


def estimates_of(
    frame: TestbedFrame, names: Iterable[str], limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """The same of several quantities, by name; those that were not measured are left out."""
    found = {name: list(estimates(frame, name, limits.get(name))) for name in names}
    return {name: each for name, each in found.items() if each}


def _judge(limit: Limit, test: TestFrame) -> Verdict:
    """Judge as the test itself does; an event's worst subject speaks for the event."""
    low, high = test.series[limit.quantity].samples(greatest=limit.side == "upper")
    return judge(limit, low, high)
