"""Opus with its giant ring up, simulated: 0 - 1 - 3 - 2, two links between neighbours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.links import LinkObservation
from lightrig.testbeds import load

LINKS_UP = 60_000_000_000


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    yield from bound()


@pytest.fixture
def dark_bench() -> Iterator[Bench]:
    """The same, with nothing connected."""
    yield from bound()


def bound() -> Iterator[Bench]:
    bench = bind(load(Path("testbeds/opus.yaml")), "simulated", 5)
    try:
        yield bench
    finally:
        bench.close()


@pytest.fixture(scope="module")
def fabric(bench: Bench) -> Fabric:
    return Fabric(bench)


@pytest.fixture(scope="module")
def links(bench: Bench) -> LinkObservation:
    return LinkObservation(bench)


@pytest.fixture(scope="module")
def giant_ring(fabric: Fabric, links: LinkObservation) -> Fabric:
    plan = fabric.plans["giant-ring"]
    fabric.apply(plan)
    ports = {port for link in fabric.links(plan) for port in (link.a, link.b)}
    links.await_up(ports, LINKS_UP)
    return fabric
