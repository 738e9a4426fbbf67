"""Fixtures for tests of MixNet: the servers as one region, and all-to-alls among them."""

# Loaded with every testbed; what a test needs is imported when it needs it.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.systems.mixnet.measurements.region_traffic import RegionTraffic
    from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges
    from lightrig.testbeds import Testbed


def pytest_lightrig_unavailable(fixture: str, testbed: Testbed) -> str | None:
    """Return why a testbed has no region whose packets can be led by MixNet's routes."""
    if fixture == "mixnet_region" and not testbed.only_local_namespaces:
        return "no two servers that are namespaces"
    return None


@pytest.fixture(scope="module")
def mixnet_region(bench: Bench) -> Iterator[Exchanges]:
    """The servers of the testbed as one region, which runs all-to-alls over Gloo.

    Routes and ranks are removed from the servers after the module's last test.
    """
    from lightrig.harness.jobs.fixtures import open_or_skip
    from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges

    yield from open_or_skip(partial(Exchanges, bench))


@pytest.fixture
def mixnet_traffic(
    mixnet_region: Exchanges, fabric: Fabric, links: LinkObservation, measure: Recording
) -> RegionTraffic:
    """All-to-alls in the region, and failures under them; recorded for `measure.judge`."""
    from lightrig.harness.systems.mixnet.measurements.region_traffic import RegionTraffic

    return RegionTraffic(mixnet_region, fabric, links, measure.record)
