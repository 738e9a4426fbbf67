"""Collectives on GPUs by nccl-tests, started on the first rank's server."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from instruments.clock import Span
from instruments.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveMeasurement,
)
from instruments.servers.launched import LaunchedRunner
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
_WHOLE_UNITS = 16
"""A size that is asked for may be less by so many bytes a rank: shares are of whole elements."""


@dataclass(frozen=True)
class NcclTests(LaunchedRunner):
    """Runs nccl-tests.

    Attributes:
        scratch: where the file with the times of single operations is written (-J, -I, from
            version 2.17); None asks for averages only, which every version tells.
    """

    scratch: str | None = None

    says_more: ClassVar[str] = "NCCL_DEBUG=INFO says more"

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
        options = [
            *("-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factor)),
            *("-w", str(call.warm_up), "-n", str(call.iterations), "-c", "1"),
        ]
        if self.scratch is not None:
            options += ["-I", "1", "-J", self.scratch]

        def parse(text: str) -> CollectiveRun:
            run = self._parsed(call, text)
            if len(run.rows) != len(sizes) or any(map(_is_other_size, run.rows, sizes)):
                raise ToolOutputError(
                    nccl_tests.TOOL,
                    f"rows of {', '.join(map(str, sizes))} B",
                    ", ".join(str(row.size) for row in run.rows),
                )
            return run

        run, at = self._launch(call, PROGRAMS[call.collective], options, parse, timeout)
        return [self._measurement(call, run, row, at) for row in run.rows]

    def _parsed(self, call: CollectiveCall, text: str) -> CollectiveRun:
        name = PROGRAMS[call.collective].removesuffix("_perf")
        parse = partial(nccl_tests.parse, collective=name, ranks=len(call.ranks))
        table = parse(text)
        if self.scratch is None:
            return table
        written = _WRITING.search(text)
        if written is None:
            raise ToolOutputError(nccl_tests.TOOL, "`# Writing JSON output to PATH`")
        path = written[1]
        commands = self.commands[call.ranks[0]]
        file = commands.read(["cat", path], parse)
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
            self._conditions,
            at,
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
