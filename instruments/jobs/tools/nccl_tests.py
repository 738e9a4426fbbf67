"""nccl-tests (`all_reduce_perf` and its like): time and bandwidth of a collective, by size.

The table is read by the names in its header, so old and new columns, time stamps (-S) and
per-iteration columns (-I) all find their place; a row must have as many fields as the header
has names. The prefixes of launchers and container logs are removed, and log lines of NCCL are
skipped.

A table is accepted only if it is consistent to the printed digits: size and count
with the type, algorithm bandwidth with size and time, bus bandwidth with the factor of the
collective for its number of ranks, the average with all rows. Source: nccl-tests, src/util.cu
and each collective's GetBw.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from lightrig.instruments.jobs.tools import nccl_tests_json
from lightrig.instruments.jobs.tools.nccl_results import (
    CollectiveRow,
    CollectiveRun,
    IterationTimes,
    Measured,
    check,
    collective_of,
)
from lightrig.instruments.servers.tools.output import (
    Printed,
    ToolOutputError,
    number,
    whole,
    without_colours,
    without_prefixes,
)

TOOL = "nccl-tests"

_RANK = re.compile(r"# +Rank +(\d+)\b.* on +(\S+) +device", re.ASCII)
_NAME = re.compile(r"# Collective test starting: (\S+)")
_VERSION = re.compile(r"(?:# [nr]ccl-tests version|rccl-tests: Version) (?!Unknown)(\S+)")
_WRONG = re.compile(r"# Out of bounds values +: (\d+) (OK|FAILED)", re.ASCII)
_AVERAGE = re.compile(r"# Avg bus bandwidth +: (\S+)")
_ROW = re.compile(r"\s*\d+\s")
_FIRST = ("size", "count", "type", "redop", "root")
_EACH = ("time", "cputime", "algbw", "busbw", "#wrong", "error")
_ITERATION = ("i_min", "i_max", "i_p99", "i_cv%")
_STAMP_TOKENS = 2


def parse(text: str, *, collective: str | None = None, ranks: int | None = None) -> CollectiveRun:
    """Parse the output of a test, or the file that it wrote with -J.

    Args:
        text: the whole output; more than one table is an error.
        collective: its name, such as `all_reduce`; newer versions print it.
        ranks: number of ranks, if the list of devices is missing.

    Raises:
        ToolOutputError: it is no such table or contradicts itself. Environment variables,
            which the file has all of, are in no result and in no error.
    """
    # A launcher's prefix may begin with a bracket, so this asks for an object.
    is_file = text.lstrip().startswith("{")
    run = nccl_tests_json.parse(text) if is_file else _parsed_table(text)
    if collective is not None and run.collective not in (None, collective):
        raise ToolOutputError(TOOL, f"{collective}", run.collective)
    if ranks is not None and run.ranks not in (None, ranks):
        raise ToolOutputError(TOOL, f"{ranks} ranks", f"{run.ranks} in the list of devices")
    run = replace(run, collective=collective or run.collective, ranks=ranks or run.ranks)
    return check(run)


def _parsed_table(text: str) -> CollectiveRun:
    table = Table()
    for line in text.splitlines():
        table.take(line)
    return table.run()


class Table:
    """One table, with the lines before and after it, given line by line.

    Attributes:
        rows: so far.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []
        self.rows: list[CollectiveRow] = []
        self._hosts: list[str] = []
        self._ranks = 0
        self._collective: str | None = None
        self._version: str | None = None
        self._wrong: int | None = None
        self._average: Printed | None = None

    def run(self) -> CollectiveRun:
        """Return the table; raises `ToolOutputError` where there is none."""
        if not self.rows:
            raise ToolOutputError(TOOL, "a table with `size count type ... time algbw busbw`")
        return CollectiveRun(
            self._collective,
            self._ranks or None,
            tuple(dict.fromkeys(self._hosts)),
            self._version,
            tuple(self.rows),
            self._average,
            self._wrong,
        )

    def take(self, prefixed: str) -> None:
        """Take the next line; raises `ToolOutputError` where it is none of such a table."""
        line = without_prefixes(without_colours(prefixed)).rstrip()
        try:
            if line.lstrip().startswith(("#", "rccl-tests:")):
                self._take_comment(line.lstrip())
            elif _ROW.match(f"{line} "):
                self.rows.append(_row(line, self._columns))
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error), line) from error

    def _take_comment(self, line: str) -> None:
        tokens = line[1:].split()
        if tokens[:2] == ["size", "count"]:
            if self._columns:
                raise ValueError("one table")
            self._columns = tokens
        elif match := _RANK.match(line):
            self._ranks = max(self._ranks, whole(match[1]) + 1)
            self._hosts.append(match[2])
        elif match := _NAME.match(line):
            self._collective = collective_of(match[1])
        elif match := _VERSION.match(line):
            self._version = match[1]
        elif match := _WRONG.match(line):
            self._wrong = whole(match[1])
            if (self._wrong == 0) != (match[2] == "OK"):
                raise ValueError("OK for no value out of bounds, else FAILED")
        elif match := _AVERAGE.match(line):
            self._average = number(match[1])


def _row(line: str, columns: list[str]) -> CollectiveRow:
    if not columns:
        raise ValueError("the table's header before its rows")
    tokens = line.split()
    stamped = columns[-1] == "timestamp"
    named = columns[:-1] if stamped else columns
    if stamped:
        tokens, stamp = tokens[:-_STAMP_TOKENS], tokens[-_STAMP_TOKENS:]
        if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", " ".join(stamp), re.ASCII):
            raise ValueError("a time stamp at the end")
    split = len([name for name in named if name in _FIRST])
    half = (len(named) - split) // 2
    groups = [_group_names(named[split : split + half]), _group_names(named[split + half :])]
    if groups[0] != groups[1] or named[:split] != [n for n in _FIRST if n in named[:split]]:
        raise ValueError(f"columns that are known, not {' '.join(columns)}")
    # Old versions leave redop blank for a collective without one; newer ones may leave out
    # the times out of place altogether.
    missing = len(named) - len(tokens)
    only_in_place = missing == half
    if missing not in (0, half) and not (missing == 1 and "redop" in named[:split]):
        raise ValueError(f"{len(named)} tokens, as the header has names, not {len(tokens)}")
    first = named[:split]
    if missing == 1 and not only_in_place:
        first = [name for name in first if name != "redop"]
    heads = dict(zip(first, tokens, strict=False))
    rest = tokens[len(first) :]
    return CollectiveRow(
        size=whole(heads["size"]),
        count=whole(heads["count"]),
        type=heads["type"],
        redop=None if heads.get("redop") in (None, "none") else heads["redop"],
        root=None if heads.get("root") in (None, "-1") else whole(heads["root"]),
        out_of_place=None if only_in_place else _measured(groups[0], rest[:half]),
        in_place=_measured(groups[0], rest if only_in_place else rest[half:]),
    )


def _group_names(names: list[str]) -> list[str]:
    known = [name for name in names if name in _EACH or name in _ITERATION]
    if known != names or len(set(names)) != len(names) or not {"algbw", "busbw"} <= set(names):
        raise ValueError(f"columns that are known, not {' '.join(names)}")
    return ["time" if name == "cputime" else name for name in names]


def _measured(names: list[str], tokens: list[str]) -> Measured:
    values = dict(zip(names, tokens, strict=True))
    return Measured(
        time_us=number(values["time"]),
        algorithm_gbytes=number(values["algbw"]),
        bus_gbytes=number(values["busbw"]),
        wrong=_wrong(values),
        iterations=_iterations(values),
    )


def _wrong(values: Mapping[str, str]) -> int | None:
    """Return the number of wrong values; None for old versions, which print the largest error."""
    if "#wrong" not in values or values["#wrong"] == "N/A":
        return None
    value = number(values["#wrong"]).value
    if value < 0 or value != int(value):
        raise ValueError("a number of wrong values")
    return int(value)


def _iterations(values: Mapping[str, str]) -> IterationTimes | None:
    if "i_min" not in values:
        return None
    least, most, p99, cv = (number(values[name]) for name in _ITERATION)
    return IterationTimes(least, most, p99, cv)
