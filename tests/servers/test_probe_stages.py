"""Stages that a probe observes, in the process of the test: stamps by a clock that it moves."""

import ctypes
import io
import json
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probe_parts import MS, OURS, THEIRS, Clock, events
from program_lines import ProgramLines

from lightrig.instruments.servers.programs import (
    probe,
    probe_events,
    probe_links,
    server_clock,
)
from lightrig.instruments.servers.programs.probe import Watch, open_watch
from lightrig.instruments.servers.programs.probe_events import (
    ClockStep,
    DatagramGap,
    EventLog,
    Refused,
    StageChange,
)
from lightrig.instruments.servers.programs.probe_links import LinkMessages, Sensor
from lightrig.instruments.servers.programs.replies import Replies


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
    # Kind 17 says that a device is gone; nothing is known of device 9.
    data = message(8, False, kind=17) + message(9, False) + message(3, True, more=5)
    parts = [data, OSError("lost"), message(9, True, more=3) + message(3, True) + message(8, False)]

    def recv(size: int) -> bytes:
        part = parts.pop(0)
        if isinstance(part, OSError):
            raise part
        return part

    kernel: Any = SimpleNamespace(recv=recv)
    sensors: Any = [
        SimpleNamespace(port="p0", up=False, announced=0),
        SimpleNamespace(port="p1", up=True, announced=0),
    ]
    links, log = LinkMessages(kernel, sensors), EventLog()
    begin = clock.at
    for _ in range(3):
        clock.at += 7
        links.receive(log)
    assert events(log) == [
        ("p0", "carrier", True, None, begin + 7, "netlink", None),
        ("p1", "carrier", False, None, begin + 21, "netlink", None),
    ]
    assert [sensor.announced for sensor in sensors] == [1, 1]


def test_a_change_that_only_the_kernel_announced_is_an_event(clock: Clock, tmp_path: Path) -> None:
    """A device that was administratively down for a moment: its count of changes stays."""
    file, count, log = tmp_path / "carrier", tmp_path / "carrier_changes", EventLog()
    file.write_text("1\n")
    count.write_text("8\n")
    begin = clock.at
    sensor = Sensor("p0", "carrier", str(file), b"1", str(count))
    for announced, found in (
        (0, []),
        (1, [(False, begin, begin + 10), (True, begin, begin + 10)]),
        (2, []),  # the end of the same change
        (3, [(False, begin, begin + 20), (True, begin, begin + 20)]),
    ):
        clock.at += 5
        sensor.announced = announced
        sensor.sample(log)
        assert [(each[2], each[3], each[4]) for each in events(log)] == found
        assert sensor.read_until == clock.at
    # One that the count has shown is announced later.
    count.write_text("10\n")
    sensor.sample(log)
    assert len(events(log)) == 2
    sensor.announced = 6
    sensor.sample(log)
    assert events(log) == []
    sensor.close()


def test_each_change_that_the_kernel_counted_between_two_reads_is_an_event(
    clock: Clock, tmp_path: Path
) -> None:
    """Two flaps while no processor ran this program, and one before the carrier went for good."""
    file, count, log = tmp_path / "carrier", tmp_path / "carrier_changes", EventLog()
    file.write_text("1\n")
    count.write_text("0\n")
    sensor = Sensor("p0", "carrier", str(file), b"1", str(count))
    count.write_text("4\n")
    sensor.sample(log)
    assert [each[2] for each in events(log)] == [False, True] * 2
    file.write_text("0\n")
    count.write_text("7\n")
    sensor.sample(log)
    assert [each[2] for each in events(log)] == [False, True, False]
    sensor.close()


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
    log = EventLog(lambda: 17)
    late = StageChange("p0", "carrier", True, 5, 9, "sysfs")
    early = StageChange("p1", "carrier", True, 1, 2, "netlink", (4,))
    log.add(late)
    log.add(early)
    log.add_gap("gap")  # type: ignore[arg-type]
    log.add_step("step")  # type: ignore[arg-type]
    wanted = {("p0", "carrier"), ("p1", "carrier")}
    # An announcement of the kernel alone is no evidence.
    assert log.settle(wanted, 0) == ({("p1", "carrier")}, [early, late], ["gap"], ["step"], [], 17)
    assert log.settle(wanted, 0) == (wanted, [], [], [], [], 17)
    assert late.fields() == ("p0", "carrier", True, 5, 9, "sysfs")
    assert early.fields() == ("p1", "carrier", True, 1, 2, "netlink", (4,))
    assert DatagramGap("p", (1, OURS.bytes, 2, 3), (4, THEIRS.bytes, 5, 6), 7).fields() == (
        "p", (1, str(OURS), 2, 3), (4, str(THEIRS), 5, 6), 7, False, (0, 0),
    )  # fmt: skip
    log.add(StageChange("p0", "carrier", False, 1, 2, "sysfs"))
    assert log.settle({("p0", "carrier")}, 0)[0] == {("p0", "carrier")}


def test_waiting_ends_when_all_is_up_or_watching_has_failed() -> None:
    log, found = EventLog(), list[Any]()

    def wait() -> None:
        try:
            found.append(log.settle({("p0", "carrier")}, 30_000 * MS)[0])
        except Refused as error:
            found.append(error.kind)

    for act in (
        lambda: log.add(StageChange("p0", "carrier", True, 1, 2, "sysfs")),
        lambda: log.fail(Refused("gone", "it is")),
    ):
        thread = threading.Thread(target=wait)
        thread.start()
        act()
        thread.join(20)
    assert found == [set(), "gone"]


# ----------------------------------------------------------------------------- watching

OVER = OSError("over")


class Stream:
    """A stream that notes when it sends, which takes `takes` ns, and when it listens."""

    def __init__(self, port: str, order: list[Any], clock: Clock, takes: int = 0) -> None:
        self.takes = takes
        self.port, self.token = port, 40 + len(port)
        self.sent, self.received, self.idle = 3, 2, 1
        self.late, self.duplicates = 5, 4
        self.socket, self._order, self._clock = f"socket of {port}", order, clock

    def send(self) -> None:
        self._order.append(("send", self.port, self._clock.at))
        self._clock.at += self.takes

    def receive(self, log: EventLog) -> None:
        self._order.append(("receive", self.port))

    def listen_for_silence(self, log: EventLog, at: int) -> None:
        self._order.append(("silence", self.port, at))

    def heard(self) -> dict[str, int]:
        return {"8": 1}

    def departure(self, number: int) -> int:
        return number * 10


def watch(
    sensors: Sequence[Any] = (),
    streams: Sequence[Any] = (),
    netlink: Any = None,
    close: Callable[[], None] = lambda: None,
) -> Watch:
    """Watch stand-ins; stages are read every ms, and datagrams leave every 10 ms."""
    return Watch(list(sensors), list(streams), netlink, MS, 10 * MS, close)


def watched(made: Watch) -> None:
    """Watch until one of the threads has failed, as `OVER` says."""
    made.start()
    with pytest.raises(Refused, match="over"):
        made.log.settle({("none", "carrier")}, 20_000 * MS)
    made.close()


def test_datagrams_leave_each_period_and_a_late_sender_does_not_catch_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Any] = []
    begin = clock.at
    # Time that passes in each wait, and what can be read after it.
    steps = [(4, []), (6, ["socket of a"]), (35, []), (5, [])]
    waits: list[float] = []

    def select(sockets: list[str], write: Any, error: Any, wait: float) -> Any:
        assert (sockets, write, error) == (["socket of a", "socket of b"], [], [])
        waits.append(round(wait * 1e3, 6))
        if not steps:
            raise OVER
        passed, readable = steps.pop(0)
        clock.at += passed * MS
        return readable, [], []

    monkeypatch.setattr(probe, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(probe_events, "now", time.monotonic_ns)
    watched(watch(streams=[Stream("a", order, clock), Stream("b", order, clock, MS)]))
    sends = [(port, (at - begin) // MS) for what, port, at in
             (each for each in order if each[0] == "send")]  # fmt: skip
    assert sends == [(port, at) for at in (0, 11, 47, 53) for port in "ab"]
    assert waits == [9, 5, 8, 0, 3]
    # The socket was empty before the wait; one that has been read is not asked.
    silences = [(each[1], (each[2] - begin) // MS) for each in order if each[0] == "silence"]
    assert silences == [
        ("a", 1), ("b", 1), ("b", 5), ("a", 12), ("b", 12), ("a", 48), ("b", 48),
    ]  # fmt: skip
    assert [each for each in order if each[0] == "receive"] == [("receive", "a")]


def test_without_datagrams_the_kernel_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    def select(sockets: list[str], write: Any, error: Any, wait: float) -> Any:
        assert (sockets, wait) == (["netlink"], 0.1)
        if heard:
            raise OVER
        return sockets, [], []

    monkeypatch.setattr(probe, "select", SimpleNamespace(select=select))
    made = watch(netlink=SimpleNamespace(socket="netlink", receive=heard.append))
    watched(made)
    assert heard == [made.log]


def test_stages_are_polled_until_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled: list[Any] = []
    sensors = [
        SimpleNamespace(port=port, stage=stage, up=up, sample=sampled.append)
        for port, stage, up in (
            ("a", "carrier", True), ("a", "firmware", False), ("b", "carrier", False),
        )
    ]  # fmt: skip
    pauses: list[float] = []

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 2:
            raise OVER

    monkeypatch.setattr(probe, "time", SimpleNamespace(sleep=sleep))
    made = watch(sensors)
    assert made.stages == {("a", "carrier"), ("a", "firmware"), ("b", "carrier")}
    assert made.state() == {
        "a": {"carrier": True, "firmware": False}, "b": {"carrier": False, "firmware": None},
    }  # fmt: skip
    watched(made)
    assert (sampled, pauses) == ([made.log] * 6, [0.001, 0.001])


def test_counts_tokens_and_departures_are_of_each_stream(clock: Clock) -> None:
    streams = [Stream(port, [], clock) for port in ("a", "bcd")]
    streams[1].sent = 9
    made = watch(streams=streams)
    assert made.stages == {("a", "datagram"), ("bcd", "datagram")}
    assert made.counts() == {
        port: {
            "sent": sent,
            "received": 2,
            "idle": 1,
            "late": 5,
            "duplicates": 4,
            "heard": {"8": 1},
        }
        for port, sent in (("a", 3), ("bcd", 9))
    }
    assert made.tokens() == {"a": 41, "bcd": 43}
    assert made.departures({"bcd": [4, 6]}) == {"bcd": [40, 60]}
    made.check_senders(["a"])
    with pytest.raises(Refused, match="no datagrams are sent from 'x'"):
        made.check_senders(["a", "x"])


def test_closing_ends_threads_files_and_those_who_wait() -> None:
    """Files are closed when the last reading of one has ended, and no request waits any more."""
    reads, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def sample(log: EventLog) -> None:
        reads.set()
        assert go_on.wait(20)

    sensor = SimpleNamespace(port="a", stage="carrier", up=True, sample=sample)
    made = watch([sensor], close=closed.set)
    made.start()
    assert reads.wait(20)
    found: list[str] = []

    def wait() -> None:
        try:
            made.log.settle({("a", "carrier")}, 30_000 * MS)
        except Refused as error:
            found.append(str(error))

    threads = [threading.Thread(target=each) for each in (wait, made.close)]
    for thread in threads:
        thread.start()
    assert not closed.wait(0.05)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert closed.is_set()
    assert found == ["unwatch came while this request waited"]


def test_what_was_opened_is_closed_where_a_later_port_cannot_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams of p0 and p1 are opened, and that of p2 is refused."""
    for name, value in (("p0", "1"), ("p1", "0"), ("p2", "1")):
        (tmp_path / name).mkdir()
        for file in ("carrier", "carrier_changes"):
            (tmp_path / name / file).write_text(f"{value}\n")
    (tmp_path / "mlx5_0/ports/1").mkdir(parents=True)
    (tmp_path / "mlx5_0/ports/1/phys_state").write_text("5: LinkUp\n")
    monkeypatch.setattr(probe, "NET", str(tmp_path))
    monkeypatch.setattr(probe, "RDMA", str(tmp_path))
    closed: list[str] = []

    def opened(port: str, *given: Any) -> Any:
        assert given == (OURS.bytes, 4000, 7 * MS)
        if port == "p2":
            raise OSError("in use")
        return SimpleNamespace(
            port=port, socket=port, send=lambda: None, close=lambda: closed.append(port)
        )

    def select(*_: Any) -> Any:
        raise OVER

    monkeypatch.setattr(probe, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(probe, "open_stream", opened)
    monkeypatch.setattr(probe, "open_netlink", lambda: None)
    ports: dict[str, str | None] = {"p0": "mlx5_0", "p1": None}
    descriptors = len(os.listdir("/proc/self/fd"))
    made = open_watch(ports, MS, (4000, 7 * MS), OURS.bytes)
    stages = {(port, stage) for port in ports for stage in ("carrier", "datagram")}
    assert made.stages == stages | {("p0", "firmware")}
    assert made.state() == {
        "p0": {"carrier": True, "firmware": True}, "p1": {"carrier": False, "firmware": None},
    }  # fmt: skip
    made.start()
    made.close()
    assert sorted(closed) == ["p0", "p1"]
    closed.clear()
    with pytest.raises(OSError, match="in use"):
        open_watch({**ports, "p2": None}, MS, (4000, 7 * MS), OURS.bytes)
    assert sorted(closed) == ["p0", "p1"]
    assert len(os.listdir("/proc/self/fd")) == descriptors


# ----------------------------------------------------------------------------- requests


class Watched:
    """A watch that is noted and not begun, of p0 and its RDMA device."""

    stages = frozenset({("p0", "carrier"), ("p0", "firmware")})

    def __init__(self, began: list[Any]) -> None:
        self.log, self.began = EventLog(), began

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
        self.began.append("start")

    def close(self) -> None:
        self.began.append("close")


class Asked(ProgramLines):
    """A probe of two ports."""

    def __init__(self) -> None:
        self.began: list[Any] = []
        super().__init__(lambda out: probe.Probe(out, self._watch))

    def _watch(self, *given: Any) -> Any:
        self.began.append(given)
        self.watch = Watched(self.began)
        return self.watch

    def kind(self, **request: Any) -> str:
        """Return the kind of the error of a request."""
        return self.error(**request)["kind"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Asked]:
    for name in ("lo", "p0", "p1"):
        (tmp_path / "net" / name).mkdir(parents=True)
    (tmp_path / "rdma/mlx5_0").mkdir(parents=True)
    monkeypatch.setattr(probe, "NET", str(tmp_path / "net"))
    monkeypatch.setattr(probe, "RDMA", str(tmp_path / "rdma"))
    monkeypatch.setattr(probe, "describe_port", lambda port: f"about {port}")
    monkeypatch.setattr(probe, "boot_id", lambda: str(OURS))
    made = Asked()
    yield made
    made.close()


GOOD = {"do": "watch", "ports": {"p0": {"rdma": "mlx5_0"}, "p1": None}, "period_ns": 50_000}


def test_a_watch_begins_once_with_known_ports(asked: Asked, clock: Clock) -> None:
    ask = asked.ask
    assert ask("ports") == {"p0": "about p0", "p1": "about p1"}
    assert asked.error("unwatch") == {"kind": "not_watching", "text": "watch first"}
    unknown = {"kind": "unknown_request", "text": "there is no request 'hum'"}
    assert asked.error("hum") == unknown
    assert asked.error(["hum"])["kind"] == "unknown_request"
    for wrong, kind in (
        ({"ports": {"x": None}}, "unknown_port"),
        ({"ports": {"p0": {"rdma": "x"}}}, "unknown_port"),
        ({"ports": {"p0": {"rdma": 5}}}, "bad_request"),
        ({"ports": []}, "bad_request"),
    ):
        assert asked.kind(**GOOD | wrong) == kind, wrong
    assert asked.began == []
    clock.at += 55
    number = asked.begin(**GOOD, datagrams={"udp_port": 4000, "period_ns": 1_000_000_000})
    reply = asked.reply(number)
    assert reply["at"][0] == clock.at
    assert reply["ok"] == {"state": "state", "tokens": "tokens"}
    ports = {"p0": "mlx5_0", "p1": None}
    assert asked.began == [(ports, 50_000, (4000, 1_000_000_000), OURS.bytes), "start"]
    assert asked.error(**GOOD) == {"kind": "already_watching", "text": "unwatch first"}
    assert ask("unwatch") == {}
    assert asked.began[2:] == ["close"]
    assert asked.kind(do="unwatch") == "not_watching"
    asked.write(b"{")
    assert asked.reply(None)["error"]["kind"] == "bad_json"
    asked.write(b"[]")
    not_an_object = {"kind": "bad_request", "text": "a request is a JSON object"}
    assert asked.reply(None)["error"] == not_an_object


def test_a_watch_ends_with_its_requests(asked: Asked) -> None:
    asked.ask(**GOOD)
    asked.close()
    assert asked.began[1:] == ["start", "close"]


def udp_port(value: Any) -> dict[str, Any]:
    return {**GOOD, "datagrams": {"udp_port": value, "period_ns": 7}}


def datagram_period(value: Any) -> dict[str, Any]:
    return {**GOOD, "datagrams": {"udp_port": 7, "period_ns": value}}


def period(value: Any) -> dict[str, Any]:
    return {**GOOD, "period_ns": value}


@pytest.mark.parametrize(
    ("request_of", "given_of", "most"),
    [
        (udp_port, lambda given: given[2][0], 65535),
        (datagram_period, lambda given: given[2][1], 1_000_000_000),
        (period, lambda given: given[1], 1_000_000_000),
    ],
)
def test_numbers_of_a_watch_are_within_bounds(
    asked: Asked,
    request_of: Callable[[Any], dict[str, Any]],
    given_of: Callable[[Any], int],
    most: int,
) -> None:
    """UDP ports are 1 to 65535, periods at most 1 s."""
    for value in (1, 7, most):
        asked.ask(**request_of(value))
        assert given_of(asked.began[0]) == value
        asked.ask("unwatch")
        asked.began.clear()
    for value in (0, most + 1):
        assert f"must be 1 to {most}, not {value}" in asked.error(**request_of(value))["text"]
    for wrong in (True, "7", None, 7.5):
        assert asked.error(**request_of(wrong))["text"].endswith(f"must be int, not {wrong!r}")


def test_settling_is_refused_for_what_is_not_watched(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "kernel_status", lambda: "status")
    ask = asked.ask
    assert asked.kind(do="settle", ports={}, timeout_ns=5) == "not_watching"
    ask("watch", ports={"p0": None}, period_ns=5)
    for wrong, kind in (
        ({"ports": {"p0": ["light"]}}, "unknown_stage"),
        ({"ports": {"p1": ["carrier"]}}, "unknown_stage"),
        ({"ports": {"p0": [5]}}, "unknown_stage"),
        ({"ports": {}, "numbers": {"p0": [1, "2"]}}, "bad_request"),
        ({"ports": {}, "numbers": {"p0": 3}}, "bad_request"),
        ({"ports": {}, "numbers": {"p0": [True]}}, "bad_request"),
        ({"ports": {}, "numbers": {"x": [1]}}, "unknown_port"),
        ({"ports": {}, "timeout_ns": -1}, "bad_request"),
        ({"ports": {}, "timeout_ns": (1 << 53) + 1}, "bad_request"),
    ):
        assert asked.kind(do="settle", **{"timeout_ns": 5, **wrong}) == kind, wrong
    assert ask("settle", ports={}, timeout_ns=1 << 53)["settled"] is True
    log = asked.watch.log
    log.add(StageChange("p0", "carrier", True, 1, 2, "sysfs"))
    log.add_gap(DatagramGap("p0", (1, OURS.bytes, 2, 3), (4, THEIRS.bytes, 5, 6), 7))
    log.add_step(ClockStep("p0", "clock", 1, 2, 3, 4))
    answer = ask("settle", ports={"p0": ["carrier", "firmware"]}, timeout_ns=0, numbers={"p0": [6]})
    assert (answer["settled"], answer["missing"]) == (False, [["p0", "firmware"]])
    assert answer["events"] == [["p0", "carrier", True, 1, 2, "sysfs"]]
    assert answer["gaps"] == [
        ["p0", [1, str(OURS), 2, 3], [4, str(THEIRS), 5, 6], 7, False, [0, 0]]
    ]
    assert answer["steps"] == [["p0", "clock", 1, 2, 3, 4]]
    assert (answer["datagrams"], answer["departures"]) == ("counts", {"p0": [6]})
    assert answer["clock"] == "status"
    log.add(StageChange("p0", "firmware", True, 1, 2, "sysfs"))
    assert ask("settle", ports={"p0": "firmware"}, timeout_ns=0)["settled"] is True
    log.fail(Refused("watch_failed", "gone"))
    gone = {"kind": "watch_failed", "text": "gone"}
    assert asked.error("settle", ports={}, timeout_ns=0) == gone


# ------------------------------------------------------------------------------- clocks


def test_a_slew_is_read_by_the_narrowest_of_three_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readings before, between and after: 90, 20 and 30 ns wide."""
    raw = iter([1000, 1090, 2000, 2020, 3000, 3030])
    plain = iter([1500, 2517, 3700])
    monkeypatch.setattr(server_clock, "now", lambda: next(plain))
    clocks = SimpleNamespace(
        CLOCK_MONOTONIC_RAW=4, clock_gettime_ns=lambda clock: next(raw) if clock == 4 else None
    )
    monkeypatch.setattr(server_clock, "time", clocks)
    assert server_clock.slewed() == 2517 - 2010


class Timex(ctypes.Structure):
    """Beginning of struct timex of linux/timex.h."""

    _fields_ = [("modes", ctypes.c_uint)] + [
        (name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")
    ] + [("status", ctypes.c_int)]  # fmt: skip


def test_the_kernel_s_status_is_in_ns_and_ppm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are in us, and 65536 are 1 ppm (adjtimex(2))."""
    state = [0, 0x2001]

    def adjtimex(found: Any) -> int:
        timex = ctypes.cast(found, ctypes.POINTER(Timex)).contents
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


def test_what_an_ending_program_says_is_no_reply() -> None:
    written = io.StringIO()
    replies = Replies(written)
    replies.refuse(1, 0, "not_watching", "watch first")
    replies.end()
    replies.refuse(2, 0, "not_watching", "unwatch came while this request waited")
    assert [json.loads(line)["id"] for line in written.getvalue().splitlines()] == [1]
