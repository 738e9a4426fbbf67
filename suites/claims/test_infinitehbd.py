"""How fast do OCSTrx modules switch, and how soon does a ring of servers close past a dead one?"""

import importlib.util
from functools import partial

import pytest

from harness.fabrics.infinitehbd import RingManager, plan_of, wiring_of
from harness.fabrics.rings import ring_order
from harness.measure.bypass import Collective, pass_dead_server, take_back
from harness.measure.measure import LINK_TIMEOUT

SIZE = 1 << 20
"""Of an all-reduce, in bytes."""

MOST_DEATHS = 10
MOST_CHANGES = 60
"""As many as say surely of a 95th percentile that it keeps a limit."""

TEMPERATURES_C = (-5, 25, 50, 75)
"""As the paper (§5.1) tested its modules."""

GATES = 6
"""As many as give a median an interval."""


@pytest.mark.of_testbed("infinitehbd")
@pytest.mark.parametrize("session", ["written", "preloaded"])
def test_switch_time(measure, transition, power_meter, samples, session):
    """Between any two paths, in a meter's fast log (§5.1); preloaded, or not (App. G.1)."""
    plans = transition.before, transition.after
    measure.path_changes(power_meter, plans, session, min(samples, MOST_CHANGES))
    measure.judge("path_change")


@pytest.mark.of_testbed("infinitehbd")
@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, scope="session")
def test_bits_on_the_crossed_lanes(
    measure, bit_error_tester, attenuator, climate_chamber, temperature_c
):
    """The loopback leads each half of the lanes to the other: what comes back there, and how."""
    measure.hold_temperature(climate_chamber, temperature_c)
    errors = measure.bit_errors(bit_error_tester, attenuator, channel=2)
    errors.count(GATES)
    errors.over_power(attenuator)
    measure.judge("bit_error_ratio")


class Ring:
    """The servers of a testbed in one ring, and the managers that close it past the dead."""

    def __init__(self, testbed, bench):
        self.testbed, self.bench = testbed, bench
        self.servers = list(testbed.servers)
        manager, _ = RingManager.start(wiring_of(testbed))
        self.manager = manager.switched()
        self.undo = {}

    def kill(self, server):
        """Let its transmitters go dark."""
        self.undo[server] = self.bench.world.power_off(server)

    def revive(self, server):
        """Give it its light again."""
        self.undo.pop(server)()

    def without(self, server):
        """What nodes change when it has failed."""
        self.manager, moves = self.manager.failed(self.servers.index(server))
        return plan_of(f"without {server}", moves)

    def again_with(self, server):
        """What nodes change when it is back."""
        self.manager, moves = self.manager.repaired(self.servers.index(server))
        return plan_of(f"again with {server}", moves)

    def order(self, plan):
        """Those that live, in the order of the ring that a plan closes."""
        alive = [self.servers[node] for node in self.manager.healthy]
        return ring_order(alive, self.testbed.links(plan))


@pytest.fixture
def ring(testbed, bench):
    if any(not server.address.startswith("netns://") for server in testbed.servers.values()):
        pytest.skip("no server of this testbed may be killed: they are computers")
    made = Ring(testbed, bench)
    yield made
    for server in list(made.undo):
        made.revive(server)


def die_and_return(ring, fabric, measure, server, collective=None):
    """One server dies and comes back; the ring is as it was found."""
    whole = fabric.plans["whole"]
    measure.bring_up(whole)
    found = {name: switch.circuits() for name, switch in ring.bench.switches.items()}
    measure.passage(
        partial(
            pass_dead_server,
            held=whole,
            server=server,
            kill=partial(ring.kill, server),
            planned=partial(ring.without, server),
            collective=collective,
            timeout=LINK_TIMEOUT,
        )
    )
    ring.manager = ring.manager.switched()
    measure.passage(
        partial(
            take_back,
            server=server,
            revive=partial(ring.revive, server),
            planned=partial(ring.again_with, server),
            collective=collective,
            timeout=LINK_TIMEOUT,
        )
    )
    ring.manager = ring.manager.switched()
    assert {name: switch.circuits() for name, switch in ring.bench.switches.items()} == found


@pytest.mark.of_testbed("infinitehbd5")
def test_the_ring_closes_past_a_dead_server(ring, fabric, measure, samples):
    """Its neighbours take their backup links (§4.2); carriers and datagrams say when these run."""
    for index in range(min(samples, MOST_DEATHS)):
        die_and_return(ring, fabric, measure, ring.servers[index % len(ring.servers)])
    measure.judge("bypass")


@pytest.mark.of_testbed("infinitehbd5")
def test_all_reduces_go_on_past_a_dead_server(request, ring, fabric, measure, samples):
    """The same under traffic: its program dies with it, and the others' begin anew."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    collectives = request.getfixturevalue("collectives")
    collective = Collective(collectives.traffic, collectives.route, ring.order, SIZE)
    for index in range(min(samples, MOST_DEATHS)):
        die_and_return(ring, fabric, measure, ring.servers[index % len(ring.servers)], collective)
    measure.judge("bypass")
