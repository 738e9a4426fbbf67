"""Arrival times of datagrams: by the kernel's stamp, or a NIC's, not by the time of reading."""

import select
import socket
import time
from collections.abc import Iterator

import pytest

from lightrig.instruments.servers.programs import kernel_stamps

MS = 1_000_000


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs,
    ):
        ours.bind(("127.0.0.1", 0))
        theirs.connect(ours.getsockname())
        yield ours, theirs


def late_reading(
    ends: tuple[socket.socket, socket.socket], stamps: kernel_stamps.KernelStamps
) -> tuple[int, int, int]:
    """Read a datagram 20 ms after it came; return a time before it, its own, and one after it."""
    ours, theirs = ends
    before = kernel_stamps.now()
    theirs.send(b"x")
    assert select.select([ours], [], [], 10)[0]
    waiting = kernel_stamps.now()
    time.sleep(0.02)
    data, there = stamps.receive(ours)
    assert data == b"x"
    stamps.emptied()
    return before, there, waiting


def test_a_datagram_that_is_read_late_was_there_before(ends) -> None:
    stamps = kernel_stamps.KernelStamps(ends[0], "lo")
    assert stamps.source == "kernel"

    for _ in range(100):  # the first ones the kernel may stamp when they are read
        before, there, waiting = late_reading(ends, stamps)
        assert before <= there
        if there <= waiting:
            break
    for _ in range(3):
        before, there, waiting = late_reading(ends, stamps)
        assert before <= there <= waiting


def test_a_reading_of_two_clocks_that_is_interrupted_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lead = kernel_stamps._ahead(time.CLOCK_REALTIME).least
    readings = []

    def now() -> int:
        readings.append(time.monotonic_ns())
        if len(readings) == 2:
            time.sleep(0.02)
        return time.monotonic_ns()

    monkeypatch.setattr(kernel_stamps, "now", now)
    assert kernel_stamps._ahead(time.CLOCK_REALTIME).least > lead - MS
    assert len(readings) >= 4


@pytest.mark.parametrize("moved", [-5 * MS, 5 * MS])
def test_a_clock_that_is_moved_meanwhile_makes_no_datagram_too_early(
    ends, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    stamps = kernel_stamps.KernelStamps(ours, "lo")
    before = kernel_stamps.now()
    theirs.send(b"x")
    assert select.select([ours], [], [], 10)[0]
    time.sleep(0.01)
    monkeypatch.setattr(kernel_stamps, "now", lambda: time.monotonic_ns() + moved)
    _, there = stamps.receive(ours)
    assert there >= before + min(moved, 0)
    assert there >= before or moved < 0
    assert there <= kernel_stamps.now()


@pytest.mark.parametrize("moved", [-500 * MS, 500 * MS])
def test_a_calendar_that_is_set_after_the_stamp_makes_no_datagram_too_early(
    ends, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    stamps = kernel_stamps.KernelStamps(ours, "lo")
    before, ahead = kernel_stamps.now(), kernel_stamps._ahead
    theirs.send(b"x")
    assert select.select([ours], [], [], 10)[0]
    monkeypatch.setattr(kernel_stamps, "_ahead", lambda clock: later(ahead(clock), moved))
    _, there = stamps.receive(ours)
    assert before <= there <= kernel_stamps.now()


def later(lead: kernel_stamps._Lead, moved: int) -> kernel_stamps._Lead:
    return lead._replace(least=lead.least + moved, most=lead.most + moved)


@pytest.mark.parametrize("moved", [-300_000, 300_000, 7 * MS])
def test_a_clock_that_was_set_is_noted_once_with_the_size(
    ends, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both readings are replaced, so that a pause of this test is no step."""
    at, ahead = [0], [5 * MS]

    def read(clock: int) -> kernel_stamps._Lead:
        at[0] += MS
        return kernel_stamps._Lead(at[0], ahead[0] - 700, ahead[0] + 500)

    monkeypatch.setattr(kernel_stamps, "_ahead", read)
    stamps = kernel_stamps.KernelStamps(ends[0], "lo")
    for _ in range(100):
        ahead[0] += 900  # a clock 900 ppm fast
        stamps.emptied()
    assert stamps.take_steps() == []
    ahead[0] += moved
    stamps.emptied()
    stamps.emptied()
    slack = 1_200 + 1_000  # of two readings, and 1,000 ppm of 1 ms
    step = ("CLOCK_REALTIME", 101 * MS, 102 * MS, moved - slack, moved + slack)
    assert stamps.take_steps() == [step]
    assert stamps.take_steps() == []


class Nic:
    """A socket whose NIC has stamped a datagram by CLOCK_MONOTONIC_RAW, its PTP clock."""

    def __init__(self, stamp: int) -> None:
        self.times = (0, 0, 0, 0, *divmod(stamp, 1_000_000_000))

    def recvmsg(
        self, size: int, room: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        control = kernel_stamps._STAMPS.pack(*self.times)
        return b"x", [(socket.SOL_SOCKET, kernel_stamps._SO_TIMESTAMPING, control)], 0, None


def test_a_nic_that_stamps_is_believed_by_its_own_clock(ends) -> None:
    stamps = kernel_stamps.KernelStamps(ends[0], "lo")
    stamps._clocks, stamps._last = {2: time.CLOCK_MONOTONIC_RAW}, {}
    stamps._before = stamps._leads = stamps._read()
    here = kernel_stamps.now()
    stamp = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    time.sleep(0.02)
    _, there = stamps.receive(Nic(stamp))
    assert here <= there <= here + 20 * MS
    assert stamps.source == "NIC"


def test_without_stamps_it_is_the_time_of_reading(ends, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = ends
    monkeypatch.setattr(kernel_stamps, "_SO_TIMESTAMPING", 9999)
    stamps = kernel_stamps.KernelStamps(ours, "lo")
    assert stamps.source == "reader"
    theirs.send(b"x")
    time.sleep(0.01)
    before = kernel_stamps.now()
    assert stamps.receive(ours)[1] >= before
