"""OSU micro-benchmarks: latency, bandwidth, and collectives, blocking or not.

A table begins with `# OSU MPI ... v7.4` and a line of column names, of which those in units are
kept as they are printed: `Avg Latency(us)`, `Bandwidth (MB/s)`, and for non-blocking collectives
`Overall(us)`, `Compute(us)`, `Pure Comm.(us)`, `Overlap(%)`. A barrier has no size. With `-c` a
last column `Validation` has Pass or Fail, as in issue 12717 of open-mpi/ompi; a Fail is an error.
Source: osu_util of the benchmarks, and the outputs in PerfKitBenchmarker's tests.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    ToolReportedError,
    number,
    whole,
    without_prefixes,
)

TOOL = "OSU micro-benchmarks"

_TITLE = re.compile(r"# (OSU .+?)(?: v(\d\S*))?$")
_VALIDATION = "Validation"
_COLUMNS = re.compile(r"\s{2,}|\t+")


@dataclass(frozen=True, slots=True)
class OsuRow:
    """One line: the message size in bytes, None for a barrier, and the values by column."""

    size: int | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OsuRun:
    """One table.

    Attributes:
        title: such as `OSU MPI Allreduce Latency Test`.
        version: None where it was not printed.
        columns: names of the values, as printed.
        rows: in order of their sizes.
    """

    title: str
    version: str | None
    columns: tuple[str, ...]
    rows: tuple[OsuRow, ...]


def parse(text: str) -> OsuRun:
    """Parse the output of one benchmark; lines of the launcher before it are skipped.

    Raises:
        ToolReportedError: the benchmark found wrong values.
        ToolOutputError: there is no such table, or a row does not fit its columns.
    """
    title: re.Match[str] | None = None
    columns: list[str] | None = None
    rows: list[OsuRow] = []
    for line in text.splitlines():
        stripped = without_prefixes(line).strip()
        if found := _TITLE.match(stripped):
            if title is not None:
                raise ToolOutputError(TOOL, "one table", stripped)
            title = found
        elif title is None or not stripped:
            continue
        elif stripped.startswith("#"):
            names = _COLUMNS.split(stripped[1:].strip())
            if names[0] == "Size" or names[0].endswith(")"):
                columns = names
        elif columns is not None and stripped[:1].isdigit():
            rows.append(_row(stripped, columns))
    if title is None or columns is None or not rows:
        raise ToolOutputError(TOOL, "a title `# OSU ...`, column names and rows")
    sizes = [row.size for row in rows if row.size is not None]
    if sizes != sorted(set(sizes)):
        raise ToolOutputError(TOOL, "sizes in ascending order", sizes)
    values = [name for name in columns if name not in ("Size", _VALIDATION)]
    return OsuRun(title[1], title[2], tuple(values), tuple(rows))


def _row(line: str, columns: list[str]) -> OsuRow:
    fields = line.split()
    if len(fields) != len(columns):
        raise ToolOutputError(TOOL, f"{len(columns)} values below {', '.join(columns)}", line)
    if columns[-1] == _VALIDATION:
        *fields, outcome = fields
        columns = columns[:-1]
        if outcome != "Pass":
            raise ToolReportedError(TOOL, "Pass", line)
    try:
        values = [number(each).value for each in fields]
        if columns[0] != "Size":
            return OsuRow(None, dict(zip(columns, values, strict=True)))
        named = dict(zip(columns[1:], values[1:], strict=True))
        return OsuRow(whole(fields[0]), named)
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), line) from error
