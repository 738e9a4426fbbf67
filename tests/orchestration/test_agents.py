"""Agents of hosts: their own switches alone, over a Unix socket, and what a dead one costs."""

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lightrig.harness.orchestration.agents import (
    AgentError,
    AgentSwitches,
    CarrierAnswer,
    HostAgent,
    ServerCarriers,
)
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Reading
from lightrig.harness.systems.acos.generator import render_rings
from lightrig.harness.systems.acos.runtime.layout import ServerRingLayout
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import LinkEvent, Settled
from lightrig.instruments.core.errors import UnreachableError
from lightrig.testbeds import Circuit, LightrigError, Port, Testbed, load
from tests.campaigns.room_agents import Hosts, RoomCarriers
from tests.campaigns.switchroom import Switchroom

AUTO = {"do": "submit", "job": "ring", "shape": {}}
BAR = frozenset({Circuit(1, 2)})


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Testbed:
    file = tmp_path_factory.mktemp("rings") / "rings.yaml"
    file.write_text(render_rings())
    return load(file)


@pytest.fixture
def hosts(testbed: Testbed) -> Hosts:
    return Hosts(Switchroom(testbed), ServerRingLayout(testbed))


@pytest.fixture
def over_socket(hosts: Hosts, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the agent of gpu1, over a Unix socket."""
    from lightrig.harness.orchestration import http_api
    from lightrig.harness.orchestration.agent_api import agent_application

    path = tmp_path / "gpu1.socket"
    agent = HostAgent(
        "gpu1", hosts.names["gpu1"], hosts.room, lambda: RoomCarriers(hosts.room, "gpu1")
    )
    listening = http_api.unix_socket(path)
    server = http_api.HttpServer(agent_application(agent), listening, None)
    transport = httpx.HTTPTransport(uds=str(path), verify=False)
    with (
        contextlib.closing(server),
        httpx.Client(base_url="http://agent", transport=transport) as client,
    ):
        yield client


@pytest.fixture
def switches(hosts: Hosts) -> Iterator[AgentSwitches]:
    with contextlib.closing(hosts.switches()) as made:
        yield made


@pytest.fixture
def service(
    testbed: Testbed, hosts: Hosts, switches: AgentSwitches, tmp_path: Path, monkeypatch
) -> Orchestrator:
    monkeypatch.setattr("lightrig.harness.orchestration.carriers.UNNOTICED_NS", 0)
    made = Orchestrator(testbed, ServerRingLayout(testbed), switches, tmp_path / "s.json")
    made.start()
    made.request(AUTO)
    for _ in range(2):
        made.step()
    return made


def nodes(service: Orchestrator) -> list[str]:
    (group,) = service.status()["jobs"]["ring"]["groups"]
    found: list[str] = group["nodes"]
    return found


def test_agents_drive_the_switches_at_their_servers_alone(hosts) -> None:
    assert hosts.names["gpu3"] == {
        "tx-gpu3-lane0", "tx-gpu3-lane1", "rx-gpu3-lane0", "rx-gpu3-lane1",
    }  # fmt: skip
    assert len(hosts.names) == 5
    assert not [name for names in hosts.names.values() for name in names if "skip" in name]


def test_an_agent_sends_nothing_to_a_switch_of_another_host(hosts, over_socket) -> None:
    orders = {
        "lead": 0,
        "circuits": {"tx-gpu1-lane0": [[1, 3]], "tx-gpu2-lane0": [[1, 3]]},
    }
    refused = over_socket.post("/v1/orders", json=orders)
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert (problem["type"], problem["title"], problem["status"]) == (
        "about:blank", "Bad Request", 400,
    )  # fmt: skip
    assert "tx-gpu2-lane0 is not at the ports of gpu1" in problem["detail"]
    assert hosts.room.commands == []
    del orders["circuits"]["tx-gpu2-lane0"]
    answer = over_socket.post("/v1/orders", json=orders).json()
    assert answer["switches"]["tx-gpu1-lane0"]["circuits"] == [[1, 3]]
    assert hosts.room.commands == [("tx-gpu1-lane0", Circuit(1, 3))]


def test_an_agent_takes_no_order_of_a_lead_that_was_followed(hosts, over_socket) -> None:
    orders = {"lead": 7, "circuits": {"tx-gpu1-lane0": [[1, 3]]}}
    assert over_socket.post("/v1/orders", json=orders).status_code == 200
    late = {"lead": 6, "circuits": {"tx-gpu1-lane0": [[1, 2]]}}
    refused = over_socket.post("/v1/orders", json=late)
    assert "lead 6 was followed by lead 7" in refused.json()["detail"]
    assert hosts.room.circuits["tx-gpu1-lane0"] == {Circuit(1, 3)}


def test_a_body_that_is_no_order_is_refused(hosts, over_socket) -> None:
    for body in (
        b"{}",
        b'{"lead": 0, "circuits": {"tx-gpu1-lane0": [[1.5, 2]]}}',
        b'{"lead": 0, "circuits": {"tx-gpu1-lane0": [[1]]}}',
        b'{"lead": true, "circuits": {}}',
        b'{"lead": 0, "circuits": {}, "more": 1}',
        b"\xff",
        b"[" * 100_000,
    ):
        assert over_socket.post("/v1/orders", content=body).status_code == 400, body[:60]
        assert over_socket.post("/v1/probe").status_code == 200
    long = over_socket.post("/v1/orders", content=b" " * ((1 << 20) + 1))
    assert (long.status_code, long.json()["status"]) == (413, 413)
    assert hosts.room.commands == []


def test_orders_go_to_the_agents_and_to_the_switches_of_no_host(hosts, switches) -> None:
    wanted = {"tx-gpu4-lane1": BAR, "rx-gpu0-lane0": frozenset({Circuit(2, 3)})}
    wanted["inner-skip-out-2-0"] = BAR
    found = switches.order(wanted)
    assert {name: each.circuits for name, each in found.items()} == wanted
    hosts.end("gpu4")
    found = switches.order(wanted)
    assert isinstance(found["tx-gpu4-lane1"], AgentError)
    assert "the agent of gpu4 does not answer" in str(found["tx-gpu4-lane1"])
    assert isinstance(found["inner-skip-out-2-0"], Reading)


def test_a_switch_that_its_agent_cannot_read_is_an_error_of_it_alone(hosts, switches) -> None:
    hosts.room.silent = {"tx-gpu2-lane1"}
    found = switches.probe(hosts.room.testbed.optical_switches)
    assert {name for name, each in found.items() if isinstance(each, LightrigError)} == {
        "tx-gpu2-lane1"
    }
    assert "did not answer" in str(found["tx-gpu2-lane1"])
    assert switches.look.silent == {}


@pytest.mark.parametrize(
    ("names", "name", "why"),
    [
        (None, "gpu0", "found the agent of gpu0 where that of gpu2 should be"),
        ({"tx-gpu2-lane0", "tx-gpu3-lane0"}, "", "holds tx-gpu3-lane0, which is at gpu3"),
        ({"tx-gpu2-lane0", "inner-skip-in-0-0"}, "", "holds inner-skip-in-0-0, which is at no"),
    ],
)
def test_an_agent_of_another_host_or_with_its_switches_is_not_believed(
    hosts, switches, names, name: str, why: str
) -> None:
    hosts.end("gpu2")
    hosts.start("gpu2", names and frozenset(names), name)
    found = switches.probe(hosts.room.testbed.optical_switches)
    wrong = {name for name, each in found.items() if isinstance(each, LightrigError)}
    assert wrong == hosts.names["gpu2"]
    assert why in switches.look.silent["gpu2"]
    assert {at.owner for at in switches.look.carriers} == {"gpu0", "gpu1", "gpu3", "gpu4"}


def test_a_dead_agent_is_named_with_its_rings_and_costs_them_nothing(service, hosts) -> None:
    hosts.end("gpu3")
    hosts.room.commands.clear()
    for _ in range(4):
        service.step()
    status = service.status()
    assert status["agents"]["gpu3"]["jobs"] == ["ring"]
    assert "does not answer" in status["agents"]["gpu3"]["error"]
    assert (status["faulty"], status["silent"], status["doubt"]) == ({}, {}, None)
    assert status["jobs"]["ring"]["ready"]
    assert hosts.room.commands == []
    hosts.start("gpu3")
    service.step()
    assert (service.status()["agents"], service.status()["settled"]) == ({}, True)


def test_another_server_is_left_out_while_an_agent_is_dead(service, hosts) -> None:
    hosts.end("gpu3")
    hosts.room.unlit = {"gpu1"}
    for _ in range(3):
        service.step()
    assert nodes(service) == ["gpu0", "gpu2", "gpu3", "gpu4"]
    assert service.status()["faulty"].keys() == {"gpu1"}
    assert service.status()["jobs"]["ring"]["ready"]


def test_the_server_of_a_dead_agent_is_left_out_without_light(service, hosts) -> None:
    hosts.end("gpu3")
    hosts.room.unlit = {"gpu3"}
    for _ in range(3):
        service.step()
    assert nodes(service) == ["gpu0", "gpu1", "gpu2", "gpu4"]
    assert service.status()["jobs"]["ring"]["ready"]


def test_a_server_whose_light_is_lost_is_found_and_its_recovery_timed(service, hosts) -> None:
    hosts.room.unlit = {"gpu1"}
    hosts.room.commands.clear()
    for _ in range(4):
        service.step()
    assert nodes(service) == ["gpu0", "gpu2", "gpu3", "gpu4"]
    assert {switch for switch, _ in hosts.room.commands} == {
        "inner-skip-out-0-0", "inner-skip-in-2-0", "inner-skip-out-2-1", "inner-skip-in-0-1",
    }  # fmt: skip
    (event,) = [each for each in service.wanted.history if "seconds" in each]
    assert event["node"] == "gpu1"
    least, most = event["seconds"]
    assert 0 <= least < most < 30
    # No carrier shows that its light is back: no circuit leads it anywhere.
    hosts.room.unlit = set()
    for _ in range(4):
        service.step()
    assert service.status()["faulty"].keys() == {"gpu1"}
    service.request({"do": "repaired", "nodes": ["gpu1"]})
    for _ in range(4):
        service.step()
    assert nodes(service) == ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4"]
    assert service.status()["faulty"] == {}


class Server:
    """A server whose carrier events are stated."""

    def __init__(self) -> None:
        self.events: list[LinkEvent] = []
        self.fails = False

    def watch(self, ports, *, period, datagram_period):
        return frozenset({("lane0", "carrier"), ("lane1", "firmware")})

    def settle(self, stages, *, timeout):
        if self.fails:
            raise UnreachableError("gpu1", "does not answer")
        events, self.events = tuple(self.events), []
        assert (stages, timeout) == ({}, 0)
        return _Done(Settled(events, (), (), {}, lambda: Span(0, 0)))


class _Done:
    def __init__(self, settled: Settled) -> None:
        self._settled = settled

    def result(self) -> Settled:
        return self._settled


def test_carriers_have_the_ages_of_their_last_change() -> None:
    server, clock = Server(), VirtualClock()
    ports = {"lane0": "gpu1.nic0.p0", "lane1": "gpu1.nic0.p1"}
    carriers = ServerCarriers(server, ports, clock, lambda: None)
    assert carriers.read() == {
        "gpu1.nic0.p0": CarrierAnswer(up=True, ages=None),
        "gpu1.nic0.p1": CarrierAnswer(up=False, ages=None),
    }
    clock.sleep(9_000)
    server.events = [
        LinkEvent("lane0", "carrier", False, Span(4_000, 4_100), "poll", None),
        LinkEvent("lane1", "firmware", True, Span(4_500, 4_600), "poll", None),
        LinkEvent("lane0", "carrier", True, Span(7_000, 7_300), "poll", None),
    ]
    assert carriers.read() == {
        "gpu1.nic0.p0": CarrierAnswer(up=True, ages=(2_000, 1_700)),
        "gpu1.nic0.p1": CarrierAnswer(up=False, ages=None),
    }
    clock.close()


def test_carriers_that_cannot_be_read_are_absent_and_read_anew(hosts) -> None:
    opened, server, clock = [], Server(), VirtualClock()

    def open_carriers() -> ServerCarriers:
        opened.append("opened")
        ports = {"lane0": "gpu1.nic0.p0"}
        return ServerCarriers(server, ports, clock, lambda: opened.append("closed"))

    agent = HostAgent("gpu1", hosts.names["gpu1"], hosts.room, open_carriers)
    assert agent.probe().carriers is not None
    server.fails = True
    answer = agent.probe()
    assert (answer.carriers, len(answer.switches)) == (None, 4)
    server.fails = False
    assert agent.probe().carriers is not None
    assert opened == ["opened", "closed", "opened"]
    agent.close()
    assert opened[-1] == "closed"
    clock.close()


ANSWER = {"host": "gpu0", "holds": [], "switches": {}, "took": 300}
UP = {"up": True, "ages": None}


@pytest.mark.parametrize(
    ("status", "headers", "content", "problem"),
    [
        (200, {}, {**ANSWER, "carriers": {"": UP}}, "tells of '', no port of its server"),
        (200, {}, {**ANSWER, "carriers": {"gpu1.nic0": UP}}, "tells of 'gpu1.nic0', no port"),
        (
            200,
            {"Content-Encoding": "gzip"},
            gzip.compress(bytes(1 << 20), mtime=0),
            "something else",
        ),
        (200, {}, (1 << 24) + 1, "its answer is longer than 16 MiB"),
        (500, {"Content-Type": "text/plain; charset=idna"}, b"xn--\xff", r"refused: xn--\xff"),
        (500, {"Content-Type": "text/plain; charset=zlib"}, b"[" * 10_000, "refused: [["),
    ],
)
def test_a_hostile_answer_is_an_error_of_its_agent(
    hosts, status: int, headers: dict[str, str], content: object, problem: str
) -> None:
    """It ended the service. A number is that of zero bytes."""
    if isinstance(content, int):
        body = bytes(content)
    else:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
    given = httpx.MockTransport(
        lambda request: httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
    )
    with httpx.Client(base_url="http://agent", transport=given) as client:
        alone = AgentSwitches({"gpu0": hosts.names["gpu0"]}, {"gpu0": client}, hosts.room)
        found = alone.probe(hosts.names["gpu0"])
        assert {type(each) for each in found.values()} == {AgentError}
        assert problem in str(next(iter(found.values())))
        alone.close()


def test_an_answer_that_does_not_end_is_given_up(hosts, monkeypatch) -> None:
    monkeypatch.setattr("lightrig.harness.orchestration.agents._PROBE_TIMEOUT_S", 0.2)
    over = threading.Event()

    class Dripping(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while not over.wait(0.01):
                yield b" "

    given = httpx.MockTransport(lambda request: httpx.Response(200, stream=Dripping()))
    with httpx.Client(base_url="http://agent", transport=given) as client:
        alone = AgentSwitches({"gpu0": hosts.names["gpu0"]}, {"gpu0": client}, hosts.room)
        (found, *_) = alone.probe(hosts.names["gpu0"]).values()
        over.set()
        alone.close()
    assert "does not end within 0.2 s" in str(found)


def test_ages_are_turned_to_spans_that_hold_the_moment(hosts, switches, monkeypatch) -> None:
    """Sent at 1000, read 300 later or more, received at 1500; it changed 50 to 40 before."""
    # The answer is followed by two looks at the clock.
    moments = iter([900, 1_000, 1_000, 1_400, 1_500, 1_600])
    monkeypatch.setattr("lightrig.harness.orchestration.agents.boot_time", lambda: next(moments))
    answer = {
        "host": "gpu0", "holds": [], "switches": {}, "took": 300,
        "carriers": {"gpu0.nic0.p1": {"up": False, "ages": [50, 40]}},
    }  # fmt: skip
    body = httpx.ByteStream(json.dumps(answer).encode())
    given = httpx.MockTransport(lambda request: httpx.Response(200, stream=body))
    with httpx.Client(base_url="http://agent", transport=given) as client:
        alone = AgentSwitches({"gpu0": hosts.names["gpu0"]}, {"gpu0": client}, hosts.room)
        alone.probe(hosts.names["gpu0"])
        assert alone.look.at == (900, 1_600)
        (carrier,) = alone.look.carriers.values()
        assert alone.look.carriers.keys() == {Port("gpu0", "nic0.p1")}
        assert carrier.since == (1_250, 1_460)
        alone.close()
