"""OSU micro-benchmarks: latency, bandwidth or message rate of MPI, by size.

A header `# OSU MPI ... Test vN`, one with the names of columns, then rows. Lines that an MPI
prints of itself in between are passed over, as long as none begins with a number.
Source: samples of version 5.7.1 and the column names of the benchmarks.
"""

import re
from dataclasses import dataclass

from instruments.servers.tools.output import ToolOutputError, number, whole

TOOL = "OSU micro-benchmarks"

_TITLE = re.compile(r"# OSU (.+) v(\S+)")
_COLUMN = re.compile(
    r"Size|(?:Avg |Min |Max )?Latency ?\(us\)|Bandwidth \(MB/s\)|MB/s|Messages/s|Iterations"
)
_ROW = re.compile(r"\s*\d")
_MEGABYTE_BITS = 8_000_000


@dataclass(frozen=True, slots=True)
class OsuRow:
    """Messages of one size; None where the benchmark does not measure it.

    Attributes:
        size: in bytes.
        latency_ns: on average, where there are several.
        bandwidth_bps: of all pairs together.
        messages_per_s: of all pairs together.
    """

    size: int
    latency_ns: int | None = None
    least_ns: int | None = None
    most_ns: int | None = None
    bandwidth_bps: float | None = None
    messages_per_s: float | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class OsuReport:
    """One benchmark: `test` such as `MPI Allreduce Latency Test`."""

    test: str
    version: str
    rows: tuple[OsuRow, ...]


def parse(text: str) -> OsuReport:
    """Read what a benchmark printed.

    Raises:
        ToolOutputError: it is something else, or contradicts itself: the average outside of
            least and most, bandwidth against size and messages.
    """
    title: re.Match[str] | None = None
    columns: list[str] = []
    rows: list[OsuRow] = []
    for line in text.splitlines():
        try:
            if match := _TITLE.match(line):
                if title is not None:
                    raise ValueError("one benchmark")
                title = match
            elif title and line.startswith("# Size"):
                columns = _columns(line)
            elif columns and _ROW.match(line):
                rows.append(_row(dict(zip(columns, line.split(), strict=True))))
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error), line) from error
    if title is None or not rows:
        raise ToolOutputError(TOOL, "`# OSU ... vN`, names of columns and rows", text[:80])
    return OsuReport(title[1], title[2], tuple(rows))


def _columns(line: str) -> list[str]:
    columns = [" ".join(name.replace("(", " (").split()) for name in _COLUMN.findall(line)]
    if _COLUMN.sub("", line).strip() != "#" or len(set(columns)) != len(columns):
        raise ValueError("columns that are known, each once")
    return columns


def _row(told: dict[str, str]) -> OsuRow:
    latencies = {
        name: round(number(told[f"{name}Latency (us)"]).value * 1e3)
        for name in ("", "Avg ", "Min ", "Max ")
        if f"{name}Latency (us)" in told
    }
    average = latencies.get("", latencies.get("Avg "))
    least, most = latencies.get("Min "), latencies.get("Max ")
    if average is not None and not (least or 0) <= average <= (average if most is None else most):
        raise ValueError("an average between least and most")
    size = whole(told["Size"])
    rate = told.get("Bandwidth (MB/s)", told.get("MB/s"))
    bandwidth = number(rate) if rate is not None else None
    messages = number(told["Messages/s"]) if "Messages/s" in told else None
    if bandwidth and messages and not messages.times(size / 1e6).agrees(bandwidth):
        raise ValueError("a bandwidth of size x messages")
    return OsuRow(
        size=size,
        latency_ns=average,
        least_ns=least,
        most_ns=most,
        bandwidth_bps=None if bandwidth is None else bandwidth.value * _MEGABYTE_BITS,
        messages_per_s=None if messages is None else messages.value,
        iterations=whole(told["Iterations"]) if "Iterations" in told else None,
    )
