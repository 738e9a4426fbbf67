"""Do circuits that follow the tokens pay on real links, and does traffic outlive what fails?

One rank on each server of `testbeds/mixnet8.yaml` sends to the others what a generated gate sends
to its two most loaded experts. Rates are the kernel's; how much they can teach about a switch
between GPUs is in docs/traffic.md.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from harness.fabrics.mixnet import (
    Failures,
    Gating,
    Placement,
    Routing,
    pair_demand,
    plan_testbed,
    server_traffic,
)
from harness.measure.failover import under_traffic, with_a_new_rank
from testbeds import Plan, Port

pytestmark = pytest.mark.of_testbed("mixnet8")

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


@pytest.mark.parametrize("gate", [1, 3])
def test_chosen_circuits_pay(exchanges, fabric, measure, testbed, samples, gate):
    """As much as the model of flows predicts, within 15 %, against circuits that know no demand.

    The baseline is as many ports on Ethernet, without circuits and their price: it is recorded.
    """
    traffic = tokens(len(testbed.servers), gate)
    uniform = fabric.plans["uniform"]
    chosen = plan_testbed(testbed, pair_demand(traffic), "chosen", uniform)
    plans = uniform, chosen, fabric.plans["packet"]
    iterations = max(min(samples, 20), 6)
    found = {
        plan.name: measure.exchange(exchanges, plan, traffic, iterations=iterations)
        for plan in plans
    }
    measure.speedup(found["packet"], found["chosen"])
    gained = measure.speedup(found["uniform"], found["chosen"])
    assert gained.lower > 1
    assert gained.off <= TOLERANCE
    measure.judge("exchange")


ROUNDS = 6
"""So many events have a median with an interval."""

BEFORE, AFTER = 300_000_000, 1_500_000_000
"""How long traffic runs before a failure and after each step, in ns."""

SPARE = 7
"""The server whose GPU waits for another's to fail."""


def busiest(routing: Routing, traffic: np.ndarray, medium: str) -> Port:
    """The sending port of the pair that says most by one hop of `medium`."""
    pairs = np.argwhere(traffic > 0).tolist()
    hops = {(a, b): routing.route(a, b) for a, b in pairs}
    fitting = [pair for pair in pairs if [hop.medium for hop in hops[tuple(pair)]] == [medium]]
    a, b = max(fitting, key=lambda pair: traffic[tuple(pair)])
    return hops[a, b][0].ports[0][0]


@pytest.fixture
def working(exchanges, fabric, testbed):
    """Traffic, a plan for it, and how to let work again what a test let fail."""
    traffic = tokens(len(testbed.servers), 1) // 10
    plan = plan_testbed(testbed, pair_demand(traffic), "chosen", fabric.plans["uniform"])
    undo: list[Callable[[], None]] = []
    yield traffic, plan, undo
    while undo:
        undo.pop()()


def rounds(samples: int, undo: list[Callable[[], None]]) -> Iterator[int]:
    """Numbers of a few events, after each of which everything works again."""
    for number in range(min(samples, ROUNDS)):
        yield number
        while undo:
            undo.pop()()


def replanned(testbed, traffic) -> Callable[[Failures, Plan], Plan]:
    """The regional controller: it leaves out what failed and runs Algorithm 1 again (§5.4)."""

    def replan(failures: Failures, plan: Plan) -> Plan:
        return plan_testbed(testbed, pair_demand(traffic), "anew", plan, failures)

    return replan


@pytest.mark.parametrize("case", ["link", "NIC", "packet NIC", "packet link"])
def test_traffic_outlives(exchanges, fabric, measure, testbed, working, samples, case):
    """Without a circuit it goes by packets, without a packet NIC by a circuit to a peer (§5.4)."""
    traffic, plan, undo = working
    routing = exchanges.routing(plan)
    port = busiest(routing, traffic, "packet" if "packet" in case else "optical")
    other = next((m.b if m.a == port else m.a for m in routing.links if port in (m.a, m.b)), None)
    if other is None:
        other = testbed.cabling.fiber_from(port).sink
    failing = exchanges.take_down if "NIC" in case else exchanges.cut
    ports = [port] if "NIC" in case else [port, other]
    for _ in rounds(samples, undo):
        measure.bring_in(exchanges, plan)
        found = measure.failover(
            partial(
                under_traffic,
                over=exchanges,
                case=case,
                plan=plan,
                traffic=traffic,
                fail=lambda: undo.append(failing(ports)),
                replan=replanned(testbed, traffic),
                before=BEFORE,
                after=AFTER,
            )
        )
        lit = {end for link in fabric.links(found.plan) for end in (link.a, link.b)}
        assert found.failures.ports == (set(ports) if case == "link" else {port})
        assert not lit & set(ports)
        assert found.survived
        assert found.first is not None
    measure.judge("failover")


@pytest.mark.parametrize("case", ["GPU", "server"])
def test_another_takes_over(exchanges, fabric, measure, testbed, working, samples, case):
    """A rank whose GPU or server failed begins anew on the spare one, as from a checkpoint (§5.4).

    A failed server is left out of the circuits, a failed GPU's server is not: its NICs work.
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
            undo.append(exchanges.take_down(nics))
        exchanges.kill(lost)

    for _ in rounds(samples, undo):
        measure.bring_in(exchanges, plan)
        found = measure.failover(
            partial(
                with_a_new_rank,
                over=exchanges,
                case=case,
                plan=plan,
                traffic=between,
                ranks=ranks,
                fail=fail,
                replan=replanned(testbed, among(moved)),
                backup=lambda _, ended: [names[SPARE] if n in ended else n for n in ranks],
                before=BEFORE,
            )
        )
        assert found.failures.servers == ({lost} if case == "server" else set())
        assert found.first is not None
    measure.judge("failover")
