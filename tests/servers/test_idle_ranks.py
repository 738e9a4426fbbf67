"""Ranks that do nothing, on servers that are this machine: how late it wakes them."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from program_host import Here

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.jobs.traffic.idle import HostLateness, IdleRanks, IdleTask
from lightrig.instruments.servers.host.linux import LinuxServer

MS = 1_000_000
EVER = Span(0, 1 << 62)


@pytest.fixture
def idle() -> Iterator[IdleRanks]:
    clock = SystemClock()
    shells = {name: Here() for name in ("left", "right")}
    servers = [LinuxServer(name, shell, clock, {}) for name, shell in shells.items()]
    made = IdleRanks(clock, servers)
    yield made
    made.close()
    for shell in shells.values():
        shell.close()
    clock.close()


def sleepers() -> set[int]:
    """Return the idle ranks that this process has started, behind what watches over them."""
    parents, ranks = {}, set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, parent = int(path.parent.name), path.read_text().rpartition(")")[2].split()[1]
            words = path.with_name("cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        parents[pid] = int(parent)
        if b"lightrig-idle" in words and Path(words[0].decode()).name.startswith("python"):
            ranks.add(pid)
    return {rank for rank in ranks if os.getpid() in lineage(rank, parents)}


def lineage(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while (pid := parents.get(pid, 0)) > 1:
        yield pid


def test_servers_of_one_machine_share_a_rank(idle: IdleRanks) -> None:
    """Stopped for 500 ms, it wakes about 480 ms late: it sleeps for 20 ms at a time."""
    while len(found := sleepers()) != 1:  # that of the second server is ending
        time.sleep(0.05)
    (pid,) = found
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    longest = 0
    while longest < 400 * MS:
        for host in idle.lateness(EVER):
            assert (host.here, host.servers) == (True, ("left", "right"))
            assert host.host == os.uname().nodename
            assert 0 < host.high <= host.longest
            longest = max(longest, host.longest)


def test_only_what_lies_between_two_moments_counts(idle: IdleRanks) -> None:
    while not idle.lateness(EVER):
        time.sleep(0.02)
    assert idle.lateness(Span(0, 1)) == []


@pytest.mark.parametrize(("late", "slow"), [(0.0, False), (0.05, False), (0.06, True)])
def test_a_host_is_slow_where_one_wake_up_in_twenty_is_late(late: float, slow: bool) -> None:
    host = HostLateness("lab7", False, ("server0",), 300, 3 * MS, 13 * MS, 38_500_000, late)
    assert host.slow == slow
    assert str(host) == (
        f"server0 {'was the slow part' if slow else 'was on time'}: it woke a rank that does "
        "nothing 3.00 ms late in the mean, 13.00 ms once in 20 times, 38.50 ms at most (n = 300)"
    )


@pytest.mark.parametrize(
    ("waited", "foreign", "slow"),
    [(0.42, 1.6, True), (0.42, 0.3, False), (0.05, 1.6, False), (None, 1.6, False)],
    ids=["crowded", "ranks-share", "processors-left", "not-counted"],
)
def test_a_host_is_slow_where_ranks_wait_for_others(
    waited: float | None, foreign: float, slow: bool
) -> None:
    """Sleepers are woken in time there; a host of two processors."""
    host = HostLateness("lab7", False, ("a",), 300, 0, 0, MS, 0.0, 2, foreign, waited)
    assert host.slow == slow
    assert str(host).startswith(f"a {'was the slow part' if slow else 'was on time'}: ")
    if waited == 0.42:
        assert (
            "for 42% of the time in which they could run, the ranks waited for a processor, and "
            f"other programs used {foreign:.1f} of its 2; it woke a rank"
        ) in str(host)


def test_a_task_of_the_harness_is_late_where_its_process_is(clock: VirtualClock) -> None:
    """In virtual time nothing is; it sleeps 20 ms at a time, ten times in 210 ms."""
    over, task = clock.event(), IdleTask(clock)
    clock.schedule(210 * MS, "end", over.set)
    task.run(over)
    (found,) = task.lateness(EVER)
    assert (found.n, found.longest, found.servers, found.slow) == (10, 0, (), False)
    assert str(found).startswith("Lightrig's own process was on time: it woke")
    assert task.lateness(Span(0, 1)) == []
