"""RailX's topologies set on circuit switches: as planned, how soon, and what traffic gets of them.

`testbeds/railx.yaml` has 25 nodes and 40 switches; on `railx-9x1-4.yaml` two logical dimensions
take turns on the rails of a row; the nodes of `railx5.yaml` are namespaces, with real packets.
"""

import pytest

from lightrig.harness.systems.railx.measurements.rail_links import reported_graph
from lightrig.suites.claims.railx.further_topologies import hyperx_graph, same_graph, torus_graph
from lightrig.suites.claims.railx.rail_topology import pair_links_row, topology_row
from lightrig.testbeds import Plan

pytestmark = pytest.mark.of_system("railx")

GAP_MS = 6
"""Published time between context- and expert-parallel traffic (§A.4)."""

EVENTS = 6
"""As many as give a median an interval, where events take real time."""

DATAGRAM_PERIOD = 10_000_000
"""Of each of 40 ports in ns; two cores send and receive them all."""

PAIR_BYTES = 2_000_000
"""From each node to each other; for each of 8 links of a node a megabyte, of which the few
kilobytes that a shaped link lets pass at once are little."""

PATTERNS = [
    ("torus", "rings"),
    ("torus", "one-way rings"),
    ("torus", "all-to-all"),
    ("hyperx", "rings"),
    ("hyperx", "one-way rings"),
    ("hyperx", "all-to-all"),
]

BOUNDS = {
    ("torus", "all-to-all"): 2 / 3,
    ("torus", "one-way rings"): 0.5,
    ("hyperx", "one-way rings"): 0.5,
}
"""Shares of the line rate of a node's ports that the busiest port allows; 1 for the rest."""


def expected(testbed, name):
    """The graph of plan `name`: four rails, 5 x 5 nodes or five."""
    sizes = [5, 5] if testbed.name == "railx" else [5]
    return hyperx_graph(sizes) if name == "hyperx" else torus_graph(sizes, 4)


@pytest.mark.of_testbed("railx", "railx5")
@pytest.mark.parametrize("name", ["hyperx", "torus"])
def test_switches_report_the_topology(fabric, measure, bring_up, testbed, name):
    """Circuits read back from every switch close the links asked for, and all carry traffic (§3.3).

    In an all-to-all of rail rings any two nodes of a row or column have two links (§3.1).
    """
    plan = fabric.plans[name]
    bring_up(plan)
    right = same_graph(reported_graph(fabric), expected(testbed, name))
    measure.record([topology_row(fabric, plan, right)])
    assert right
    if name == "hyperx":
        twice = pair_links_row(fabric, plan)
        measure.record([twice])
        assert twice.value == 1


@pytest.mark.of_testbed("railx")
@pytest.mark.limits("reconfiguration")
def test_reconfiguration_between_topologies(
    fabric, measure, bring_up, measure_reconfiguration, samples
):
    """All 40 switches change at once; each stage until traffic runs on all 200 new links."""
    plans = fabric.plans["torus"], fabric.plans["hyperx"]
    bring_up(plans[0])
    for index in range(samples):
        measure_reconfiguration(plans[(index + 1) % 2])
    measure.judge("reconfiguration")


@pytest.mark.of_testbed("railx")
def test_losses_of_all_switches(measure, measure_insertion_loss):
    """Every circuit of every switch, within the budget.

    Faults are noted, not failures: all switches together name a circuit without reason once in
    some fifty runs.
    """
    for fault in measure_insertion_loss():
        measure.note(str(fault))
    measure.judge("insertion_loss")


@pytest.fixture
def phases(fabric):
    """Context and expert parallelism with all X-rails in turn.

    Where a row is too short for two dimensions, X-rails change between rings and all-to-all, and
    Y-rails stay an all-to-all.
    """
    if "context" in fabric.plans:
        return fabric.plans["context"], fabric.plans["expert"]
    direct = fabric.plans["hyperx"].circuits
    rings = {
        name: circuits
        for name, circuits in fabric.plans["torus"].circuits.items()
        if name.startswith("x")
    }
    return Plan("context", {**direct, **rings}), Plan("expert", direct)


@pytest.mark.of_testbed("railx", "railx-9x1-4")
def test_x_rails_change_between_phases(phase_changes, measure, bring_up, phases, samples):
    """Whether a change fits in the published gap is recorded (§5.2); Y-rails keep their traffic."""
    bring_up(phases[0])
    for index in range(samples):
        event = phase_changes.change(phases[(index + 1) % 2])
        lost = {seen.subject for seen in event.seen if seen.stage == "carrier_down"}
        assert lost
        assert all(subject.partition(".")[2].startswith("x") for subject in lost)
    total = event.stages()["first_datagram"]
    measure.note(
        f"the last change of X-rails took {total.latest / 1e6:.1f} ms; the published gap is "
        f"{GAP_MS} ms, and the switch's and ports' times are guesses of this testbed"
    )
    measure.judge("phase_change")


@pytest.mark.of_testbed("railx5")
def test_outage_of_a_change(fabric, measure, bring_up, measure_outage, samples):
    """Rings on all rails become an all-to-all and rings again, under numbered datagrams."""
    plans = fabric.plans["torus"], fabric.plans["hyperx"]
    bring_up(plans[0])
    for index in range(min(samples, EVENTS)):
        measure_outage(plans[(index + 1) % 2], datagram_period=DATAGRAM_PERIOD)
    measure.judge("reconfiguration", "outage")


@pytest.mark.of_testbed("railx5")
@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=map("/".join, PATTERNS))
def test_share_of_line_rate(rail_traffic, fabric, measure, samples, name, pattern):
    """Real packets over all rails: the share of the ports' rate, and of what the topology allows.

    The all-to-all of a torus forwards what goes to nodes two hops away; rail rings need not.
    """
    size = PAIR_BYTES if pattern == "all-to-all" else PAIR_BYTES // 2
    found = rail_traffic.exchange(
        fabric.plans[name], pattern, size, iterations=max(min(samples, 8), EVENTS)
    )
    assert found.bound == pytest.approx(BOUNDS.get((name, pattern), 1))
    right = same_graph(reported_graph(fabric), expected(fabric.testbed, name))
    measure.record([topology_row(fabric, fabric.plans[name], right)])
    assert right
    measure.judge("rail_traffic")


@pytest.mark.of_testbed("railx5")
def test_all_reduces_survive_a_change(rail_traffic, fabric, measure, measure_recovery, samples):
    """All-reduces on the first rail while all switches change, to and fro."""
    rails = rail_traffic.rails
    plans = fabric.plans["torus"], fabric.plans["hyperx"]
    rail_traffic.apply(plans[0])
    for index in range(min(samples, EVENTS)):
        before, after = plans if index % 2 == 0 else plans[::-1]
        found = measure_recovery(
            rails.runner,
            rails.nodes,
            (before, after),
            rails.route,
            size=1 << 16,
            before=500_000_000,
            after=2_000_000_000,
        )
        assert found.survived
    measure.judge("recovery")


@pytest.mark.of_testbed("railx", "railx5")
def test_switches_are_left_as_found(fabric):
    """After topologies in turn, every switch has the circuits that it had before the first."""
    fabric.restore()
    switches = fabric.bench.switches
    found = {name: switch.circuits() for name, switch in switches.items()}
    for name in ("torus", "hyperx", "torus"):
        fabric.apply(fabric.plans[name])
    fabric.restore()
    assert {name: switch.circuits() for name, switch in switches.items()} == found
