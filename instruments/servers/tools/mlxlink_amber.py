"""The firmware's timers of a link-up, from the file of `mlxlink --amber_collect FILE.csv`.

Source: mstflint's mlxlink (`MlxlinkAmBerCollector`): a header and a row a collection, with commas
between, none within a field. Durations are whole milliseconds, some with their unit behind them;
a register that the NIC does not have is N/A.
"""

import re
from typing import NamedTuple

from lightrig.instruments.core.capabilities import LinkUpTimes
from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "mlxlink --amber_collect"

_DURATION = re.compile(r"(\d{1,10}) ?(?:msec)?", re.ASCII)
_MILLISECOND = 1_000_000
_ABSENT = ("N/A", "N/Amsec", "")


class _Column(NamedTuple):
    name: str
    attribute: str


_COLUMNS = (
    _Column("time_to_link_up_sd_to_phy_up", "signal_to_phy"),
    _Column("time_to_link_up_phy_up_to_active", "phy_to_active"),
    _Column("time_to_link_up_msec", "whole"),
)


def parse(text: str) -> LinkUpTimes:
    """Return the timers of the last row; raises `ToolOutputError` for anything else."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        raise ToolOutputError(TOOL, "a header and a row of values", text)
    header, row = ([field.strip() for field in line.split(",")] for line in (lines[0], lines[-1]))
    if len(header) != len(row):
        expected = f"{len(header)} values, as many as the header has"
        raise ToolOutputError(TOOL, expected, f"{len(row)} values")
    if not any(column.name in header for column in _COLUMNS):
        raise ToolOutputError(TOOL, "the page of the link-up", ", ".join(header[:5]))
    found: dict[str, int | None] = {}
    for name, attribute in _COLUMNS:
        if header.count(name) > 1:
            raise ToolOutputError(TOOL, f"one column {name}", f"{header.count(name)} of them")
        if name in header:
            found[attribute] = _duration(name, row[header.index(name)])
    return LinkUpTimes(**found)


def _duration(name: str, value: str) -> int | None:
    if value in _ABSENT:
        return None
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ToolOutputError(TOOL, f"milliseconds as {name}", value)
    return int(match[1]) * _MILLISECOND
