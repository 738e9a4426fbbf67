"""Fixtures for tests of ACOS: servers that select the ring of each collective."""

# Loaded with every testbed; what a test needs is imported when it needs it.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lightrig.harness.bench import Fabric
    from lightrig.harness.jobs.bench.collectives import Collectives
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.systems.acos.measurements.ring_selection import RingSelection
    from lightrig.harness.systems.acos.runtime.training import RingTraining
    from lightrig.testbeds import Testbed


def pytest_lightrig_unavailable(fixture: str, testbed: Testbed) -> str | None:
    """Return why the servers of a testbed cannot select rings under traffic."""
    if fixture == "acos_rings" and not testbed.only_local_namespaces:
        return "servers that select rings under traffic are namespaces"
    return None


@pytest.fixture
def acos_rings(
    fabric: Fabric, collectives: Collectives, links: LinkObservation, measure: Recording
) -> Iterator[RingSelection]:
    """The servers with an agent each; failed ones get their light back when the test ends."""
    from lightrig.harness.systems.acos.measurements.ring_selection import RingSelection

    links.pause()  # the agents observe the carriers themselves
    rings = RingSelection(fabric, collectives, measure.record)
    yield rings
    rings.restore_power()


@pytest.fixture
def ring_training(fabric: Fabric, links: LinkObservation) -> Iterator[RingTraining]:
    """A rank of PyTorch on each server, in data-parallel pairs and pipelines of two."""
    from lightrig.harness.jobs.fixtures import open_or_skip
    from lightrig.harness.systems.acos.runtime.gates import RankGroup
    from lightrig.harness.systems.acos.runtime.training import RingTraining

    links.pause()  # the servers watch their carriers themselves
    pairs = {"data": ((0, 1), (2, 3)), "pipeline": ((0, 2), (1, 3))}
    groups = {
        f"{topology} {number}": RankGroup(ranks, topology)
        for topology, found in pairs.items()
        for number, ranks in enumerate(found)
    }
    yield from open_or_skip(partial(RingTraining, fabric, groups))
