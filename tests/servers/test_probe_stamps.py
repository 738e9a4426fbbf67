"""Arrival times of datagrams: by the kernel's stamp, or a NIC's, not by the time of reading."""

import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.servers.programs import kernel_stamps

MS = 1_000_000
SO_TIMESTAMPING = 37  # of asm-generic/socket.h


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
    stamps = kernel_stamps.open_stamps(ends[0], "lo")
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
    lead = kernel_stamps.read_lead(time.CLOCK_REALTIME).least
    readings = []

    def now() -> int:
        readings.append(time.monotonic_ns())
        if len(readings) == 2:
            time.sleep(0.02)
        return time.monotonic_ns()

    monkeypatch.setattr(kernel_stamps, "now", now)
    assert kernel_stamps.read_lead(time.CLOCK_REALTIME).least > lead - MS
    assert len(readings) >= 4


@pytest.mark.parametrize("moved", [-5 * MS, 5 * MS])
def test_a_clock_that_is_moved_meanwhile_makes_no_datagram_too_early(
    ends, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    stamps = kernel_stamps.open_stamps(ours, "lo")
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
    kernel_stamps.open_stamps(ours, "lo")
    ahead = 0

    def read(clock: int) -> kernel_stamps.Lead:
        lead = kernel_stamps.read_lead(clock)
        return lead._replace(least=lead.least + ahead, most=lead.most + ahead)

    stamps = kernel_stamps.KernelStamps({0: time.CLOCK_REALTIME}, lead=read)
    before = kernel_stamps.now()
    theirs.send(b"x")
    assert select.select([ours], [], [], 10)[0]
    ahead = moved
    _, there = stamps.receive(ours)
    assert before <= there <= kernel_stamps.now()


@pytest.mark.parametrize("moved", [-300_000, 300_000, 7 * MS])
def test_a_clock_that_was_set_is_noted_once_with_the_size(
    moved: int,
) -> None:
    """Both readings are replaced, so that a pause of this test is no step."""
    at, ahead = [0], [5 * MS]

    def read(clock: int) -> kernel_stamps.Lead:
        at[0] += MS
        return kernel_stamps.Lead(at[0], ahead[0] - 700, ahead[0] + 500)

    stamps = kernel_stamps.KernelStamps({0: time.CLOCK_REALTIME}, lead=read)
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
        # struct scm_timestamping of linux/errqueue.h: of the kernel, an unused one, of the NIC.
        self.times = struct.pack("@6q", 0, 0, 0, 0, *divmod(stamp, 1_000_000_000))

    def recvmsg(
        self, size: int, room: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        return b"x", [(socket.SOL_SOCKET, SO_TIMESTAMPING, self.times)], 0, None


def test_a_nic_that_stamps_is_believed_by_its_own_clock(tmp_path: Path) -> None:
    device = os.open(tmp_path, os.O_RDONLY)
    stamps = kernel_stamps.KernelStamps(
        {0: time.CLOCK_REALTIME, 2: time.CLOCK_MONOTONIC_RAW}, device
    )
    assert stamps.source == "kernel"
    here = kernel_stamps.now()
    stamp = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    time.sleep(0.02)
    _, there = stamps.receive(Nic(stamp))
    assert here <= there <= here + 20 * MS
    assert stamps.source == "NIC"
    stamps.close()
    stamps.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(device)


class Unstamped(socket.socket):
    """A socket of a kernel that has no stamps."""

    def setsockopt(self, level: int, option: int, value: Any) -> None:  # type: ignore[override]
        assert (level, option) == (socket.SOL_SOCKET, SO_TIMESTAMPING)
        raise OSError("Protocol not available")


def test_without_stamps_it_is_the_time_of_reading(ends) -> None:
    _, theirs = ends
    with Unstamped(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind(("127.0.0.1", 0))
        theirs.connect(ours.getsockname())
        stamps = kernel_stamps.open_stamps(ours, "lo")
        assert stamps.source == "reader"
        theirs.send(b"x")
        time.sleep(0.01)
        before = kernel_stamps.now()
        assert stamps.receive(ours)[1] >= before
