"""docs/appendix/probe.md against the real probe and against the simulated one."""

import contextlib
import ctypes
import functools
import itertools
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import STRAIGHT, describe, set_circuits
from real_time import LONG

from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.linux import PROBE
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks, KernelPort
from lightrig.instruments.switches.polatis import Polatis
from lightrig.instruments.wire.namespace import NamespaceShell
from lightrig.instruments.wire.shell import Shell
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.testbeds import load

PORTS = ("ens1f0", "ens1f1")

NOTHING = {
    "settled": True,
    "missing": [],
    "events": [],
    "gaps": [],
    "late": [],
    "steps": [],
    "datagrams": {},
    "departures": {},
}


class Probe:
    """A probe that was started through a shell, and what it has answered."""

    def __init__(self, shell: Shell, clock: Clock) -> None:
        self.clock = clock
        self.lines: list[dict[str, Any]] = []
        self._more = clock.event()
        self._numbers = itertools.count(1)
        self.read_until = 0
        command = [shell.python, "-u", "-c", PROBE.bootstrap, "lightrig-probe", "1"]
        self._channel = shell.start(command, self)
        self._channel.send(PROBE.packed())

    def line(self, text: str) -> None:
        self.lines.append(json.loads(text))
        self._more.set()

    def ended(self, reason: str) -> None:
        self._more.set()

    def write(self, text: str) -> None:
        self._channel.send(text)

    def send(self, do: str, **fields: Any) -> int:
        number = next(self._numbers)
        self.write(json.dumps({"id": number, "do": do, **fields}))
        return number

    def reply(self, number: int | None) -> dict[str, Any]:
        """Wait for the answer to request `number`."""
        while True:
            for index, lines in enumerate(self.lines):
                if lines["id"] == number:
                    return self.lines.pop(index)
            self._more = self.clock.event()
            if not any(lines["id"] == number for lines in self.lines):
                assert self._more.wait(LONG), f"no answer to {number}: {self.lines}"

    def ask(self, do: str, **fields: Any) -> Any:
        reply = self.reply(self.send(do, **fields))
        assert set(reply) == {"id", "at", "slewed", "ok"}, reply
        received, sent = reply["at"]
        assert received <= sent
        return reply["ok"]

    def refusal(self, do: str, **fields: Any) -> str:
        return self.kind_of(self.reply(self.send(do, **fields)))

    @staticmethod
    def kind_of(reply: dict[str, Any]) -> str:
        assert set(reply) == {"id", "at", "slewed", "error"}, reply
        assert set(reply["error"]) == {"kind", "text"}
        assert reply["error"]["text"]
        kind: str = reply["error"]["kind"]
        return kind

    def watch(self, *ports: str, datagrams: bool = False) -> Any:
        return self.ask(
            "watch",
            ports={port: {"rdma": None} for port in ports},
            period_ns=100_000,
            datagrams={"udp_port": 47_000, "period_ns": 1_000_000} if datagrams else None,
        )

    def settle(self, *stages: str, timeout: int = LONG, **numbers: Any) -> Any:
        ports = {PORTS[0]: list(stages)} if stages else {}
        reply = self.reply(self.send("settle", ports=ports, timeout_ns=timeout, **numbers))
        assert set(reply) == {"id", "at", "slewed", "ok"}, reply
        answer = reply["ok"]
        assert_clock_status(answer.pop("clock"))
        # Until then each state had been read: before the reply, and not before the last one's.
        read = answer.pop("read")
        assert type(read) is int
        assert self.read_until <= read <= reply["at"][1]
        self.read_until = read
        return answer


def assert_clock_status(status: Any) -> None:
    """Return the state of this machine's clock by ntp_adjtime, by the offsets of linux/timex.h."""
    if status is None:  # a simulated clock has no kernel
        return
    timex = ctypes.create_string_buffer(512)
    assert ctypes.CDLL(None).ntp_adjtime(timex) >= 0
    _, _, rate, most, likely, bits = struct.unpack_from("@Illlli", timex)
    assert (status["synchronised"], status["frequency_ppm"]) == (not bits & 64, rate / 65_536)
    assert status["maximum_error_ns"] == pytest.approx(most * 1e3, abs=1e9)
    assert status["estimated_error_ns"] == pytest.approx(likely * 1e3, abs=1e9)


class Rig:
    """Two servers with a link that can be lit, and probes on them."""

    def __init__(self, start: Callable[[str], Probe], light: Callable[[bool], None]) -> None:
        self.start = start
        self.here = start("server0")
        self.light = light

    @functools.cached_property
    def there(self) -> Probe:
        """The probe at the other end."""
        return self.start("server1")


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[kernel.Namespaces, KernelLinks]]:
    """Two servers that are namespaces, and what lies between them."""
    if reason := kernel.available():
        pytest.skip(reason)
    with kernel.Namespaces(["server0", "server1", "plant"]) as spaces:
        ports = [
            KernelPort(server, spaces.pid(server), port, f"192.0.{2 + subnet}.{1 + host}/24")
            for host, server in enumerate(("server0", "server1"))
            for subnet, port in enumerate(PORTS)
        ]
        with KernelLinks(spaces.pid("plant"), ports) as links:
            yield spaces, links


@pytest.fixture
def real(namespaces: tuple[kernel.Namespaces, KernelLinks]) -> Iterator[Rig]:
    spaces, links = namespaces
    pair = frozenset(f"server{number}.{PORTS[0]}" for number in (0, 1))

    def light(on: bool) -> None:
        links.apply(pair if on else frozenset(), frozenset({pair} if on else ()))

    with contextlib.ExitStack() as stack:

        def start(server: str) -> Probe:
            shell = NamespaceShell(spaces.pid(server))
            stack.callback(shell.close)
            return Probe(shell, SystemClock())

        light(False)
        yield Rig(start, light)


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Rig]:
    clock = VirtualClock(stall_timeout=20)
    world = SimulatedLab(load(describe(tmp_path)), clock, 3)
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("".join(f"{s.known_hosts}\n" for s in world.services.values()))
    at = world.services["ocs"]
    switch = Polatis("ocs", Endpoint("tl1", at.host, at.port, at.login), clock, rerouting=True)

    def light(on: bool) -> None:
        set_circuits(switch, STRAIGHT if on else ())

    with contextlib.ExitStack() as stack:
        stack.callback(world.close)
        stack.callback(switch.close)

        def start(server: str) -> Probe:
            at = world.services[server]
            login = SshLogin(*at.login, known_hosts)
            shell = SshShell(server, at.host, clock, port=at.port, login=login)
            stack.callback(shell.close)
            return Probe(shell, clock)

        yield Rig(start, light)


@pytest.fixture(params=["real", "simulated"])
def rig(request: pytest.FixtureRequest) -> Rig:
    rig: Rig = request.getfixturevalue(request.param)
    return rig


@pytest.fixture
def probe(rig: Rig) -> Probe:
    return rig.here


def check_events(events: list[list[Any]]) -> None:
    """The shape of events, and their order."""
    assert [event[4] for event in events] == sorted(event[4] for event in events)
    for port, stage, up, earliest, latest, source, *datagram in events:
        assert port in PORTS
        assert isinstance(up, bool)
        assert (stage, source) in {
            ("carrier", "sysfs"),
            ("firmware", "sysfs"),
            ("carrier", "netlink"),
            ("datagram", "udp"),
            ("datagram", "idle"),
        }
        assert type(latest) is int
        if source == "netlink":
            assert earliest is None
        else:
            assert type(earliest) is int
            assert earliest <= latest
        if datagram:
            assert stage == "datagram"
            *last, boot, sent = datagram[0] if up else [datagram[0][n] for n in (0, 2, 1, 3)]
            assert isinstance(boot, str)
            assert type(sent) is int
            assert [type(each) for each in last] == ([] if up else [int, int])


def test_hello(probe: Probe) -> None:
    hello = probe.ask("hello")
    assert set(hello) == {"probe", "host", "python", "kernel", "boot", "netlink"}
    assert hello["probe"] == 1
    assert all(isinstance(hello[key], str) for key in ("host", "python", "kernel", "boot"))
    assert isinstance(hello["netlink"], bool)


def test_ports(probe: Probe) -> None:
    ports = probe.ask("ports")
    assert set(ports) == set(PORTS)
    for described in ports.values():
        assert set(described) == {"carrier", "carrier_changes", "speed_mbps", "driver", "mac"}
        assert described["carrier"] is False


def test_modules_are_read_until_their_readings_are_asked_for(probe: Probe) -> None:
    place = [0x50, 0, 3, 1]
    reading = probe.ask("module", port=PORTS[0], read=place)["reading"]
    assert reading[:5] == [PORTS[0], *place]
    assert probe.ask("module_readings") == {"readings": []}
    places = [place, [0x50, 0x11, 128, 26]]
    probe.ask("read_modules", ports=dict.fromkeys(PORTS, places), period_ns=1_000_000)
    probe.clock.sleep(200_000_000)
    readings = probe.ask("module_readings")["readings"]
    assert probe.ask("module_readings") == {"readings": []}
    wanted = [[port, *each] for port in PORTS for each in places]
    assert len(readings) >= len(wanted)
    for number, (*what, start, end, text, problem) in enumerate(readings):
        assert what == wanted[number % len(wanted)]
        assert type(start) is type(end) is int
        assert start <= end
        assert (text is None) == bool(problem)  # a pair of virtual devices has no modules
        assert text is None or len(text) == 2 * what[4]
    moments = [at for one in readings for at in one[5:7]]
    assert moments == sorted(moments)


def test_reads_of_modules_that_are_refused(probe: Probe) -> None:
    assert probe.refusal("module", port="ens9", read=[0x50, 0, 3, 1]) == "unknown_port"
    many = {"ens9": [[0x50, 0, 3, 1]]}
    assert probe.refusal("read_modules", ports=many, period_ns=1) == "unknown_port"
    for bad in ([0x50, 0, 3], [0x50, 0, 3, 300], "page 0", None):
        assert probe.refusal("module", port=PORTS[0], read=bad) == "bad_request"
        ports = {PORTS[0]: [bad]}
        assert probe.refusal("read_modules", ports=ports, period_ns=1) == "bad_request"


def test_the_state_when_the_watch_begins(rig: Rig) -> None:
    dark = {"carrier": False, "firmware": None}
    assert rig.here.watch(*PORTS) == {"state": dict.fromkeys(PORTS, dark), "tokens": {}}
    rig.light(True)
    rig.here.settle("carrier")
    assert rig.here.ask("unwatch") == {}
    state = rig.here.watch(PORTS[0])["state"]
    assert state == {PORTS[0]: {"carrier": True, "firmware": None}}
    assert rig.here.settle() == NOTHING


def test_settle_hands_over_what_happened_once(rig: Rig) -> None:
    rig.here.watch(*PORTS)
    rig.light(True)
    answer = rig.here.settle("carrier")
    assert set(answer) == set(NOTHING)
    assert answer["settled"] is True
    assert answer["missing"] == []
    check_events(answer["events"])
    assert [PORTS[0], "carrier", True] in [event[:3] for event in answer["events"]]
    again = [event for event in rig.here.settle()["events"] if event[0] == PORTS[0]]
    assert [event for event in again if event[5] != "netlink"] == []


def test_settle_wants_what_came_up_since_the_last_answer(rig: Rig) -> None:
    rig.here.watch(*PORTS)
    rig.light(True)
    rig.here.settle("carrier")
    answer = rig.here.settle("carrier", timeout=30_000_000)
    assert answer["settled"] is False
    assert answer["missing"] == [[PORTS[0], "carrier"]]


def test_a_flap_is_both_ways(rig: Rig) -> None:
    rig.here.watch(*PORTS)
    rig.light(True)
    rig.here.settle("carrier")
    rig.light(False)
    rig.here.clock.sleep(300_000_000)  # a busy machine may not look for so long
    rig.light(True)
    events = rig.here.settle("carrier")["events"]
    check_events(events)
    assert [e[2] for e in events if e[0] == PORTS[0] and e[5] == "sysfs"] == [False, True]


def test_datagrams_come_and_go_with_the_link(rig: Rig) -> None:
    for probe in (rig.here, rig.there):
        probe.watch(PORTS[0], datagrams=True)
    rig.light(True)
    up = rig.here.settle("datagram")
    assert up["settled"] is True
    check_events(up["events"])
    assert set(up["datagrams"]) <= {PORTS[0]}
    for counts in up["datagrams"].values():
        assert set(counts) == {"sent", "received", "idle", "late", "duplicates", "heard"}
        # Each end hears the other alone, in its order, and each datagram once.
        assert (counts["late"], counts["duplicates"]) == (0, 0)
        assert sum(counts["heard"].values()) == counts["received"]
    rig.light(False)
    rig.here.clock.sleep(300_000_000)
    down = rig.here.settle()["events"]
    check_events(down)
    # A machine so busy that nothing was sent for a while was silent before, too.
    silence = [event for event in down if event[1] == "datagram"][-1]
    assert silence[2] is False
    assert silence[4] - silence[3] >= 5_000_000
    rig.light(True)
    back = [event for event in rig.here.settle("datagram")["events"] if event[1] == "datagram"]
    assert back[0][2] is True
    assert silence[3] <= back[0][3]


def test_gap_is_bounded_by_departures_of_the_sender(rig: Rig) -> None:
    rig.here.watch(PORTS[0], datagrams=True)
    token = rig.there.watch(PORTS[0], datagrams=True)["tokens"][PORTS[0]]
    boot = rig.there.ask("hello")["boot"]
    rig.light(True)
    rig.here.settle("datagram")
    rig.light(False)
    rig.here.clock.sleep(300_000_000)
    rig.light(True)
    rig.here.clock.sleep(20_000_000)
    gaps = [gap for gap in rig.here.settle("datagram")["gaps"] if gap[0] == PORTS[0]]
    _, last, first, received, backlog, *slowest = max(gaps, key=lambda gap: gap[2][2] - gap[1][2])
    assert last[:2] == first[:2] == [token, boot]
    assert first[2] - last[2] >= 10
    numbers = [last[2], last[2] + 1, first[2] - 1, first[2], 1 << 40, 0]
    there = rig.there.settle(numbers={PORTS[0]: numbers})["departures"][PORTS[0]]
    assert there[4:] == [None, None]
    assert sorted(there[:4]) == there[:4]
    assert last[3] <= there[0]
    assert first[3] <= there[2]
    assert type(received) is int
    assert backlog is False
    for sent, came in slowest:  # where the sender's clock is the receiver's
        assert sent <= last[3]
        assert type(came) is int
    assert rig.here.settle()["gaps"] == []


def test_broadcasts_of_the_sender_are_filtered(rig: Rig) -> None:
    rig.here.watch(PORTS[0], datagrams=True)
    rig.light(True)
    rig.here.settle("carrier")
    answer = rig.here.settle("datagram", timeout=100_000_000)
    assert answer["missing"] == [[PORTS[0], "datagram"]]


def test_waiting_settle_does_not_delay_requests(rig: Rig) -> None:
    rig.here.watch(*PORTS)
    stages = {PORTS[0]: ["carrier"]}
    waiting = rig.here.send("settle", ports=stages, timeout_ns=LONG)
    assert rig.here.ask("hello")["probe"] == 1
    rig.light(True)
    assert rig.here.reply(waiting)["ok"]["settled"] is True


def test_unwatch_fails_waiting_requests(probe: Probe) -> None:
    probe.watch(*PORTS)
    waiting = probe.send("settle", ports={PORTS[0]: ["carrier"]}, timeout_ns=LONG)
    assert probe.ask("unwatch") == {}
    assert probe.kind_of(probe.reply(waiting)) == "not_watching"


def test_an_invalid_request_is_refused(probe: Probe) -> None:
    probe.write("{not json")
    assert probe.kind_of(probe.reply(None)) == "bad_json"
    probe.write("[]")
    assert probe.kind_of(probe.reply(None)) == "bad_request"
    assert probe.ask("hello")["probe"] == 1


PORT = {PORTS[0]: {"rdma": None}}
WATCH: dict[str, Any] = {"ports": PORT, "period_ns": 100_000, "datagrams": None}
UDP = {"udp_port": 47_000, "period_ns": 1_000_000}


BEFORE: list[tuple[str, Any, dict[str, Any]]] = [
    ("unknown_request", "dance", {}),
    ("unknown_request", None, {}),
    ("unknown_request", ["hello"], {}),
    ("not_watching", "settle", {"ports": {}, "timeout_ns": 0}),
    ("not_watching", "unwatch", {}),
    ("bad_request", "watch", {}),
    ("bad_request", "watch", WATCH | {"ports": []}),
    ("bad_request", "watch", WATCH | {"ports": {PORTS[0]: {"rdma": 7}}}),
    ("bad_request", "watch", {"ports": PORT, "datagrams": None}),
    ("bad_request", "watch", WATCH | {"period_ns": 0}),
    ("bad_request", "watch", WATCH | {"period_ns": -1}),
    ("bad_request", "watch", WATCH | {"period_ns": "1"}),
    ("bad_request", "watch", WATCH | {"period_ns": True}),
    ("bad_request", "watch", WATCH | {"datagrams": {}}),
    ("bad_request", "watch", WATCH | {"datagrams": UDP | {"udp_port": 70_000}}),
    ("bad_request", "watch", WATCH | {"datagrams": UDP | {"period_ns": 0}}),
    ("unknown_port", "watch", WATCH | {"ports": {"nope0": {"rdma": None}}}),
]
DURING: list[tuple[str, Any, dict[str, Any]]] = [
    ("already_watching", "watch", WATCH),
    ("unknown_stage", "settle", {"ports": {PORTS[0]: ["datagram"]}, "timeout_ns": 0}),
    ("unknown_stage", "settle", {"ports": {PORTS[0]: ["firmware"]}, "timeout_ns": 0}),
    ("unknown_stage", "settle", {"ports": {PORTS[0]: ["love"]}, "timeout_ns": 0}),
    ("unknown_stage", "settle", {"ports": {PORTS[1]: ["carrier"]}, "timeout_ns": 0}),
    ("unknown_stage", "settle", {"ports": {"nope0": ["carrier"]}, "timeout_ns": 0}),
    ("bad_request", "settle", {"ports": [], "timeout_ns": 0}),
    ("bad_request", "settle", {"ports": {}, "timeout_ns": -1}),
    ("bad_request", "settle", {"ports": {}}),
    ("unknown_port", "settle", {"ports": {}, "timeout_ns": 0, "numbers": {PORTS[0]: [1]}}),
    ("bad_request", "settle", {"ports": {}, "timeout_ns": 0, "numbers": [1]}),
]


def check_refusals(probe: Probe, requests: list[tuple[str, Any, dict[str, Any]]]) -> None:
    lines = []
    for _, do, fields in requests:
        reply = probe.reply(probe.send(do, **fields))
        lines.append(probe.kind_of(reply) if "error" in reply else "ok")
        if lines[-1] == "ok" and do == "watch":
            probe.ask("unwatch")
    assert [
        (kind, *request) for kind, (_, *request) in zip(lines, requests, strict=True)
    ] == requests


def test_refusals_before_the_watch(probe: Probe) -> None:
    check_refusals(probe, BEFORE)
    assert probe.watch(PORTS[0])["state"]


def test_refusals_during_the_watch(probe: Probe) -> None:
    probe.watch(PORTS[0])
    check_refusals(probe, DURING)
    assert probe.settle() == NOTHING
