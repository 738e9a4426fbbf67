"""A server of a ring dies, the ring closes past it over modules' backup links, and it is back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.measurements.bypass import (
    Collective,
    NotNoticedError,
    bypass_failed_node,
    failure_rows,
    rejoin,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.traffic import Traffic
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Plan, load

S = 1_000_000_000
DEAD = "node2"


@pytest.fixture
def namespaces() -> Iterator[Bench]:
    if reason := kernel.available():
        pytest.skip(reason)
    bench = bind(load("testbeds/infinitehbd5.yaml"), "simulated", 1)
    yield bench
    bench.close()


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "seven.yaml"
    file = render(7, group=3)
    path.write_text(file.replace("simulation:", "simulation:\n  nic: {bring_up: {mean: 10 ms}}", 1))
    bench = bind(load(path), "simulated", 1)
    yield bench
    bench.close()


class Ranks:
    """All-reduces that were made up; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def start(self, ranks: object, size: int) -> "Ranks":
        self.asked.append(tuple(ranks))  # type: ignore[arg-type]
        return self

    def stop(self) -> Traffic:
        ranks = self.asked[-1]
        assert isinstance(ranks, tuple)
        later = Span(10**18, 10**18)
        return Traffic(ranks, 8, dict.fromkeys(ranks, ((later, later),)), 0, {}, "made up")

    def abandon(self) -> Traffic:
        self.asked.append("abandon")
        return Traffic((), 8, {}, 0, {}, "made up")

    def kill(self, server: str) -> None:
        self.asked.append(f"kill {server}")


@pytest.mark.long
def test_in_the_kernel_the_ring_closes_past_it_and_is_as_found_when_it_is_back(
    namespaces: Bench,
) -> None:
    fabric, links = Fabric(namespaces), LinkObservation(namespaces)
    whole, world = namespaces.testbed.plans["whole"], namespaces.world
    assert world is not None
    bring_up(fabric, links, whole)
    bypass = namespaces.testbed.plans["bypass"].circuits
    past = {name: made for name, made in bypass.items() if not name.endswith(DEAD)}
    found = {name: switch.circuits() for name, switch in namespaces.switches.items()}
    undo = []
    ranks, routed = Ranks(), list[Plan]()
    collective = Collective(
        ranks, routed.append, lambda plan: sorted(_owners(namespaces, plan)), size=8
    )
    died = bypass_failed_node(
        *(fabric, links, whole, DEAD),
        lambda: undo.append(world.power_off(DEAD)),
        lambda: Plan("past", past),
        collective,
        timeout=30 * S,
    )
    assert list(died.stages) == [
        *("carrier_down", "detected", "planned", "switched", "carrier_up", "first_datagram"),
        *("routed", "first_collective"),
    ]
    times = died.after()
    order = ("detected", "planned", "switched")
    assert sorted(order, key=lambda stage: times[stage].latest) == list(order)
    everybody = tuple(namespaces.testbed.servers)
    alive = tuple(server for server in everybody if server != DEAD)
    assert ranks.asked == [everybody, "abandon", f"kill {DEAD}", alive]

    back = rejoin(*(fabric, links, DEAD, undo[0], lambda: whole), timeout=30 * S)
    assert {name: switch.circuits() for name, switch in namespaces.switches.items()} == found
    assert {"switched", "carrier_up", "first_datagram"} <= back.stages.keys()
    quantities = {row.quantity for row in failure_rows(back, 3)}
    assert "return.first_datagram" in quantities
    links.pause()


def _owners(bench: Bench, plan: Plan) -> set[str]:
    return {port.owner for link in bench.testbed.links(plan) for port in (link.a, link.b)}


def test_simulated_servers_use_the_backup_link_as_well(simulated: Bench) -> None:
    """The second detectors of two modules hear each other: a link, with carrier and datagrams."""
    fabric, links = Fabric(simulated), LinkObservation(simulated)
    for name in ("whole", "bypass"):
        bring_up(fabric, links, simulated.testbed.plans[name])
    backup = [link for link in map(str, simulated.testbed.links("bypass")) if ".p1" in link]
    assert backup == ["node3.trx0.p1 <-> node5.trx1.p1"]


def test_a_server_with_carrier_is_not_bypassed(simulated: Bench) -> None:
    fabric, links = Fabric(simulated), LinkObservation(simulated)
    whole = simulated.testbed.plans["whole"]
    bring_up(fabric, links, whole)
    with pytest.raises(NotNoticedError, match=r"still have a carrier: node0\.trx0\.p0"):
        bypass_failed_node(
            *(fabric, links, whole, "node1", lambda: None, lambda: whole), timeout=S // 100
        )
