"""Quantities that have no section of their own."""

from __future__ import annotations

from collections.abc import Mapping

from harness.report.any_quantity import quantity_section
from harness.report.estimates import Estimate, estimates_of
from harness.report.frames import TestbedFrame
from harness.report.own import FAMILIES
from testbeds import Limit

_SECTIONS = frozenset(("reconfiguration", "outage", "closure", "harness")) | FAMILIES


def others(frame: TestbedFrame) -> list[str]:
    """The quantities of a testbed that no other section shows, as first met."""
    stages = {stage for test in frame.tests for stage in test.stages()}
    found = dict.fromkeys(quantity for test in frame.tests for quantity in test.series)
    return [q for q in found if q not in stages and q.partition(".")[0] not in _SECTIONS]


def other_estimates(frame: TestbedFrame, limits: Mapping[str, Limit]) -> dict[str, list[Estimate]]:
    """The estimates of each other quantity."""
    return estimates_of(frame, others(frame), limits)


def other_section(
    frame: TestbedFrame, found: Mapping[str, list[Estimate]], limits: Mapping[str, Limit]
) -> str:
    """Every other quantity with its table and figures; empty where there is none."""
    return "".join(
        quantity_section(frame, name, each, limits.get(name)) for name, each in found.items()
    )
