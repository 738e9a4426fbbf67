"""Ranks that do nothing: how late the hosts of a job wake a program that sleeps."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock, Event, Span
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.traffic.rank_launcher import start_on
from lightrig.instruments.servers.host.linux import LinuxServer, this_boot_id
from lightrig.instruments.servers.host.program import Program

IDLE = Program(
    "lightrig-idle",
    "the idle rank's program",
    1,
    ("server_clock", "replies", "processor_use", "idle_program"),
    "Python",
    programs.__name__,
)

PERIOD_NS = 20_000_000
"""Time, in ns, for which an idle task of the harness sleeps, as an idle rank does."""

_START_NS = 30_000_000_000

SLOW_NS = 1_000_000
"""Lateness, in ns, from which on a wake-up counts as late."""

SLOW_SHARE = 0.05
"""Share of late wake-ups from which on a host was slow: no quiet machine has as many."""


WAITED_SHARE = 0.1
"""Share of the time in which a job's programs could run, from which on their waits count."""

FOREIGN_SHARE = 0.2
"""Share of a host's processors that other programs used, from which on they slow a job."""


@dataclass(frozen=True, slots=True)
class HostLateness:
    """How late a host woke a rank that does nothing, which it should have woken 50 times a second.

    That alone does not show a busy host: a scheduler favours what sleeps. So it is also known how
    long the ranks' threads could run and waited for a processor, and how much other programs ran.

    Attributes:
        host: its name; that of the harness's process where `servers` is empty.
        here: whether the harness runs on it.
        servers: of the job that are on it.
        n: number of times. mean, high, longest: of their lateness, in ns; `high` is exceeded by one
            in twenty. late: share of those that were late by more than `SLOW_NS`.
        processors: that the host has; 0 where that was not asked for.
        foreign: how many of them programs used in the mean that are not the job's.
        waited: share of the time in which the ranks' threads could run that they waited for a
            processor; None where the kernel does not count it.
    """

    host: str
    here: bool
    servers: tuple[str, ...]
    n: int
    mean: float
    high: int
    longest: int
    late: float
    processors: int = 0
    foreign: float = 0.0
    waited: float | None = None

    @property
    def slow(self) -> bool:
        """Whether the host was a slow part of the job."""
        waits = self.waited is not None and self.waited > WAITED_SHARE
        crowded = waits and self.foreign > FOREIGN_SHARE * self.processors
        return crowded or self.late > SLOW_SHARE

    def __str__(self) -> str:
        """Return who was slow, or on time, and by which figures."""
        name = f"this host, {self.host}," if self.here else ", ".join(self.servers)
        name = name if self.servers else self.host
        mean, high, longest = (f"{at / 1e6:.2f} ms" for at in (self.mean, self.high, self.longest))
        slow = "was the slow part" if self.slow else "was on time"
        waited = ""
        if self.waited is not None:
            waited = (
                f"for {self.waited:.0%} of the time in which they could run, the ranks waited for "
                f"a processor, and other programs used {self.foreign:.1f} of its "
                f"{self.processors}; "
            )
        return (
            f"{name} {slow}: {waited}it woke a rank that does nothing {mean} late in the mean, "
            f"{high} once in 20 times, {longest} at most (n = {self.n})"
        )


class IdleTask:
    """A task of the harness that sleeps, beside others, and notes how late it wakes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late: list[tuple[int, int]] = []

    def run(self, over: Event) -> None:
        """Sleep until `over` is set."""
        due = self._clock.now() + PERIOD_NS
        while not over.wait(PERIOD_NS):
            at = self._clock.now()
            self._late.append((at, at - due))
            due = at + PERIOD_NS

    def lateness(self, between: Span) -> list[HostLateness]:
        """Return how late it was between two moments; nothing if it never woke then."""
        late = sorted(by for at, by in self._late if between.earliest <= at <= between.latest)
        return [_lateness("Lightrig's own process", True, (), late)] if late else []


class IdleRanks:
    """A rank that does nothing on each machine that servers of a job share, until closed.

    Raises `InstrumentError` where a server refuses.
    """

    def __init__(self, clock: Clock, servers: Sequence[LinuxServer]) -> None:
        self._on: dict[str, tuple[str, int, list[str]]] = {}
        self._runs = {}
        try:
            for server in servers:
                run = start_on(server, IDLE, clock)
                self._runs[server.name] = run
                hello = run.submit("hello", {}, _START_NS).result()
                run.greeted(hello)
                boot = str(hello["boot"])
                if boot in self._on:
                    self._runs.pop(server.name).close()
                    self._on[boot][2].append(server.name)
                else:
                    processors = int(hello["processors"])
                    self._on[boot] = str(hello["host"]), processors, [server.name]
        except BaseException:
            self.close()
            raise

    def begin(self, groups: Mapping[str, Sequence[int]]) -> None:
        """Forget what was before; `groups` are the process groups of each server's ranks."""
        for boot in self._on:
            self._look(boot, groups)

    def lateness(
        self, between: Span, groups: Mapping[str, Sequence[int]] | None = None
    ) -> list[HostLateness]:
        """Return how late each host was between two moments of the bench's clock.

        What was before the first such request, or the last one, is forgotten after it; how the
        host's processors were used is counted since then. groups: as for `begin`.
        """
        found = []
        for boot, (host, processors, servers) in self._on.items():
            answer, clocks = self._look(boot, groups or {}), self._runs[servers[0]].clocks
            late = sorted(
                by
                for at, by in answer["late"]
                if between.earliest <= clocks.here(at).latest <= between.latest
            )
            use = answer["use"] if groups else None
            if late:
                here = boot == this_boot_id()
                found.append(_lateness(host, here, servers, late, processors, use))
        return found

    def _look(self, boot: str, groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        _, _, servers = self._on[boot]
        # Probes and simulated instruments of this process are the job's as well.
        roots = [os.getpid()] if boot == this_boot_id() else []
        of_host = [group for name in servers for group in groups.get(name, ())]
        request = self._runs[servers[0]].submit("late", {"roots": roots, "groups": of_host})
        return request.result()

    def close(self) -> None:
        """End the programs."""
        for run in self._runs.values():
            run.close()


def _lateness(
    host: str,
    here: bool,
    servers: Sequence[str],
    late: Sequence[int],
    processors: int = 0,
    use: Mapping[str, Any] | None = None,
) -> HostLateness:
    n = len(late)
    many = sum(by > SLOW_NS for by in late) / n
    high = late[min(n - 1, n * 19 // 20)]
    mean, longest = sum(late) / n, late[-1]
    foreign, waited = 0.0, None
    if use is not None and use["elapsed"]:
        foreign = max(0, use["busy"] - use["job"]) / use["elapsed"]
        if use["waited"] is not None and use["ran"] + use["waited"]:
            waited = use["waited"] / (use["ran"] + use["waited"])
    return HostLateness(
        host, here, tuple(servers), n, mean, high, longest, many, processors, foreign, waited
    )
