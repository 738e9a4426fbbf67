"""What an orchestrator wants, orders and states, with uneven data and states by hand."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightrig.harness.orchestration import agents
from lightrig.harness.orchestration.agents import AgentSwitches, CarrierAnswer, HostAgent
from lightrig.harness.orchestration.carriers import UNNOTICED_NS, Carrier, LinkLight, Look
from lightrig.harness.orchestration.health import HITS, MISSES, Health
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Outcomes, Reading, SimulatedSwitches
from lightrig.harness.orchestration.wanted import Wanted
from lightrig.harness.orchestration.wiring import wiring_of
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.harness.systems.railx.generator import render as render_grid
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.instruments.clock import Span
from lightrig.testbeds import Circuit, Link, Port, Testbed, load
from tests.campaigns.switchroom import Switchroom

LOOPBACK = frozenset({Circuit(1, 4)})
S = 1_000_000_000
Start = Callable[[], Orchestrator]


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    (tmp_path / "row.yaml").write_text(render(9, hops=2))
    return load(tmp_path / "row.yaml")


@pytest.fixture
def room(testbed: Testbed) -> Switchroom:
    return Switchroom(testbed)


@pytest.fixture
def start(room: Switchroom, tmp_path: Path) -> Start:
    def started() -> Orchestrator:
        service = Orchestrator(room.testbed, RowLayout(room.testbed), room, tmp_path / "s.json")
        service.start()
        return service

    return started


def submit(job: str, size: int, **more: Any) -> Mapping[str, Any]:
    return {"do": "submit", "job": job, "shape": {"size": size}, **more}


def modules(*numbers: int) -> set[str]:
    return {f"trx{bundle}-node{number}" for number in numbers for bundle in (0, 1)}


def events(service: Orchestrator) -> list[str]:
    return [each["event"] for each in service.wanted.history]


# ------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("reserve", [False, True])
def test_a_request_that_comes_twice_changes_nothing_twice(
    start: Start, room: Switchroom, tmp_path: Path, reserve: bool
) -> None:
    """Neither an event, nor an order, nor the state on disk; a reservation does not start."""
    service = start()
    first = service.request(submit("a", 3, reserve=reserve))
    stored, noted = (tmp_path / "s.json").read_text(), events(service)
    room.commands.clear()
    again = service.request(submit("a", 3, reserve=reserve))
    assert again == first
    assert events(service) == noted
    assert ((tmp_path / "s.json").read_text(), room.commands) == (stored, [])
    assert again["jobs"]["a"]["reserved"] is reserve
    assert again["jobs"]["a"]["ready"] is not reserve
    assert (set(room.circuits.values()) == {LOOPBACK}) is reserve


def test_a_reserved_job_starts_once(start: Start) -> None:
    service = start()
    service.request(submit("a", 3, reserve=True))
    service.request(submit("a", 3))
    assert events(service).count("job a starts") == 1
    stays = service.request(submit("a", 3, reserve=True))  # it has started: that takes nothing back
    assert (stays["jobs"]["a"]["reserved"], stays["jobs"]["a"]["ready"]) == (False, True)
    assert events(service).count("job a starts") == 1


def test_a_plan_names_the_switches_that_have_other_circuits(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Of nine nodes with two modules each, three are joined: six modules change, as read."""
    room = Switchroom(testbed)
    room.circuits = dict.fromkeys(room.circuits, LOOPBACK)
    service = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    plan = service.plan(submit("a", 3))
    assert plan.name == "submit"
    assert set(plan.circuits) < modules(0, 1, 2)
    assert all(circuits != LOOPBACK for circuits in plan.circuits.values())
    assert (room.commands, service.status()["jobs"]) == ([], {})  # the caller orders
    for name, circuits in plan.circuits.items():
        room.circuits[name] = circuits
    service.done()
    assert service.status()["jobs"]["a"]["ready"]
    assert service.status()["settled"]
    assert service.plan({"do": "status"}).circuits == {}


# ------------------------------------------------------------------------------- orders and probes


class Asked(Switchroom):
    """Switches of which a probe takes so long that a request comes meanwhile; `orders` came."""

    meanwhile: Callable[[], object] | None = None
    orders = 0

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """Count the order, and carry it out."""
        self.orders += 1
        return super().order(wanted)

    def probe(self, names: Collection[str]) -> Outcomes:
        """Read, and then have the request made."""
        found = super().probe(names)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return found


def test_readings_older_than_an_order_are_not_taken_for_what_it_left(
    testbed: Testbed, tmp_path: Path
) -> None:
    """The circuits of before would be taken for the present ones, and each order come again."""
    room = Asked(testbed)
    service = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    service.start()
    before = room.orders
    room.meanwhile = lambda: service.request(submit("a", 3))
    service.step()
    assert room.orders == before + 1
    assert service.status()["jobs"]["a"]["ready"]
    assert service.status()["settled"]
    assert not [event for event in events(service) if event.endswith("not set")]


def test_what_a_switch_holds_after_a_refused_order_is_not_known(tmp_path: Path) -> None:
    """The first job has its circuits on the switches that refuse the second one's."""
    (tmp_path / "grid.yaml").write_text(render_grid(4, 1, mesh=1, ports=2))
    testbed = load(tmp_path / "grid.yaml")
    room, layout = Switchroom(testbed), GridLayout(testbed)
    service = Orchestrator(testbed, layout, room, tmp_path / "s.json")
    service.start()
    status = service.request({"do": "submit", "job": "a", "shape": {"columns": 2, "rows": 1}})
    assert status["jobs"]["a"]["ready"]
    room.commands.clear()
    service.request({"do": "submit", "job": "b", "shape": {"columns": 2, "rows": 1}})
    shared = {name for name, _ in room.commands}
    assert shared
    service.request({"do": "withdraw", "job": "b"})
    room.refusing = shared
    refused = service.request({"do": "submit", "job": "b", "shape": {"columns": 2, "rows": 1}})
    assert (refused["settled"], refused["jobs"]["b"]["ready"]) == (False, False)
    assert not refused["jobs"]["a"]["ready"]
    assert "job a: circuits are not set" in events(service)
    room.refusing = set()
    service.step()
    status = service.status()
    assert (status["settled"], status["jobs"]["a"]["ready"], status["jobs"]["b"]["ready"]) == (
        True,
        True,
        True,
    )


def test_the_history_keeps_the_newest_thousand_events() -> None:
    wanted = Wanted()
    for count in (150, 1_000, 50):
        first = wanted.epoch
        wanted = wanted.noting(*(f"event {first + number}" for number in range(1, count + 1)))
    assert (wanted.epoch, len(wanted.history)) == (1_200, 1_000)
    assert [each["event"] for each in wanted.history] == [f"event {n}" for n in range(201, 1_201)]
    assert [each["epoch"] for each in wanted.history] == [*range(201, 1_201)]


def test_nodes_whose_light_no_monitor_shows_are_used_again_when_they_are_repaired(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Of two dark nodes one is repaired: the other stays dark, and keeps its reason."""
    room = Switchroom(testbed, monitors="egress")
    service = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    service.start()
    for job in ("a", "b", "c"):
        service.request(submit(job, 3))
    room.unlit = {"node1", "node4"}
    for _ in range(MISSES):
        service.step()
    assert service.status()["faulty"].keys() == {"node1", "node4"}
    room.monitors, room.unlit = "none", {"node4"}
    service.step()
    status = service.request({"do": "repaired", "nodes": ["node1"]})
    assert status["faulty"].keys() == {"node4"}
    assert service.wanted.dark.keys() == {"node4"}
    assert "node node1 may be used again" in events(service)
    assert "node node4 may be used again" not in events(service)


# ----------------------------------------------------------------------------------------- health


def test_the_last_part_that_falls_silent_after_others_failed_is_no_doubt() -> None:
    """Of two parts at a host the first fails; when the second does, one part is no sign of it."""
    health = Health({"the host": frozenset("ab")})
    for _ in range(MISSES):
        health.note({"a": "silent"}, {"b"})
    assert health.failed == {"a": "silent"}
    for _ in range(MISSES):
        health.note({"a": "silent", "b": "mute"}, set())
        assert health.doubt is None
    assert health.failed == {"a": "silent", "b": "mute"}


def test_two_of_three_parts_left_that_fall_silent_are_a_doubt() -> None:
    health = Health({"a rack": frozenset("abc")})
    for _ in range(MISSES):
        health.note({"a": "silent"}, set("bc"))
    health.note(dict.fromkeys("abc", "mute"), set())
    assert health.doubt is not None
    assert health.doubt.startswith("all 2 of a rack fell silent at once")
    assert health.doubt.endswith("(b: mute)")
    assert health.failed == {"a": "silent"}


def test_failures_of_before_are_forgotten_after_96_answers() -> None:
    """Twice failed it needs 6 answers; 95 later that is so still, after 96 it is 3 again."""
    for answers, needed in ((95, 12), (96, 3)):
        health = Health({})

        def fail(health: Health = health) -> int:
            for _ in range(MISSES):
                health.note({"a": "silent"}, set())
            rounds = 0
            while "a" in health.failed:
                health.note({}, {"a"})
                rounds += 1
            return rounds

        assert [fail(), fail()] == [HITS, 2 * HITS]
        for _ in range(answers - 2 * HITS):
            health.note({}, {"a"})
        assert fail() == needed


# --------------------------------------------------------------------------------------- carriers

PAIR = [Link(Port("a", "p0"), Port("b", "p0"))]


@pytest.mark.parametrize(
    ("since_s", "lit"),
    [
        # The circuits are set at 10.002 s, the end of the look that first has them.
        ((9.0, 9.5), False),
        ((10.0, 10.1), False),  # it may have come before them
        ((10.002, 10.1), True),
        ((10.05, 10.1), True),
    ],
)
def test_light_that_may_be_of_the_circuits_before_does_not_count(
    since_s: tuple[float, float], lit: bool
) -> None:
    light = LinkLight()
    dark = {Port(node, "p0"): Carrier(False) for node in "ab"}
    light.note(PAIR, Look(Span(10 * S, 10 * S + 2_000_000), dark))
    since = Span(*(round(each * S) for each in since_s))
    up = {Port("a", "p0"): Carrier(True, since), Port("b", "p0"): Carrier(False)}
    _, arriving = light.note(PAIR, Look(Span(10 * S + 300_000_000, 10 * S + 300_000_001), up))
    assert arriving == ({"b"} if lit else set())


def test_a_carrier_counts_a_second_after_its_circuits_were_set() -> None:
    light = LinkLight()
    up = {Port(node, "p0"): Carrier(True) for node in "ab"}
    light.note(PAIR, Look(Span(10 * S, 10 * S + 500), up))
    for begun, lit in ((UNNOTICED_NS + 499, set()), (UNNOTICED_NS + 500, {"a", "b"})):
        at = 10 * S + begun
        assert light.note(PAIR, Look(Span(at, at + 900), up))[1] == lit


def test_the_moment_of_a_carrier_holds_the_truth_however_long_switches_take(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes while the switches are read (300 ms) and while the carriers are (20 ms)."""
    now = [1_000_000_000]
    truth = 900_000_000
    monkeypatch.setattr(agents, "boot_time", lambda: now[0])

    class SlowRoom(Switchroom):
        def probe(self, names: Collection[str]) -> Outcomes:
            now[0] += 300_000_000
            return super().probe(names)

    class SlowCarriers:
        def read(self) -> Mapping[str, CarrierAnswer]:
            now[0] += 20_000_000
            ages = now[0] - truth + 1_000_000, now[0] - truth - 1_000_000
            return {"node3.nic0": CarrierAnswer(up=False, ages=ages)}

        def partners(self) -> None:
            pass

        def close(self) -> None:
            """Nothing is open."""

    agent = HostAgent("node3", modules(3), SlowRoom(testbed), SlowCarriers)

    def answer(request: httpx.Request) -> httpx.Response:
        now[0] += 2_000_000  # on the way
        found = agent.probe()
        now[0] += 5_000_000
        return httpx.Response(200, stream=httpx.ByteStream(found.model_dump_json().encode()))

    client = httpx.Client(base_url="http://agent", transport=httpx.MockTransport(answer))
    hosts = {"node3": frozenset(modules(3))}
    switches = AgentSwitches(hosts, {"node3": client}, Switchroom(testbed))
    switches.probe(modules(3, 4))
    since = switches.look.carriers[Port("node3", "nic0")].since
    assert since is not None
    # 1 ms to either side, and the way there and back.
    assert since.earliest <= truth - 1_000_000 < truth + 1_000_000 <= since.latest
    assert since.latest - since.earliest <= 2_000_000 + 2_000_000 + 5_000_000
    assert switches.look.at == (1_000_000_000, now[0])
    switches.close()


# ----------------------------------------------------------------------------- wiring and switches

UNEVEN = """
name: uneven
switches:
  ocs: {model: polatis, address: "tl1://ocs.lab", size: 4x6}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: ens1f0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -14 dBm, max: 4 dBm}}
fibers: [server0.nic0 -> ocs.2, server1.nic0 -> ocs.3, ocs.7 -> server1.nic0, ocs.9 -> server0.nic0]
"""


def test_the_wiring_of_uneven_sides_by_hand(tmp_path: Path) -> None:
    (tmp_path / "uneven.yaml").write_text(UNEVEN)
    testbed = load(tmp_path / "uneven.yaml")
    wiring = wiring_of(testbed)
    assert dict(wiring.switches) == {"ocs": "ocs.lab"}
    assert wiring.ingress("ocs") == {2, 3}
    assert wiring.lights("ocs") == {2: "server0", 3: "server1"}
    assert wiring.loops("ocs") == {"server0": Circuit(2, 9), "server1": Circuit(3, 7)}
    switches = SimulatedSwitches(testbed)
    for wanted, problem in (
        ({Circuit(2, 9), Circuit(3, 7)}, None),
        ({Circuit(2, 9), Circuit(2, 7)}, "a port is in two circuits"),
        ({Circuit(2, 9), Circuit(3, 9)}, "a port is in two circuits"),
        ({Circuit(4, 7), Circuit(3, 9)}, "no fiber leads to ingress port 4"),
        ({Circuit(7, 9)}, "no fiber leads to ingress port 7"),
    ):
        (found,) = switches.order({"ocs": frozenset(wanted)}).values()
        assert (problem or "Reading") in (str(found) if problem else repr(found))
    assert switches.probe(["ocs"]) == {"ocs": Reading(frozenset({Circuit(2, 9), Circuit(3, 7)}))}
