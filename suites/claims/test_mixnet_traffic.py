"""Speedup of circuits that follow the tokens on kernel links, and failover under traffic.

One rank on each server of `testbeds/mixnet8.yaml` sends to the others what a generated gate sends
to its two most loaded experts. Rates are the kernel's; docs/traffic.md
states what they show about a switch between GPUs.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.demand import Placement, pair_demand, server_traffic
from lightrig.harness.systems.mixnet.planning.region import Failures
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.testbeds import Plan, Port

pytestmark = [pytest.mark.of_system("mixnet"), pytest.mark.of_testbed("mixnet8")]

LARGEST = 3_000_000
"""Bytes of the pair of servers that exchange most, both directions together."""
TOLERANCE = 0.15


def tokens(servers: int, number: int) -> np.ndarray:
    """Bytes from each server to each other, of one generated exchange."""
    gate = Gating(experts=servers, layers=1)
    (sent,) = gate.exchanges(servers, 1, seed=number, steadiness=2.0)
    loud = np.where(sent >= np.sort(sent)[:, [-2]], sent, 0.0)
    traffic = server_traffic(loud, Placement.even(servers, servers))
    return (traffic * LARGEST / pair_demand(traffic).max()).astype(int)


@pytest.mark.parametrize("gate", [1, 3], ids="gate-{}".format)
def test_chosen_circuits_pay(mixnet_traffic, fabric, measure, testbed, samples, gate):
    """The speedup over uniform circuits is within 15 % of the flow model's prediction.

    The time over the same number of Ethernet ports is recorded for comparison.
    """
    traffic = tokens(len(testbed.servers), gate)
    uniform = fabric.plans["uniform"]
    chosen = plan_testbed(testbed, pair_demand(traffic), "chosen", uniform)
    plans = uniform, chosen, fabric.plans["packet"]
    iterations = max(min(samples, 20), 6)
    found = {
        plan.name: mixnet_traffic.all_to_all(plan, traffic, iterations=iterations) for plan in plans
    }
    mixnet_traffic.speedup(found["packet"], found["chosen"])
    gained = mixnet_traffic.speedup(found["uniform"], found["chosen"])
    assert gained.lower > 1
    assert gained.off <= TOLERANCE
    measure.judge("exchange")


ROUNDS = 6
"""Number of events that give a median an interval."""

BEFORE, AFTER = 300_000_000, 1_500_000_000
"""Duration of traffic before a failure and after each step, in ns."""

SPARE = 7
"""Number of the server with the spare GPU."""


def busiest(routing: Routing, traffic: np.ndarray, medium: str) -> Port:
    """Return the sending port of the pair with most traffic over one hop of `medium`."""
    pairs = np.argwhere(traffic > 0).tolist()
    hops = {(a, b): routing.route(a, b) for a, b in pairs}
    fitting = [pair for pair in pairs if [hop.medium for hop in hops[tuple(pair)]] == [medium]]
    a, b = max(fitting, key=lambda pair: traffic[tuple(pair)])
    return hops[a, b][0].ports[0][0]


@pytest.fixture
def working(mixnet_region, fabric, testbed):
    """Traffic, a plan for it, and a list of functions that repair what a test makes fail."""
    traffic = tokens(len(testbed.servers), 1) // 10
    plan = plan_testbed(testbed, pair_demand(traffic), "chosen", fabric.plans["uniform"])
    undo: list[Callable[[], None]] = []
    yield traffic, plan, undo
    while undo:
        undo.pop()()


def rounds(samples: int, undo: list[Callable[[], None]]) -> Iterator[int]:
    """Yield numbers of events, and repair everything after each."""
    for number in range(min(samples, ROUNDS)):
        yield number
        while undo:
            undo.pop()()


def replanned(testbed, traffic) -> Callable[[Failures, Plan], Plan]:
    """Return the regional controller: Algorithm 1, again without the failed components (§5.4)."""

    def replan(failures: Failures, plan: Plan) -> Plan:
        return plan_testbed(testbed, pair_demand(traffic), "anew", plan, failures)

    return replan


@pytest.mark.parametrize("case", ["link", "NIC", "packet NIC", "packet link"])
def test_traffic_outlives(
    mixnet_region, mixnet_traffic, fabric, measure, testbed, working, samples, case
):
    """Traffic of a circuit takes packets, that of a packet NIC a circuit to a peer (§5.4)."""
    traffic, plan, undo = working
    routing = mixnet_region.routing(plan)
    port = busiest(routing, traffic, "packet" if "packet" in case else "optical")
    far_end = next((m.b if m.a == port else m.a for m in routing.links if port in (m.a, m.b)), None)
    if far_end is None:
        far_end = testbed.cabling.fiber_from(port).sink
    failing = mixnet_region.take_down if "NIC" in case else mixnet_region.cut
    ports = [port] if "NIC" in case else [port, far_end]
    for _ in rounds(samples, undo):
        mixnet_traffic.apply(plan)
        found = mixnet_traffic.failover(
            case,
            plan,
            traffic,
            fail=lambda: undo.append(failing(ports)),
            replan=replanned(testbed, traffic),
            before=BEFORE,
            after=AFTER,
        )
        lit = {end for link in fabric.links(found.plan) for end in (link.a, link.b)}
        assert found.failures.ports == (set(ports) if case == "link" else {port})
        assert not lit & set(ports)
        assert found.survived
        assert found.first is not None
    measure.judge("failover")


@pytest.mark.parametrize("case", ["GPU", "server"])
def test_another_takes_over(
    mixnet_region, mixnet_traffic, measure, testbed, working, samples, case
):
    """A rank whose GPU or server failed restarts on the spare one, as from a checkpoint (§5.4).

    Circuits avoid a failed server, but not the server of a failed GPU, whose NICs work.
    """
    traffic, _, undo = working
    names = list(testbed.servers)
    ranks = [name for name in names if name != names[SPARE]]
    lost = ranks[2]
    moved = [names[SPARE] if name == lost else name for name in ranks]
    order = [names.index(name) for name in ranks]
    between = traffic[np.ix_(order, order)]

    def among(who: list[str]) -> np.ndarray:
        """The ranks' traffic by the numbers of the servers that they are on."""
        at = [names.index(name) for name in who]
        placed = np.zeros_like(traffic)
        placed[np.ix_(at, at)] = between
        return placed

    plan = plan_testbed(testbed, pair_demand(among(ranks)), "of seven")

    def fail() -> None:
        if case == "server":
            nics = [spec.port for spec in testbed.nic_ports if spec.port.owner == lost]
            undo.append(mixnet_region.take_down(nics))
        mixnet_region.kill(lost)

    for _ in rounds(samples, undo):
        mixnet_traffic.apply(plan)
        found = mixnet_traffic.takeover(
            case,
            plan,
            between,
            ranks,
            fail=fail,
            replan=replanned(testbed, among(moved)),
            backup=lambda _, ended: [names[SPARE] if n in ended else n for n in ranks],
            before=BEFORE,
        )
        assert found.failures.servers == ({lost} if case == "server" else set())
        assert found.first is not None
    measure.judge("failover")
