"""Ranks that do nothing: how late the hosts of a job wake a program that sleeps."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightrig.instruments.clock import Clock, Event, Span
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.traffic.rank_launcher import start_on
from lightrig.instruments.servers.host.linux import LinuxServer, this_boot_id
from lightrig.instruments.servers.host.program import Program

IDLE = Program(
    "lightrig-idle",
    "the idle rank's program",
    1,
    ("server_clock", "replies", "idle_program"),
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


@dataclass(frozen=True, slots=True)
class HostLateness:
    """How late a host woke a rank that does nothing, which it should have woken 50 times a second.

    Attributes:
        host: its name; that of the harness's process where `servers` is empty.
        here: whether the harness runs on it.
        servers: of the job that are on it.
        n: number of times. mean, high, longest: of their lateness, in ns; `high` is exceeded by one
            in twenty. late: share of those that were late by more than `SLOW_NS`.
    """

    host: str
    here: bool
    servers: tuple[str, ...]
    n: int
    mean: float
    high: int
    longest: int
    late: float

    @property
    def slow(self) -> bool:
        """Whether the host was a slow part of the job."""
        return self.late > SLOW_SHARE

    def __str__(self) -> str:
        """Return who was slow, or on time, and by which figures."""
        name = f"this host, {self.host}," if self.here else ", ".join(self.servers)
        name = name if self.servers else self.host
        mean, high, longest = (f"{at / 1e6:.2f} ms" for at in (self.mean, self.high, self.longest))
        slow = "was the slow part" if self.slow else "was on time"
        return (
            f"{name} {slow}: it woke a rank that does nothing {mean} late in the mean, {high} "
            f"once in 20 times, {longest} at most (n = {self.n})"
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
        self._on: dict[str, tuple[str, list[str]]] = {}
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
                    self._on[boot][1].append(server.name)
                else:
                    self._on[boot] = str(hello["host"]), [server.name]
        except BaseException:
            self.close()
            raise

    def lateness(self, between: Span) -> list[HostLateness]:
        """Return how late each host was between two moments of the bench's clock.

        What was before the first such request, or the last one, is forgotten after it.
        """
        found = []
        for boot, (host, servers) in self._on.items():
            run = self._runs[servers[0]]
            answer = run.submit("late", {}).result()
            late = sorted(
                by
                for at, by in answer["late"]
                if between.earliest <= run.clocks.here(at).latest <= between.latest
            )
            if late:
                found.append(_lateness(host, boot == this_boot_id(), servers, late))
        return found

    def close(self) -> None:
        """End the programs."""
        for run in self._runs.values():
            run.close()


def _lateness(host: str, here: bool, servers: Sequence[str], late: Sequence[int]) -> HostLateness:
    n = len(late)
    many = sum(by > SLOW_NS for by in late) / n
    high = late[min(n - 1, n * 19 // 20)]
    return HostLateness(host, here, tuple(servers), n, sum(late) / n, high, late[-1], many)
