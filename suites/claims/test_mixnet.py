"""Claims of MixNet's prototype about its circuits and its control plane."""

from collections.abc import Callable

import numpy as np
import pytest

from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.demand import Placement, server_demand
from lightrig.harness.systems.mixnet.planning.diagnosis import diagnose
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.testbeds import Circuit, Plan, Port

pytestmark = [pytest.mark.of_system("mixnet"), pytest.mark.of_testbed("mixnet")]

NOTICED = 10_000_000
"""Time within which carriers follow the light, in ns."""


@pytest.fixture
def shifted(fabric, pairs):
    """Two plans that lead the same ingress ports to the next egress port, and the next but one.

    A pair is one ingress and one egress port. No port lights itself or the one that lights it,
    so no link comes up, and the switch is alone with its mirrors.
    """
    (switch,) = fabric.bench.switches
    ingress, egress = map(sorted, fabric.testbed.cabling.cabled_ports(switch))
    if len(ingress) < pairs + 2:
        pytest.skip(f"{pairs} pairs need {pairs + 2} cabled ports, {switch} has {len(ingress)}")
    return [
        Plan(f"by {by}", {switch: frozenset(map(Circuit, ingress[:pairs], egress[by:]))})
        for by in (1, 2)
    ]


@pytest.mark.parametrize("pairs", [1, 4, 16], ids="{}-pairs".format)
def test_turnaround_by_pairs(fabric, measure, measure_reconfiguration, samples, shifted, pairs):
    """From the command to its acknowledgement, by the pairs that move at once (Fig. 21).

    Twice the usual number of samples, since a 99th percentile between two bounds needs 368.
    """
    fabric.apply(shifted[0])
    for index in range(2 * samples):
        event = measure_reconfiguration(shifted[(index + 1) % 2])
        assert event.moved == pairs
    measure.judge("reconfiguration.acknowledged")


def test_nic_activation(fabric, measure, bring_up, measure_reconfiguration, samples):
    """From the acknowledgement to a link with carrier (Fig. 23) and stage order (Fig. 22)."""
    plans = fabric.plans["mesh"], fabric.plans["pairs"]
    bring_up(plans[0])
    for index in range(samples):
        stages = measure_reconfiguration(plans[(index + 1) % 2]).stages()
        acknowledged, carrier = stages["acknowledged"], stages["carrier_up"]
        assert acknowledged.latest < carrier.earliest <= stages["first_datagram"].latest
        # The NIC and its transceiver take most of the time.
        assert acknowledged.latest < 0.1 * carrier.earliest
    measure.judge("reconfiguration.carrier_up")


def test_circuits_follow_the_gate(
    fabric, measure, bring_up, measure_reconfiguration, testbed, samples
):
    """Circuits follow the demand, and a port that keeps its link is not disturbed (§5.2).

    On four servers with three optical NICs, any demand without zeros leads to the same mesh.
    So each rank sends to its two most loaded experts only, and some pairs have no demand.
    """
    placement = Placement.even(ranks=len(testbed.servers), servers=len(testbed.servers))
    gate = Gating(experts=len(testbed.servers), layers=1, steadiness=1.0)
    plan = fabric.plans["mesh"]
    bring_up(plan)
    for number, sent in enumerate(gate.exchanges(len(testbed.servers), samples, seed=1)):
        loud = np.where(sent >= np.sort(sent)[:, [-2]], sent, 0.0)
        before, present = fabric.links(plan), plan
        plan = plan_testbed(testbed, server_demand(loud, placement), f"gate {number}", present)
        event = measure_reconfiguration(plan)
        changed = {port for link in before ^ fabric.links(plan) for port in (link.a, link.b)}
        touched = {seen.subject for seen in event.seen if seen.stage == "carrier_down"}
        assert touched <= set(map(str, changed))
    measure.judge("reconfiguration.carrier_up")


@pytest.fixture
def undo():
    """Functions to call at the end of the test, whatever its outcome."""
    light: list[Callable[[], None]] = []
    yield light
    while light:
        light.pop()()


@pytest.mark.parametrize("case", ["NIC", "link", "GPU", "server"])
def test_what_failed_is_planned_around(
    fabric, links, bring_up, measure_reconfiguration, testbed, undo, case
):
    """The controller plans again without the failed component, and no circuit leads to it (§5.4).

    In a simulated world its light is cut. A failed GPU affects no port: its work moves to the
    GPU of the next server, and the circuits follow.
    """
    tokens = np.arange(1.0, 17.0).reshape(4, 4)
    placement = Placement.even(ranks=4, servers=4)
    mesh, world, clock = fabric.plans["mesh"], fabric.bench.world, fabric.bench.clock
    region = Region.of(testbed)
    for number, server in enumerate(testbed.servers):
        bring_up(mesh)
        failures = failure(case, server, fabric.links(mesh))
        began, darkened = clock.now(), sorted(failures.ports | ports_of(testbed, failures.servers))
        if world is not None:
            undo.append(world.darken(darkened))
        if world is not None and darkened:  # what fails is noticed before it is planned around
            seen, _ = links.changes(darkened, began, NOTICED)
            dark = {port for port, event in seen if event.stage == "carrier" and not event.up}
            assert case != "link" or diagnose(region, fabric.links(mesh), dark) == failures
        placed = (
            placement.moved(number, (number + 1) % 4) if case in ("GPU", "server") else placement
        )
        plan = plan_testbed(
            testbed, server_demand(tokens, placed), f"without {case} {number}", mesh, failures
        )
        event = measure_reconfiguration(plan)
        lit = {port for link in fabric.links(plan) for port in (link.a, link.b)}
        assert not lit & set(darkened)
        assert not event.missing
        while undo:
            undo.pop()()


def failure(case, server, up):
    """Return the failure of a case at `server`, which has the links `up`."""
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
