"""Fixtures for tests of RailX: packets led by rail, and changes of the X-rails."""

# Loaded with every testbed; what a test needs is imported when it needs it.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.measure.stages import Reconfiguration
    from lightrig.harness.systems.railx.measurements.rail_links import PhaseChanges
    from lightrig.harness.systems.railx.measurements.rail_traffic import RailTraffic
    from lightrig.harness.systems.railx.runtime.chips import Chips
    from lightrig.harness.systems.railx.runtime.rails import Rails
    from lightrig.testbeds import Plan, Testbed


def pytest_lightrig_unavailable(fixture: str, testbed: Testbed) -> str | None:
    """Return why a testbed has no rails that packets can be led over."""
    if fixture in {"rails", "chips"} and not testbed.only_local_namespaces:
        return "no two servers that are namespaces"
    return None


@pytest.fixture(scope="module")
def rails(bench: Bench) -> Iterator[Rails]:
    """The rails of a row of namespaces, over which ranks of MPI exchange data.

    Addresses, routes and ranks are removed from the servers after the module's last test.
    """
    from lightrig.harness.jobs.fixtures import open_or_skip
    from lightrig.harness.systems.railx.runtime.rails import Rails

    yield from open_or_skip(partial(Rails, bench))


@pytest.fixture(scope="module")
def chips(bench: Bench) -> Iterator[Chips]:
    """The chips of a grid of nodes as namespaces, whose packets are led over mesh and rails.

    Addresses, routes and ranks are removed from the servers after the module's last test.
    """
    from lightrig.harness.jobs.fixtures import open_or_skip
    from lightrig.harness.systems.railx.runtime.chips import Chips

    yield from open_or_skip(partial(Chips, bench))


@pytest.fixture
def rail_traffic(
    rails: Rails, fabric: Fabric, links: LinkObservation, measure: Recording
) -> RailTraffic:
    """Exchanges over all rails of a plan; recorded for `measure.judge`."""
    from lightrig.harness.systems.railx.measurements.rail_traffic import RailTraffic

    return RailTraffic(rails, fabric, links, measure.record)


@pytest.fixture
def phase_changes(
    fabric: Fabric,
    measure: Recording,
    measure_reconfiguration: Callable[[Plan], Reconfiguration],
) -> PhaseChanges:
    """Changes of the X-rails from one logical dimension to another, recorded."""
    from lightrig.harness.systems.railx.measurements.rail_links import PhaseChanges

    return PhaseChanges(fabric, measure_reconfiguration, measure.record)
