"""Servers that select topologies by themselves, in virtual time on simulated switches and NICs."""

import pathlib

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.acos.runtime.selection import (
    CollectiveTimeoutError,
    NoLinkError,
    NumberedCollectives,
    SelectionAgent,
    central_part,
    groups,
    selection_switches,
)
from lightrig.instruments.core.errors import NotDoneError
from lightrig.testbeds import LightrigError, load

TP, DP = "tp8-dp2-on-tp", "tp8-dp2-on-dp"
OPERATION_NS = 50_000_000
SECOND = 1_000_000_000


class Rig:
    """Sixteen agents on a simulated fabric whose adaptation switches are set."""

    def __init__(self, bench, link_timeout_ns=60 * SECOND):
        self.clock = bench.clock
        self.fabric = Fabric(bench)
        testbed = bench.testbed
        self.fabric.apply(central_part(testbed, testbed.plans[TP]))
        self.library = NumberedCollectives(
            self.clock,
            groups(testbed, (TP, DP)),
            lambda group, number, topology: self.clock.sleep(OPERATION_NS),
            timeout_ns=120 * SECOND,
        )
        self.agents = {
            server: SelectionAgent(
                self.fabric, server, self.library, link_timeout_ns=link_timeout_ns
            )
            for server in testbed.servers
        }

    def run(self, programs, compute_ns=None):
        """Run all agents side by side; return what each passed, and the errors by server."""
        passed = {server: [] for server in programs}
        failed = {}

        def task(server):
            def work():
                try:
                    delays = (compute_ns or {}).get(server, ())
                    self.agents[server].run(programs[server], delays, passed[server].append)
                except LightrigError as error:
                    failed[server] = error

            return work

        self.clock.parallel(*(task(server) for server in programs))
        return passed, failed


@pytest.fixture(scope="module")
def testbed():
    return load(pathlib.Path("testbeds/acos.yaml"))


@pytest.fixture
def rig(testbed):
    bench = bind(testbed, "simulated", 1)
    yield Rig(bench)
    bench.close()


def everyone(rig, *program):
    return dict.fromkeys(rig.agents, program)


def test_a_server_moves_the_switches_of_its_ports_alone(rig):
    switches = [set(agent.switches) for agent in rig.agents.values()]
    assert all(len(each) == 4 for each in switches)
    assert len(set().union(*switches)) == 64
    testbed = rig.fabric.testbed
    assert selection_switches(testbed, "gpu3") == [
        f"{side}-gpu3-lane{lane}" for lane in (0, 1) for side in ("tx", "rx")
    ]
    assert len(central_part(testbed, testbed.plans[TP]).circuits) == 12


def test_collectives_on_two_topologies_begin_as_soon_as_their_links_are_up(rig):
    passed, failed = rig.run(everyone(rig, DP, TP, TP, DP))
    assert not failed
    for at_boundary in zip(*passed.values(), strict=True):
        number = at_boundary[0].number
        moved = {boundary.switched is not None for boundary in at_boundary}
        assert moved == {number != 2}  # the third collective stays on its topology
        for boundary in at_boundary:
            if boundary.switched is not None:
                # 8 ms of a switch and what the host's calls take.
                assert 7_000_000 < boundary.switched.latest - boundary.sent.earliest < 20_000_000
                assert boundary.switched.latest < boundary.linked <= boundary.began
    final = rig.fabric.plans[DP].circuits
    present = {name: rig.fabric.bench.switches[name].circuits() for name in final}
    assert present == final


@pytest.mark.long
def test_a_late_server_delays_only_those_that_depend_on_it(rig):
    late = {"gpu3": (20 * SECOND, 0)}
    passed, failed = rig.run(everyone(rig, DP, TP), late)
    assert not failed
    began = {server: [each.began for each in found] for server, found in passed.items()}
    prompt = min(began["gpu0"][0], began["gpu5"][0])
    # Its partner of the first collective waits for it; nobody else does.
    for server, (first, _) in began.items():
        assert (first > prompt + 19 * SECOND) == (server in {"gpu3", "gpu11"})
    # The second one joins gpu0 to gpu7, and gpu8 to gpu15 with the partner that was delayed.
    assert all(second > prompt + 19 * SECOND for _, second in began.values())


@pytest.mark.long
def test_a_dead_server_stops_its_collectives_alone_and_is_named(rig):
    programs = everyone(rig, DP, TP)
    del programs["gpu3"]  # its switches stay at TP
    passed, failed = rig.run(programs)
    assert isinstance(failed["gpu11"], NoLinkError)
    assert "gpu11.nic0.p0 from gpu3.nic0.p1" in str(failed["gpu11"])
    # Light says nothing of a process: at TP its neighbours see its light, and wait to be joined.
    of_it = {f"gpu{n}" for n in (0, 1, 2, 4, 5, 6, 7)}
    for server in of_it:
        assert isinstance(failed[server], CollectiveTimeoutError)
        assert "in collective 1" in str(failed[server])
        assert "for gpu3:" in str(failed[server])
    finished_first = {server for server, found in passed.items() if found}
    assert finished_first == set(programs) - {"gpu11"}


@pytest.mark.long
def test_a_server_with_a_wrong_program_is_named_by_its_neighbours(rig):
    programs = everyone(rig, DP, TP) | {"gpu3": (DP, DP)}
    passed, failed = rig.run(programs)
    assert {len(found) for server, found in passed.items() if server not in failed} == {2}
    for neighbour in ("gpu2", "gpu4"):
        assert isinstance(failed[neighbour], NoLinkError)
        assert "from gpu3.nic0" in str(failed[neighbour])
    assert isinstance(failed["gpu3"], CollectiveTimeoutError)
    assert "gpu11" in str(failed["gpu3"])
    assert set(failed) == {f"gpu{n}" for n in range(8)}


def test_a_switch_that_acknowledges_and_does_not_move_is_named(rig, monkeypatch):
    bench = rig.fabric.bench
    stuck = bench.switches["rx-gpu5-lane1"]
    # It acknowledges the position where it stands.
    now = next(n for n, circuits in stuck.positions.items() if circuits == stuck.circuits())
    move = type(stuck).move
    monkeypatch.setattr(stuck, "move", lambda position: move(stuck, now))
    _, failed = rig.run(everyone(rig, DP))
    assert isinstance(failed["gpu5"], NotDoneError)
    assert "rx-gpu5-lane1" in str(failed["gpu5"])
    assert set(failed) == {"gpu5", "gpu13"}
