"""Stages that a probe observes, in the process of the test: stamps by a clock that it moves."""

import json
import os
import struct
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probe_parts import MS, OURS, THEIRS, Clock, events

from lightrig.instruments.servers.programs import (
    probe,
    probe_links,
    server_clock,
)
from lightrig.instruments.servers.programs.probe_events import Event, EventLog, Gap, Refused, Step
from lightrig.instruments.servers.programs.probe_links import LinkMessages, Sensor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


# ------------------------------------------------------------------------------- stages


def test_a_stage_changed_after_the_last_read_and_before_this_one(
    clock: Clock, tmp_path: Path
) -> None:
    file, log = tmp_path / "carrier", EventLog()
    file.write_text("1\n")
    sensor = Sensor("p0", "carrier", str(file), b"1")
    begin = clock.at
    assert sensor.up
    clock.at += 5
    sensor.sample(log)
    clock.at += 5
    file.write_text("0\n")
    sensor.sample(log)
    clock.at += 5
    sensor.sample(log)
    assert events(log) == [("p0", "carrier", False, begin + 5, begin + 10, "sysfs", None)]
    file.unlink()
    sensor.close()
    clock.at += 5
    sensor.sample(log)
    file.write_text("1\n")
    clock.at += 5
    sensor.sample(log)
    assert events(log) == [("p0", "carrier", True, begin + 20, begin + 25, "sysfs", None)]
    sensor.close()
    sensor.close()
    assert not Sensor("p1", "carrier", str(tmp_path / "none"), b"1").up


@pytest.mark.parametrize("up", [True, False])
def test_a_carrier_that_went_and_came_between_two_reads_is_seen_by_its_count(
    clock: Clock, tmp_path: Path, up: bool
) -> None:
    """The kernel counts each change; a probe that is not scheduled meanwhile reads the same state.

    /sys/class/net/IF/carrier_changes of Linux's Documentation/ABI/testing/sysfs-class-net.
    """
    file, count, log = tmp_path / "carrier", tmp_path / "carrier_changes", EventLog()
    file.write_text(f"{up:d}\n")
    count.write_text("8\n")
    sensor = Sensor("p0", "carrier", str(file), b"1", str(count))

    def sample(changes: int, carrier: bool = up) -> list[Any]:
        clock.at += 5
        file.write_text(f"{carrier:d}\n")
        count.write_text(f"{changes}\n")
        clock.at += 5
        sensor.sample(log)
        return events(log)

    assert sample(8) == []
    begin = clock.at
    assert sample(10) == [
        ("p0", "carrier", not up, begin, begin + 10, "sysfs", None),
        ("p0", "carrier", up, begin, begin + 10, "sysfs", None),
    ]
    assert sample(10) == []
    # A change that is read is counted, also where the kernel counts it after its state is read.
    (once,) = sample(10, not up)
    assert once[2] == (not up)
    assert sample(11, not up) == []
    (back,) = sample(12)
    assert back[2] == up
    assert sample(12) == []
    # A device under the same name begins anew, and one without a file has no count.
    assert sample(0) == []
    assert len(sample(2)) == 2
    count.unlink()
    sensor.close()
    sensor.sample(log)
    assert events(log) == []
    # Of a device that is administratively down no state can be read, whatever is counted.
    file.unlink()
    count.write_text("2\n")
    sensor.close()
    sensor.sample(log)
    count.write_text("4\n")
    sensor.sample(log)
    assert [event[2] for event in events(log)] == [False] * up
    sensor.close()


def message(index: int, up: bool, kind: int = 16, more: int = 0) -> bytes:
    """Return an RTM_NEWLINK: header, then struct ifinfomsg, then `more` bytes of attributes."""
    flags = 0x11043 if up else 0x1003
    body = struct.pack("=BxHiII", 0, 1, index, flags, 0) + bytes(more)
    data = struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body
    return data + bytes(-len(data) % 4)


def test_carriers_are_read_from_each_message_of_the_kernel(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"p0": 3, "p1": 8}
    monkeypatch.setattr(probe_links.socket, "if_nametoindex", numbers.__getitem__)
    data = message(3, True, more=5) + message(8, True, kind=17)
    data += message(8, False) + message(9, True)
    parts = [data, OSError("lost"), message(3, True) + message(8, False)]

    def recv(size: int) -> bytes:
        part = parts.pop(0)
        if isinstance(part, OSError):
            raise part
        return part

    kernel: Any = SimpleNamespace(recv=recv)
    links, log = LinkMessages(kernel, {"p0": False, "p1": True}), EventLog()
    assert list(links._carriers(data)) == [(3, True), (8, False), (9, True)]
    for _ in range(3):
        links.receive(log)
    assert events(log) == [
        ("p0", "carrier", True, None, clock.at, "netlink", None),
        ("p1", "carrier", False, None, clock.at, "netlink", None),
    ]


def test_a_port_is_described_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_links, "NET", str(tmp_path))
    for name, values in (("p0", ("1", "5", "100000", "aa:bb")), ("p1", ("0", "7", "-1", "aa:cc"))):
        folder = tmp_path / name
        (folder / "device").mkdir(parents=True)
        files = ("carrier", "carrier_changes", "speed", "address")
        for file, value in zip(files, values, strict=True):
            (folder / file).write_text(f"{value}\n")
    (tmp_path / "p0/device/driver").symlink_to("/drivers/mlx5_core")
    assert probe_links.describe_port("p0") == {
        "carrier": True, "carrier_changes": 5, "speed_mbps": 100_000, "driver": "mlx5_core",
        "mac": "aa:bb",
    }  # fmt: skip
    assert probe_links.describe_port("p1") == {
        "carrier": False, "carrier_changes": 7, "speed_mbps": None, "driver": None, "mac": "aa:cc",
    }  # fmt: skip
    (tmp_path / "p1/carrier").unlink()
    (tmp_path / "p1/speed").write_text("0\n")
    found = probe_links.describe_port("p1")
    assert (found["carrier"], found["speed_mbps"]) == (None, None)


# ------------------------------------------------------------------------------ the log


def test_what_was_seen_is_handed_over_once_in_order() -> None:
    log = EventLog()
    late = Event("p0", "carrier", True, 5, 9, "sysfs")
    early = Event("p1", "carrier", True, 1, 2, "netlink", (4,))
    log.add(late)
    log.add(early)
    log.add_gap("gap")  # type: ignore[arg-type]
    log.add_step("step")  # type: ignore[arg-type]
    wanted = {("p0", "carrier"), ("p1", "carrier")}
    # An announcement of the kernel alone is no evidence.
    assert log.settle(wanted, 0) == ({("p1", "carrier")}, [early, late], ["gap"], ["step"])
    assert log.settle(wanted, 0) == (wanted, [], [], [])
    assert late.fields() == ("p0", "carrier", True, 5, 9, "sysfs")
    assert early.fields() == ("p1", "carrier", True, 1, 2, "netlink", (4,))
    assert Gap("p", (1, OURS.bytes, 2, 3), (4, THEIRS.bytes, 5, 6), 7).fields() == (
        "p", (1, str(OURS), 2, 3), (4, str(THEIRS), 5, 6), 7, False,
    )  # fmt: skip
    log.add(Event("p0", "carrier", False, 1, 2, "sysfs"))
    assert log.settle({("p0", "carrier")}, 0)[0] == {("p0", "carrier")}


def test_waiting_ends_when_all_is_up_or_watching_has_failed() -> None:
    log, found = EventLog(), list[Any]()

    def wait() -> None:
        try:
            found.append(log.settle({("p0", "carrier")}, 30_000 * MS)[0])
        except Refused as error:
            found.append(error.kind)

    for act in (
        lambda: log.add(Event("p0", "carrier", True, 1, 2, "sysfs")),
        lambda: log.fail(Refused("gone", "it is")),
    ):
        thread = threading.Thread(target=wait)
        thread.start()
        act()
        thread.join(20)
    assert found == [set(), "gone"]


# ----------------------------------------------------------------------------- watching


class Stream:
    """A stream that notes when it sends and listens."""

    def __init__(self, port: str, order: list[Any], clock: Clock) -> None:
        self.port, self.token = port, 40 + len(port)
        self.sent, self.received, self.idle = 3, 2, 1
        self.socket, self.stamps, self._order, self._clock = f"socket of {port}", None, order, clock

    def send(self) -> None:
        self._order.append(("send", self.port, self._clock.at))

    def receive(self, log: EventLog) -> None:
        self._order.append(("receive", self.port))

    def listen_for_silence(self, log: EventLog, at: int) -> None:
        self._order.append(("silence", self.port, at))

    def departure(self, number: int) -> int:
        return number * 10


def watch(clock: Clock, order: list[Any], *ports: str) -> Any:
    made: Any = object.__new__(probe.Watch)
    made.log, made._stop, made._netlink = EventLog(), threading.Event(), None
    made._streams = [Stream(port, order, clock) for port in ports]
    made._datagram_period_ns, made._period_ns, made._sensors = 10 * MS, MS, []
    return made


def test_datagrams_leave_each_period_and_a_late_sender_does_not_catch_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Any] = []
    made = watch(clock, order, "a", "b")
    begin = clock.at
    # Time that passes in each wait, and what can be read after it.
    steps = [(4, []), (6, ["socket of a"]), (35, []), (5, [])]
    waits: list[float] = []

    def select(sockets: list[str], write: Any, error: Any, wait: float) -> Any:
        assert (sockets, write, error) == (["socket of a", "socket of b"], [], [])
        waits.append(round(wait * 1e3, 6))
        passed, readable = steps.pop(0)
        clock.at += passed * MS
        if not steps:
            made._stop.set()
        return readable, [], []

    monkeypatch.setattr(probe, "select", SimpleNamespace(select=select))
    made._listen()
    sends = [(port, (at - begin) // MS) for what, port, at in
             (each for each in order if each[0] == "send")]  # fmt: skip
    assert sends == [("a", 0), ("b", 0), ("a", 10), ("b", 10), ("a", 45), ("b", 45)]
    assert waits == [10, 6, 10, 0]
    # The socket was empty before the wait; one that has been read is not asked.
    silences = [(each[1], (each[2] - begin) // MS) for each in order if each[0] == "silence"]
    assert silences == [
        ("a", 0), ("b", 0), ("b", 4), ("a", 10), ("b", 10), ("a", 45), ("b", 45),
    ]  # fmt: skip
    assert [each for each in order if each[0] == "receive"] == [("receive", "a")]


def test_without_datagrams_the_kernel_is_listened_to(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watch(clock, [])
    heard: list[Any] = []
    made._netlink = SimpleNamespace(socket="netlink", receive=heard.append)

    def select(sockets: list[str], write: Any, error: Any, wait: float) -> Any:
        assert (sockets, wait) == (["netlink"], 0.1)
        made._stop.set()
        return sockets, [], []

    monkeypatch.setattr(probe, "select", SimpleNamespace(select=select))
    made._listen()
    assert heard == [made.log]


def test_stages_are_polled_until_closed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made = watch(clock, [])
    sampled: list[Any] = []
    made._sensors = [
        SimpleNamespace(port=port, stage=stage, up=up, sample=sampled.append)
        for port, stage, up in (
            ("a", "carrier", True), ("a", "firmware", False), ("b", "carrier", False),
        )
    ]  # fmt: skip
    pauses: list[float] = []

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 2:
            made._stop.set()

    monkeypatch.setattr(probe, "time", SimpleNamespace(sleep=sleep))
    made._poll()
    assert (sampled, pauses) == ([made.log] * 6, [0.001, 0.001])
    assert made.state() == {
        "a": {"carrier": True, "firmware": False}, "b": {"carrier": False, "firmware": None},
    }  # fmt: skip

    def failing() -> None:
        raise OSError("gone")

    made._guarded(failing)
    with pytest.raises(Refused, match="gone"):
        made.log.settle(set(), 0)


def test_counts_tokens_and_departures_are_of_each_stream(clock: Clock) -> None:
    made = watch(clock, [], "a", "bcd")
    made._streams[1].sent = 9
    assert made.counts() == {
        "a": {"sent": 3, "received": 2, "idle": 1}, "bcd": {"sent": 9, "received": 2, "idle": 1},
    }  # fmt: skip
    assert made.tokens() == {"a": 41, "bcd": 43}
    assert made.departures({"bcd": [4, 6]}) == {"bcd": [40, 60]}
    made.check_senders(["a"])
    with pytest.raises(Refused, match="no datagrams are sent from 'x'"):
        made.check_senders(["a", "x"])


def test_closing_ends_threads_files_and_those_who_wait(clock: Clock) -> None:
    made = watch(clock, [], "a")
    closed: list[str] = []

    def thing(name: str) -> Any:
        return SimpleNamespace(close=lambda: closed.append(name), join=lambda: closed.append(name))

    made._threads = [thing("poll"), thing("listen")]
    made._sensors = [thing("sensor")]
    made._streams = [SimpleNamespace(socket=thing("socket"), stamps=thing("stamps")),
                     SimpleNamespace(socket=thing("plain"), stamps=None)]  # fmt: skip
    made._netlink = SimpleNamespace(socket=thing("netlink"))
    made.close()
    assert closed == ["poll", "listen", "sensor", "socket", "stamps", "plain", "netlink"]
    assert made._stop.is_set()
    with pytest.raises(Refused, match="unwatch came while this request waited"):
        made.log.settle(set(), 0)


# ----------------------------------------------------------------------------- requests


def test_fields_of_requests_are_within_bounds() -> None:
    for value in (1, 7, 65535):
        assert probe._field({"a": value}, "a", int, 1, 65535) == value
    for value in (0, 65536, True, "7", None):
        with pytest.raises(Refused, match='"a" must be'):
            probe._field({"a": value}, "a", int, 1, 65535)
    assert probe._field({"a": 1 << 53}, "a", int) == 1 << 53
    with pytest.raises(Refused, match=f"0 to {1 << 53}"):
        probe._field({"a": (1 << 53) + 1}, "a", int)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A probe of two ports, whose watch is noted and not begun."""
    answers: list[Any] = []
    for name in ("lo", "p0", "p1"):
        (tmp_path / "net" / name).mkdir(parents=True)
    (tmp_path / "rdma/mlx5_0").mkdir(parents=True)
    monkeypatch.setattr(probe, "NET", str(tmp_path / "net"))
    monkeypatch.setattr(probe, "RDMA", str(tmp_path / "rdma"))
    monkeypatch.setattr(probe, "describe_port", lambda port: f"about {port}")
    monkeypatch.setattr(probe, "boot_id", lambda: str(OURS))
    monkeypatch.setattr(probe, "open_netlink", lambda: None)
    made: Any = probe._Probe()
    made._replies = SimpleNamespace(
        reply=lambda number, received, content: answers.append((number, received, content)),
        refuse=lambda number, received, *why: answers.append((number, received, why)),
    )
    began: list[Any] = []

    class Watched:
        stages = frozenset({("p0", "carrier"), ("p0", "firmware")})
        log = EventLog()

        def __init__(self, *given: Any) -> None:
            began.append(given)

        def state(self) -> str:
            return "state"

        def tokens(self) -> str:
            return "tokens"

        def counts(self) -> str:
            return "counts"

        def departures(self, numbers: Any) -> Any:
            return numbers

        def check_senders(self, ports: Any) -> None:
            if list(ports) == ["x"]:
                raise Refused("unknown_port", "x")

        def start(self) -> None:
            began.append("start")

        def close(self) -> None:
            began.append("close")

    monkeypatch.setattr(probe, "Watch", Watched)

    def ask(**request: Any) -> Any:
        made._take(json.dumps({"id": 4, **request}).encode(), 55)
        number, received, content = answers.pop()
        assert (number, received) == (4, 55)
        return content

    return SimpleNamespace(ask=ask, began=began, answers=answers, probe=made, watch=Watched)


def test_a_watch_begins_once_with_known_ports(asked: Any) -> None:
    ask = asked.ask
    assert ask(do="ports") == {"p0": "about p0", "p1": "about p1"}
    assert ask(do="unwatch") == ("not_watching", "watch first")
    assert ask(do="hum") == ("unknown_request", "there is no request 'hum'")
    assert ask(do=["hum"])[0] == "unknown_request"
    good = {"do": "watch", "ports": {"p0": {"rdma": "mlx5_0"}, "p1": None}, "period_ns": 50_000}
    for wrong in (
        {"ports": {"x": None}}, {"ports": {"p0": {"rdma": "x"}}}, {"ports": {"p0": {"rdma": 5}}},
        {"period_ns": 0}, {"period_ns": 1_000_000_001}, {"ports": []},
        {"datagrams": {"udp_port": 0, "period_ns": 5}},
        {"datagrams": {"udp_port": 5, "period_ns": 1_000_000_001}},
    ):  # fmt: skip
        assert ask(**good | wrong)[0] in ("unknown_port", "bad_request"), wrong
    assert asked.began == []
    datagrams = {"udp_port": 4000, "period_ns": 1_000_000_000}
    assert ask(**good, datagrams=datagrams) == {"state": "state", "tokens": "tokens"}
    ports = {"p0": "mlx5_0", "p1": None}
    assert asked.began == [(ports, 50_000, (4000, 1_000_000_000), OURS.bytes), "start"]
    assert ask(**good) == ("already_watching", "unwatch first")
    assert ask(do="unwatch") == {}
    assert asked.began[2:] == ["close"]
    assert ask(do="unwatch")[0] == "not_watching"
    asked.probe._take(b"{", 55)
    assert asked.answers.pop()[::2][1][0] == "bad_json"
    asked.probe._take(b"[]", 55)
    assert asked.answers.pop() == (None, 55, ("bad_request", "a request is a JSON object"))


def test_settling_is_refused_for_what_is_not_watched(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Now(threading.Thread):
        def start(self) -> None:
            self.run()

    monkeypatch.setattr(probe.threading, "Thread", Now)
    monkeypatch.setattr(probe, "kernel_status", lambda: "status")
    ask = asked.ask
    assert ask(do="settle", ports={}, timeout_ns=5)[0] == "not_watching"
    ask(do="watch", ports={"p0": None}, period_ns=5)
    for wrong in (
        {"ports": {"p0": ["light"]}}, {"ports": {"p1": ["carrier"]}}, {"ports": {"p0": [5]}},
        {"ports": {}, "numbers": {"p0": [1, "2"]}}, {"ports": {}, "numbers": {"p0": 3}},
        {"ports": {}, "numbers": {"p0": [True]}}, {"ports": {}, "numbers": {"x": [1]}},
        {"ports": {}, "timeout_ns": -1},
    ):  # fmt: skip
        content = ask(do="settle", **{"timeout_ns": 5, **wrong})
        assert content[0] in ("unknown_stage", "bad_request", "unknown_port"), wrong
    log = asked.watch.log
    log.add(Event("p0", "carrier", True, 1, 2, "sysfs"))
    log.add_gap(Gap("p0", (1, OURS.bytes, 2, 3), (4, THEIRS.bytes, 5, 6), 7))
    log.add_step(Step("p0", "clock", 1, 2, 3, 4))
    answer = ask(
        do="settle", ports={"p0": ["carrier", "firmware"]}, timeout_ns=0, numbers={"p0": [6]}
    )
    assert (answer["settled"], answer["missing"]) == (False, [("p0", "firmware")])
    assert answer["events"] == [("p0", "carrier", True, 1, 2, "sysfs")]
    assert answer["gaps"][0][3:] == (7, False)
    assert answer["steps"] == [("p0", "clock", 1, 2, 3, 4)]
    assert (answer["datagrams"], answer["departures"]) == ("counts", {"p0": [6]})
    assert answer["clock"] == "status"
    log.add(Event("p0", "firmware", True, 1, 2, "sysfs"))
    assert ask(do="settle", ports={"p0": "firmware"}, timeout_ns=0)["settled"] is True
    log.fail(Refused("watch_failed", "gone"))
    assert ask(do="settle", ports={}, timeout_ns=0) == ("watch_failed", "gone")


# ------------------------------------------------------------------------------- clocks


def test_a_slew_is_read_by_the_narrowest_of_three_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readings before, between and after: 90, 20 and 30 ns wide."""
    raw = iter([1000, 1090, 2000, 2020, 3000, 3030])
    plain = iter([1500, 2517, 3700])
    monkeypatch.setattr(server_clock, "now", lambda: next(plain))
    time = SimpleNamespace(
        CLOCK_MONOTONIC_RAW=4, clock_gettime_ns=lambda clock: next(raw) if clock == 4 else None
    )
    monkeypatch.setattr(server_clock, "time", time)
    assert server_clock.slewed() == 2517 - 2010


def test_the_kernel_s_status_is_in_ns_and_ppm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are in us, and 65536 are 1 ppm (adjtimex(2))."""
    state = [0, 0x2001]

    def adjtimex(found: Any) -> int:
        timex = found._obj
        timex.freq, timex.esterror, timex.maxerror, timex.status = -163_840, 12, 3400, state[1]
        return state[0]

    monkeypatch.setattr(server_clock.ctypes, "CDLL", lambda _: SimpleNamespace(adjtimex=adjtimex))
    status = server_clock.kernel_status()
    assert status == {
        "synchronised": True, "frequency_ppm": -2.5, "estimated_error_ns": 12_000,
        "maximum_error_ns": 3_400_000,
    }  # fmt: skip
    state[1] |= 0x40
    status = server_clock.kernel_status()
    assert status is not None
    assert status["synchronised"] is False
    state[0] = -1
    assert server_clock.kernel_status() is None
    assert os.fsencode(server_clock.boot_id())
