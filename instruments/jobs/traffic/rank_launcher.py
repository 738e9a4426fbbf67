"""How the ranks of a job are started, asked and ended: one protocol under all libraries.

A library states its own words: the program of a rank, options and environment of its launcher, the
bodies of requests, what an answer means. What every job needs is here and in the two launchers: a
rank is a program that is sent to a server and answers requests (gather); it ends with its launcher,
which kills what ranks and helpers have left behind; a failed start names ranks, servers and what
was printed last.

`ServerLauncher` has each server start its rank. `mpiexec.Mpiexec` runs one launcher on this
machine, whose ranks connect back to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.servers.host.linux import LinuxServer, this_boot_id
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program, ProgramRequest, ProgramRun
from lightrig.instruments.wire.trace import Trace

_LAST_LINES = 6


def last_lines(printed: Sequence[str], by: str = "printed") -> list[tuple[str, str]]:
    """Return the end of what was printed, as details of an error."""
    return [(by, line) for line in printed[-_LAST_LINES:]]


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank runs.

    Attributes:
        rank: its name in requests and errors.
        server: its server.
        interface: network device of its connections.
    """

    rank: str
    server: LinuxServer
    interface: str


class RankProgram:
    """The program of one rank.

    Attributes:
        clocks: relates its stamps to the bench's clock.
        pid: its process on the server; 0 before `greeting`.
    """

    def __init__(self, run: ProgramRun, clocks: ClockMap) -> None:
        self.clocks = clocks
        self.pid = 0
        self._run = run

    def submit(self, verb: str, body: Mapping[str, Any], duration: int = 0) -> ProgramRequest:
        """Send a request that may take `duration` ns."""
        return self._run.submit(verb, body, duration)

    def greeted(self, answer: Mapping[str, Any]) -> None:
        """Learn process and clock from its answer to `hello`."""
        self.clocks.same_clock = answer.get("boot") == this_boot_id()
        self.pid = int(answer.get("pid", 0))

    @property
    def over(self) -> bool:
        """Whether the program has ended."""
        return self._run.over

    def close(self) -> None:
        """End the program."""
        self._run.close()


def start_on(
    server: LinuxServer,
    program: Program,
    clock: Clock,
    on_event: Callable[[dict[str, Any], int], None] | None = None,
) -> RankProgram:
    """Start `program` on a server as one rank; `on_event` as for `ProgramRun`."""
    clocks = ClockMap(name=server.name)
    return RankProgram(server.start(program, Trace(clock), clocks, on_event), clocks)


class RankLauncher(Protocol):
    """Starts the ranks of a job, and ends them with all that they leave behind."""

    @property
    def together(self) -> bool:
        """Whether all ranks of a job start at once, so that no further one can join them."""

    def start(self, places: Sequence[RankPlace]) -> dict[str, RankProgram]:
        """Start a rank at each place; return them by name, in this order.

        Raises `CollectiveFailedError`, which names ranks, servers and what was printed last, or
        `InstrumentError` where a server refuses. Then none of them is left.
        """

    def stop(self) -> None:
        """End launcher and helpers, and kill what they have left; the ranks were closed before."""


class ServerLauncher:
    """Ranks that their servers start: one program each, over the server's own connection."""

    together = False

    def __init__(self, program: Program, clock: Clock) -> None:
        self._program, self._clock = program, clock

    def start(self, places: Sequence[RankPlace]) -> dict[str, RankProgram]:
        """Start a rank at each place; see `RankLauncher`."""
        started: dict[str, RankProgram] = {}
        try:
            for place in places:
                started[place.rank] = start_on(place.server, self._program, self._clock)
        except BaseException:
            end_ranks(started.values())
            raise
        return started

    def stop(self) -> None:
        """Do nothing: a server's connection ends what its program has started."""


def end_ranks(ranks: Iterable[RankProgram]) -> None:
    """End the programs of `ranks`."""
    for each in ranks:
        each.close()
