"""Collectives among servers by the OSU micro-benchmarks, from memory to memory over MPI."""

from collections.abc import Sequence

from instruments.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
)
from instruments.servers.launched import LaunchedRunner
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


class OsuBenchmarks(LaunchedRunner):
    """Runs OSU micro-benchmarks; they check no values, and tell averages alone.

    The time of a size is the average of the rank that took longest (option -f).
    """

    def run(
        self, call: CollectiveCall, *, timeout: int = DEFAULT_TIMEOUT
    ) -> Sequence[CollectiveMeasurement]:
        """Run `call`; see `CollectiveRunner`. Each size takes a benchmark of its own.

        Raises `CollectiveFailedError` also for a collective that OSU has no benchmark of, and for
        sizes that it cannot share out.
        """
        return [self._run(call, size, timeout) for size in call.sizes]

    def _run(self, call: CollectiveCall, size: int, timeout: int) -> CollectiveMeasurement:
        program = PROGRAMS.get(call.collective)
        shares = len(call.ranks) if call.collective in _OF_ONE_RANK else 1
        if program is None or size % shares:
            why = f"{size} B for {shares} ranks" if program else "no benchmark of it"
            raise CollectiveFailedError(
                call.ranks[0], f"cannot run {call.collective} by OSU: {why}"
            )
        each = size // shares
        options = ["-m", f"{each}:{each}", "-x", str(call.warm_up)]
        options += ["-i", str(call.iterations), "-f"]
        (version, time), at = self._launch(
            call, program, options, lambda text: _version_and_time(text, each), timeout
        )
        return CollectiveMeasurement(
            call.collective,
            call.ranks,
            size,
            (time,),
            call.iterations,
            None,
            f"{osu.TOOL} {version}",
            self._conditions,
            at,
        )


def _version_and_time(text: str, size: int) -> tuple[str, int]:
    """Who measured, and the ns of the slowest rank; `size` is in bytes as OSU counts it."""
    report = osu.parse(text)
    rows = [row for row in report.rows if row.size == size]
    if len(rows) != 1 or rows[0].most_ns is None:
        raise ToolOutputError(
            osu.TOOL,
            f"one row of {size} B with the greatest latency",
            ", ".join(str(row.size) for row in report.rows),
        )
    return report.version, rows[0].most_ns
