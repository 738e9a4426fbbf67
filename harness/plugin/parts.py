"""Tests of which some ports take no part: put out of service by a person, or found to be down.

A test that needs whole plans measures nothing then. One that asks `bring_up` for the links that
there are goes on: it fails at its end where a link was first seen to be down, and where others have
left links out it is inconclusive instead of passing.
"""

from __future__ import annotations

from typing import Any

import pytest

from lightrig.harness.bench import Bench
from lightrig.harness.bench.coverage import Coverage
from lightrig.harness.measure.recording import NotEnoughDataError
from lightrig.harness.plugin.collection import needs_whole_plans, testbed_of
from lightrig.harness.plugin.keys import BENCHES

PORTS = "ports"
"""Property of a test that was not over all ports: "6 of 8 ports; out: server3.nic0.p1"."""


class NotWholeError(NotEnoughDataError):
    """A test needs whole plans, of which ports are out of service."""


class Parts:
    """Begins what each test leaves out, and keeps from beginning what needs whole plans."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Raise `NotWholeError`, before anything moves, for a test that leaves nothing out."""
        item.user_properties[:] = [each for each in item.user_properties if each[0] != PORTS]
        testbed = testbed_of(item)
        if testbed is None:
            return
        if testbed.out and needs_whole_plans(item):
            reasons = ", ".join(map(str, testbed.out.entries.values()))
            raise NotWholeError(f"it needs whole plans, and out of service is {reasons}")
        bench = self._config.stash[BENCHES].get(testbed.name)
        if bench is not None:
            bench.coverage.begin()


def coverage_of(item: pytest.Item) -> Coverage | None:
    """Return what an item's testbed has left out; None where it is not open."""
    testbed = testbed_of(item)
    bench: Bench | None = item.config.stash[BENCHES].get(testbed.name) if testbed else None
    return None if bench is None else bench.coverage


def undecided_by_parts(item: pytest.Item) -> list[str]:
    """Return why a test that has passed decides nothing: it has left out what nobody listed."""
    coverage = coverage_of(item)
    if coverage is None or coverage.failures or not coverage.left_out:
        return []
    links = ", ".join(map(str, coverage.left_out))
    share = coverage.share()
    over = f"over {share.ports}: " if share is not None else ""
    return [
        f"{over}it has left out {links}, which did not come up in this run\n"
        f"  try       `lightrig out {coverage.testbed.path} PORT --because TEXT`"
    ]


def failed_by_parts(item: pytest.Item) -> str:
    """Return what a test saw that makes it fail at its end: links that did not come up."""
    coverage = coverage_of(item)
    return "" if coverage is None else "\n".join(dict.fromkeys(coverage.sentences))


def add_ports(item: pytest.Item, details: dict[str, Any]) -> None:
    """Add to a test's details, and to its properties, over which ports it was, if not over all."""
    coverage = coverage_of(item)
    share = None if coverage is None else coverage.share()
    if share is not None:
        details[PORTS] = str(share)
        item.user_properties.append((PORTS, str(share)))
