"""Collectives on GPUs by nccl-tests, started on the first rank's server."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveMeasurement,
)
from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.tools import nccl_tests
from lightrig.instruments.jobs.tools.nccl_results import CollectiveRow, CollectiveRun, Measured
from lightrig.instruments.jobs.traffic.launched import LaunchedRunner
from lightrig.instruments.servers.tools.output import ToolOutputError

PROGRAMS: dict[Collective, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "send_receive": "sendrecv_perf",
}
"""Program of nccl-tests by collective."""

_WRITING = re.compile(r"# Writing JSON output to (\S+)\s*$", re.MULTILINE)
_WHOLE_UNITS = 16
"""A size may be smaller than requested by this many bytes per rank: shares are whole elements."""


@dataclass(frozen=True)
class NcclTests(LaunchedRunner):
    """Runs nccl-tests.

    Attributes:
        scratch: file for the times of single operations (-J, -I, from version 2.17); None records
            averages only, which every version prints.
    """

    scratch: str | None = None

    hint: ClassVar[str] = "NCCL_DEBUG=INFO prints more"

    def run(
        self, call: CollectiveCall, *, timeout: int = DEFAULT_TIMEOUT
    ) -> Sequence[CollectiveMeasurement]:
        """Run `call`; see `CollectiveRunner`.

        Sizes that are no geometric progression take several tests, each within `timeout`.
        """
        return [
            measurement
            for sizes, factor in progressions(call.sizes)
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
            if len(run.rows) != len(sizes) or any(map(size_differs, run.rows, sizes)):
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
        # The file has the version of NCCL, the table that of nccl-tests.
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


def size_differs(row: CollectiveRow, asked: int) -> bool:
    """Whether a row is of another size than `asked`, in bytes, but for what no rank could share."""
    return not asked - _WHOLE_UNITS * max(row.size // max(row.count, 1), 1) < row.size <= asked


def progressions(sizes: Sequence[int]) -> list[tuple[Sequence[int], int]]:
    """Split `sizes` into geometric progressions with whole factors, each with its factor."""
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
