"""Fixtures for tests of InfiniteHBD: a ring of servers that may fail, and pairs that swap data."""

# Loaded with every testbed; what a test needs is imported when it needs it.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.systems.infinitehbd.measurements.ring_failures import RingFailures
    from lightrig.harness.systems.infinitehbd.runtime.pairs import PairedNodes
    from lightrig.testbeds import Testbed


def pytest_lightrig_unavailable(fixture: str, testbed: Testbed) -> str | None:
    """Return why no server of a testbed may be made to fail."""
    if fixture == "infinitehbd_ring" and not testbed.only_local_namespaces:
        return "a server that is a computer is not made to fail"
    if fixture == "paired_nodes" and not testbed.only_local_namespaces:
        return "programs that swap data run in namespaces of this machine alone"
    return None


@pytest.fixture
def infinitehbd_ring(
    fabric: Fabric, links: LinkObservation, measure: Recording, tmp_path: Path
) -> Iterator[RingFailures]:
    """The servers in the ring of the plan `whole`, once it is up, and failures among them.

    Servers that a test leaves without power get it back when the test ends.
    """
    from lightrig.harness.systems.infinitehbd.measurements.ring_failures import RingFailures

    ring = RingFailures(fabric, links, measure.record, tmp_path / "cluster.json")
    yield ring
    ring.power_on_all()


@pytest.fixture
def paired_nodes(bench: Bench) -> Iterator[PairedNodes]:
    """Servers that swap data in pairs, over the circuits of a plan."""
    from lightrig.harness.systems.infinitehbd.runtime.pairs import PairedNodes

    nodes = PairedNodes(bench)
    yield nodes
    nodes.close()
