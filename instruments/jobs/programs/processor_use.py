"""Processor time of a job's programs and of all others on a server, by its kernel.

A program that sleeps is woken at once also where others compute: the scheduler favours it. How long
the job's own programs could run and did not is in the run delay of their threads (schedstat), and
who ran meanwhile is in proc_stat(5) and proc_pid_stat(5).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import Any

from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["ProcessorUse"]

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

_SLEPT = "voluntary_ctxt_switches:"
"""Begin of the line in proc_pid_status(5) of how often a thread left its processor by itself."""

_WAKING_NS = 100_000
"""Time, in ns, that a thread may take to wake where a processor is free, which may sleep as well.

Threads of Gloo wake for each packet and run for some 10 us; in a virtual machine that does nothing
else they took 30 to 40 us to wake, so that three quarters of their time would count as waited.
"""


class ProcessorUse:
    """Differences between two looks at the processes of this machine."""

    def __init__(self) -> None:
        self._last: dict[str, Any] | None = None

    def look(self, roots: Collection[int], groups: Collection[int]) -> dict[str, int | None] | None:
        """Return what has passed since the last look, in ns; None at the first one.

        Args:
            roots: processes that belong to the job with all that they have started.
            groups: process groups of its ranks.

        Returns:
            `elapsed` time; `busy` time of all processors with programs, and what a hypervisor took:
            interrupts are none of a program's, such as those of the job's packets; time that
            processes of the `job` ran; and of its ranks' threads that live the time that they
            `ran`, and `waited` for a processor beyond `_WAKING_NS` each time that they woke,
            None where the kernel does not count it.
        """
        parents, members, ran = {}, set(), {}
        for pid, (parent, group, ticks) in _processes():
            parents[pid], ran[pid] = parent, ticks * _TICK_NS
            if group in groups:
                members.add(pid)
        ranks = _descendants(parents, members)
        job = _descendants(parents, {*roots, *ranks, os.getpid()})
        threads = {tid: times for pid in ranks for tid, times in _threads(pid)}
        found: dict[str, Any] = {
            "at": now(),
            "busy": _busy(),
            "job": {pid: ran[pid] for pid in job if pid in ran},
            "threads": threads,
        }
        last, self._last = self._last, found
        if last is None:
            return None
        counted = [(times, last["threads"].get(tid, (0, 0, 0))) for tid, times in threads.items()]
        waited = sum(
            max(0, after[1] - before[1] - _WAKING_NS * (after[2] - before[2]))
            for after, before in counted
        )
        return {
            "elapsed": found["at"] - last["at"],
            "busy": found["busy"] - last["busy"],
            "job": sum(ns - last["job"].get(pid, 0) for pid, ns in found["job"].items()),
            "ran": sum(after[0] - before[0] for after, before in counted),
            "waited": waited if threads else None,
        }


def _busy() -> int:
    """Return the time that all processors ran programs since the start, in ns."""
    with open("/proc/stat", encoding="utf-8") as file:
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
        user, nice, system, _, _, _, _, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + steal) * _TICK_NS


def _processes() -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield each process with its parent, its group, and ticks, of reaped children as well."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8") as file:
            # After the name in parentheses come the state, parent and group; 14 to 17 are times.
            fields = file.read().rpartition(")")[2].split()
            yield int(name), (int(fields[1]), int(fields[2]), sum(map(int, fields[11:15])))


def _threads(pid: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield each thread of a process with the times that it ran and waited, and how often it slept.

    Times are in ns.
    """
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{tid}"
            with contextlib.suppress(OSError):
                with open(f"{path}/schedstat", encoding="utf-8") as file:
                    ran, waited, _ = map(int, file.read().split())
                with open(f"{path}/status", encoding="utf-8") as file:
                    slept = next(
                        int(line[len(_SLEPT) :]) for line in file if line.startswith(_SLEPT)
                    )
                yield int(tid), (ran, waited, slept)


def _descendants(parents: dict[int, int], found: set[int]) -> set[int]:
    found = set(found)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found
