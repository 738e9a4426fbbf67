"""Collectives among servers by the OSU micro-benchmarks, from memory to memory over MPI."""

import shlex
from collections.abc import Mapping, Sequence

from instruments.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
)
from instruments.errors import NoReplyError
from instruments.servers.commands import CommandResult, Commands
from instruments.servers.launchers import Launcher, Mpirun
from instruments.servers.tools import osu
from instruments.servers.tools.output import ToolOutputError
from testbeds.flows import Collective

PROGRAMS: dict[Collective, str] = {
    "all_reduce": "osu_allreduce",
    "all_gather": "osu_allgather",
    "reduce_scatter": "osu_reduce_scatter",
    "all_to_all": "osu_alltoall",
}
"""The benchmark of each collective; none sends from one to the next in a ring."""

_OF_ONE_RANK = frozenset(("all_gather", "all_to_all"))
"""Whose sizes OSU counts as what one rank gives to one other, not as all that a rank holds."""

_LAST_LINES = 6


class OsuBenchmarks:
    """Runs OSU micro-benchmarks; they check no values, and tell averages alone.

    The time of a size is the average of the rank that took longest (option -f).

    Args:
        commands: programs on each server, by its name in the testbed.
        hosts: what launchers call each server.
        launcher: how ranks are started.
        environment: variables for all ranks; they are recorded.
        folder: where the benchmarks are; empty where they are on the path.
        simulated: whether the servers are.
    """

    def __init__(
        self,
        commands: Mapping[str, Commands],
        hosts: Mapping[str, str],
        launcher: Launcher | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str = "",
        simulated: bool = False,
    ) -> None:
        self._commands = commands
        self._hosts = hosts
        self._launcher = launcher or Mpirun()
        self._environment = dict(environment or {})
        self._folder = folder
        self._simulated = simulated

    @property
    def simulated(self) -> bool:
        """Whether the times are a model's."""
        return self._simulated

    def run(
        self, call: CollectiveCall, *, timeout: int = DEFAULT_TIMEOUT
    ) -> Sequence[CollectiveMeasurement]:
        """Run `call`; see `CollectiveRunner`. Each size takes a benchmark of its own.

        Raises `CollectiveFailedError` also for a collective that OSU has no benchmark of, and for
        sizes that it cannot share out.
        """
        return [self._run(call, size, timeout) for size in call.sizes]

    def _run(self, call: CollectiveCall, size: int, timeout: int) -> CollectiveMeasurement:
        commands = self._commands[call.ranks[0]]
        command = self._command(call, size, commands)
        line = shlex.join(command)
        try:
            result = commands.run(command, timeout)
        except NoReplyError as error:
            raise CollectiveFailedError(
                commands.server,
                f"did not end {call.collective} among {', '.join(call.ranks)} within "
                f"{timeout / 1e9:g} s",
                command=line,
                details=[("try", "are the links between these servers up?")],
                trace=commands.trace.tail(),
            ) from error
        if result.status != 0:
            said = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
            raise CollectiveFailedError(
                commands.server,
                f"could not run {call.collective} among {', '.join(call.ranks)}: "
                f"status {result.status}",
                command=line,
                details=[("said", text) for text in said[-_LAST_LINES:]],
            )
        return self._measurement(call, size, result, f"{commands.server}: {line}")

    def _command(self, call: CollectiveCall, size: int, commands: Commands) -> list[str]:
        program = PROGRAMS.get(call.collective)
        shares = len(call.ranks) if call.collective in _OF_ONE_RANK else 1
        if program is None or size % shares:
            why = f"{size} B for {shares} ranks" if program else "no benchmark of it"
            raise CollectiveFailedError(
                commands.server, f"cannot run {call.collective} by OSU: {why}"
            )
        each = size // shares
        path = self._folder.rstrip("/") + "/" * bool(self._folder) + program
        words = [path, "-m", f"{each}:{each}", "-x", str(call.warm_up)]
        words += ["-i", str(call.iterations), "-f"]
        hosts = [self._hosts[name] for name in call.ranks]
        return self._launcher.command(words, hosts, self._environment)

    def _measurement(
        self, call: CollectiveCall, size: int, result: CommandResult, where: str
    ) -> CollectiveMeasurement:
        shares = len(call.ranks) if call.collective in _OF_ONE_RANK else 1
        try:
            report = osu.parse(result.stdout)
        except ToolOutputError as error:
            raise error.at(where) from error
        rows = [row for row in report.rows if row.size * shares == size]
        if len(rows) != 1 or rows[0].most_ns is None:
            raise ToolOutputError(
                osu.TOOL,
                f"one row of {size // shares} B with the greatest latency",
                ", ".join(str(row.size) for row in report.rows),
                where=where,
            )
        return CollectiveMeasurement(
            call.collective,
            call.ranks,
            size,
            (rows[0].most_ns,),
            call.iterations,
            None,
            f"{osu.TOOL} {report.version}",
            {"launcher": self._launcher.name, **self._environment},
            result.at,
        )
