"""What MixNet's prototype reports of its circuits, and what its control plane asks of them."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.fabrics.mixnet import (
    Failures,
    Gating,
    Placement,
    Region,
    diagnose,
    plan_testbed,
    server_demand,
)
from testbeds import Circuit, Plan, Port

pytestmark = pytest.mark.of_testbed("mixnet")

NOTICED = 10_000_000
"""Within what carriers have followed the light, in ns."""


@pytest.fixture
def shifted(fabric, pairs):
    """Two plans that lead the same ingress ports to the next egress port, and the next but one.

    A pair is one ingress and one egress port. No port lights itself or the one that lights it,
    so no link comes up, and the switch is alone with its mirrors.
    """
    (switch,) = fabric.bench.switches
    ingress, egress = map(sorted, fabric.testbed.cabling.own_ports(switch))
    if len(ingress) < pairs + 2:
        pytest.skip(f"{pairs} pairs need {pairs + 2} cabled ports, {switch} has {len(ingress)}")
    return [
        Plan(f"by {by}", {switch: frozenset(map(Circuit, ingress[:pairs], egress[by:]))})
        for by in (1, 2)
    ]


@pytest.mark.parametrize("pairs", [1, 4, 16])
def test_turnaround_by_pairs(fabric, measure, samples, shifted, pairs):
    """From the command to the switch's word, by the pairs that move at once (Fig. 21).

    Twice as many samples as usual, since a 99th percentile between two bounds needs 368.
    """
    fabric.apply(shifted[0])
    for index in range(2 * samples):
        event = measure.reconfiguration(shifted[(index + 1) % 2])
        assert event.moved == pairs
    measure.judge("reconfiguration.acknowledged")


def test_nic_activation(fabric, measure, samples):
    """From the switch's word to a link that carries (Fig. 23), and what comes when (Fig. 22)."""
    plans = fabric.plans["mesh"], fabric.plans["pairs"]
    measure.bring_up(plans[0])
    for index in range(samples):
        stages = measure.reconfiguration(plans[(index + 1) % 2]).stages()
        acknowledged, carrier = stages["acknowledged"], stages["carrier_up"]
        assert acknowledged.latest < carrier.earliest <= stages["first_datagram"].latest
        # The NIC and its transceiver take the most of it by far.
        assert acknowledged.latest < 0.1 * carrier.earliest
    measure.judge("reconfiguration.carrier_up")


def test_circuits_follow_the_gate(fabric, measure, testbed, samples):
    """Circuits move to where the tokens go, and no port is touched that keeps its link (§5.2).

    On four servers with three optical NICs every demand above zero for all pairs leads to the
    same mesh. So each rank sends to its two most loaded experts only, and some pair is silent.
    """
    placement = Placement.even(ranks=len(testbed.servers), servers=len(testbed.servers))
    gate = Gating(experts=len(testbed.servers), layers=1, steadiness=1.0)
    plan = fabric.plans["mesh"]
    measure.bring_up(plan)
    for number, sent in enumerate(gate.exchanges(len(testbed.servers), samples, seed=1)):
        loud = np.where(sent >= np.sort(sent)[:, [-2]], sent, 0.0)
        before, held = fabric.links(plan), plan
        plan = plan_testbed(testbed, server_demand(loud, placement), f"gate {number}", held)
        event = measure.reconfiguration(plan)
        changed = {port for link in before ^ fabric.links(plan) for port in (link.a, link.b)}
        touched = {seen.subject for seen in event.seen if seen.stage == "carrier_down"}
        assert touched <= set(map(str, changed))
    measure.judge("reconfiguration.carrier_up")


@pytest.fixture
def undo():
    """What is to be undone at the end, whatever happens."""
    light: list[Callable[[], None]] = []
    yield light
    while light:
        light.pop()()


@pytest.mark.parametrize("case", ["NIC", "link", "GPU", "server"])
def test_what_failed_is_planned_around(fabric, links, measure, testbed, undo, case):
    """The controller leaves it out and plans anew; no circuit leads to it any more (§5.4).

    Where there is a world to do so in, its light really goes out. A failed GPU takes no port along:
    its work goes to the GPU of the next server, and the circuits follow.
    """
    tokens = np.arange(1.0, 17.0).reshape(4, 4)
    placement = Placement.even(ranks=4, servers=4)
    mesh, world, clock = fabric.plans["mesh"], fabric.bench.world, fabric.bench.clock
    region = Region.of(testbed)
    for number, server in enumerate(testbed.servers):
        measure.bring_up(mesh)
        told = failure(case, server, fabric.links(mesh))
        began, darkened = clock.now(), sorted(told.ports | ports_of(testbed, told.servers))
        if world is not None:
            undo.append(world.darken(darkened))
        if world is not None and case == "link":
            seen, _ = links.changes(darkened, began, NOTICED)
            dark = {port for port, event in seen if event.stage == "carrier" and not event.up}
            assert diagnose(region, fabric.links(mesh), dark) == told
        placed = (
            placement.moved(number, (number + 1) % 4) if case in ("GPU", "server") else placement
        )
        plan = plan_testbed(
            testbed, server_demand(tokens, placed), f"without {case} {number}", mesh, told
        )
        event = measure.reconfiguration(plan)
        lit = {port for link in fabric.links(plan) for port in (link.a, link.b)}
        assert not lit & set(darkened)
        assert not event.missing
        while undo:
            undo.pop()()


def failure(case, server, up):
    """What fails at `server`, which has the links `up`."""
    port = Port(server, "nic1")
    link = next(each for each in up if port in (each.a, each.b))
    return {
        "NIC": Failures(nics=frozenset({port})),
        "link": Failures(links=frozenset({link})),
        "GPU": Failures(gpus=frozenset({(server, 0)})),
        "server": Failures(servers=frozenset({server})),
    }[case]


def ports_of(testbed, servers):
    """All NIC ports of some servers."""
    return {spec.port for spec in testbed.nic_ports if spec.port.owner in servers}
