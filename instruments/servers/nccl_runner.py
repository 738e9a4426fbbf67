"""Collectives on GPUs by nccl-tests, started on the first rank's server."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from instruments.clock import Span
from instruments.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
)
from instruments.errors import NoReplyError
from instruments.servers.commands import CommandResult, Commands
from instruments.servers.launchers import Launcher, Mpirun
from instruments.servers.tools import nccl_tests
from instruments.servers.tools.nccl_results import CollectiveRow, CollectiveRun, Measured
from instruments.servers.tools.output import ToolOutputError
from testbeds.flows import Collective

PROGRAMS: dict[Collective, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "send_receive": "sendrecv_perf",
}
"""The test of each collective."""

_WRITING = re.compile(r"# Writing JSON output to (\S+)\s*$", re.MULTILINE)
_LAST_LINES = 6
_WHOLE_UNITS = 16
"""A size that is asked for may be less by so many bytes a rank: shares are of whole elements."""


class NcclTests:
    """Runs nccl-tests.

    Args:
        commands: programs on each server, by its name in the testbed.
        hosts: what launchers call each server.
        launcher: how ranks are started.
        environment: variables for all ranks, such as NCCL_IB_HCA; they are recorded.
        folder: where the tests are; empty where they are on the path.
        scratch: where the file with the times of single operations is written (-J, -I, from
            version 2.17); None asks for averages only, which every version tells.
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
        scratch: str | None = None,
        simulated: bool = False,
    ) -> None:
        self._commands = commands
        self._hosts = hosts
        self._launcher = launcher or Mpirun()
        self._environment = dict(environment or {})
        self._folder = folder
        self._scratch = scratch
        self._simulated = simulated

    @property
    def simulated(self) -> bool:
        """Whether the times are a model's."""
        return self._simulated

    def run(
        self, call: CollectiveCall, *, timeout: int = DEFAULT_TIMEOUT
    ) -> Sequence[CollectiveMeasurement]:
        """Run `call`; see `CollectiveRunner`.

        Where no factor leads through all sizes it takes several tests, each within `timeout`.
        """
        return [
            measurement
            for sizes, factor in _progressions(call.sizes)
            for measurement in self._run(call, sizes, factor, timeout)
        ]

    def _run(
        self, call: CollectiveCall, sizes: Sequence[int], factor: int, timeout: int
    ) -> list[CollectiveMeasurement]:
        commands = self._commands[call.ranks[0]]
        command = self._command(call, sizes, factor)
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
            raise self._failed(call, commands, line, result)
        try:
            run = self._parsed(call, commands, result)
        except ToolOutputError as error:
            raise error.at(f"{commands.server}: {line}") from error
        if len(run.rows) != len(sizes) or any(map(_is_other_size, run.rows, sizes)):
            raise ToolOutputError(
                nccl_tests.TOOL,
                f"rows of {', '.join(map(str, sizes))} B",
                ", ".join(str(row.size) for row in run.rows),
                where=f"{commands.server}: {line}",
            )
        return [self._measurement(call, run, row, result.at) for row in run.rows]

    def _command(self, call: CollectiveCall, sizes: Sequence[int], factor: int) -> list[str]:
        program = [
            self._folder.rstrip("/") + "/" * bool(self._folder) + PROGRAMS[call.collective],
            *("-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factor)),
            *("-w", str(call.warm_up), "-n", str(call.iterations), "-c", "1"),
        ]
        if self._scratch is not None:
            program += ["-I", "1", "-J", self._scratch]
        hosts = [self._hosts[name] for name in call.ranks]
        return self._launcher.command(program, hosts, self._environment)

    def _parsed(
        self, call: CollectiveCall, commands: Commands, result: CommandResult
    ) -> CollectiveRun:
        name = PROGRAMS[call.collective].removesuffix("_perf")
        table = nccl_tests.parse(result.stdout, collective=name, ranks=len(call.ranks))
        if self._scratch is None:
            return table
        written = _WRITING.search(result.stdout)
        if written is None:
            raise ToolOutputError(nccl_tests.TOOL, "`# Writing JSON output to PATH`")
        path = written[1]
        file = commands.read(
            ["cat", path],
            lambda text: nccl_tests.parse(text, collective=name, ranks=len(call.ranks)),
        )
        commands.run(["rm", "-f", path])
        # The file knows the version of NCCL, the table that of the tests.
        return replace(file.value, version=table.version)

    def _measurement(
        self, call: CollectiveCall, run: CollectiveRun, row: CollectiveRow, at: Span
    ) -> CollectiveMeasurement:
        each = [time for measured in row.measured for time in _single_times(measured)]
        checked = [measured.wrong for measured in row.measured if measured.wrong is not None]
        return CollectiveMeasurement(
            call.collective,
            call.ranks,
            row.size,
            tuple(each or (measured.time_ns for measured in row.measured)),
            1 if each else call.iterations,
            sum(checked) if checked else None,
            f"nccl-tests {run.version}" if run.version else "nccl-tests",
            {"launcher": self._launcher.name, **self._environment},
            at,
        )

    def _failed(
        self, call: CollectiveCall, commands: Commands, line: str, result: CommandResult
    ) -> CollectiveFailedError:
        said = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
        return CollectiveFailedError(
            commands.server,
            f"could not run {call.collective} among {', '.join(call.ranks)}: "
            f"status {result.status}",
            command=line,
            details=[
                *(("said", text) for text in said[-_LAST_LINES:]),
                ("try", "are the links between these servers up? NCCL_DEBUG=INFO says more"),
            ],
        )


def _single_times(measured: Measured) -> list[int]:
    return [round(us * 1e3) for us in measured.iterations.each_us] if measured.iterations else []


def _is_other_size(row: CollectiveRow, asked: int) -> bool:
    return not asked - _WHOLE_UNITS * max(row.size // max(row.count, 1), 1) < row.size <= asked


def _progressions(sizes: Sequence[int]) -> list[tuple[Sequence[int], int]]:
    """`sizes` cut where no whole factor leads from one to the next, with that factor."""
    found: list[tuple[list[int], int]] = []
    for size in sizes:
        if found:
            run, factor = found[-1]
            if len(run) == 1 and size > run[0] and size % run[0] == 0:
                found[-1] = [*run, size], size // run[0]
                continue
            if len(run) > 1 and size == run[-1] * factor:
                run.append(size)
                continue
        found.append(([size], 2))
    return list(found)
