"""`ethtool --show-fec IF`, with `-I` its counters: forward error correction of a port.

Source: the commit messages of ethtool's FEC statistics and, for newer ones, of their histogram
(Linux 6.18); older versions print a lane's count on a line of its own.
"""

import re
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.servers.tools.counters import FEC_COUNTER, Unknown, delta
from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    field,
    is_json,
    load,
    optional,
    whole,
)

TOOL = "ethtool --show-fec"

_HEADER = re.compile(r"FEC parameters for (\S+):")
_CONFIGURED = re.compile(r"(?:Supported/)?Configured FEC encodings:((?: \S+)*)")
_ACTIVE = re.compile(r"Active FEC encodings?:((?: \S+)*)")
_STATISTIC = re.compile(r"(\w+): (\d+)(?: \[ per_lane: +([\d, ]+) \])?", re.ASCII)
_LANE = re.compile(r"Lane (\d+): (\d+)", re.ASCII)
_BIN = re.compile(r"fec_symbols?_err_(\d{1,9})(?:_to_(\d{1,9}))?", re.ASCII)
_COUNTS = ("corrected_blocks", "uncorrectable_blocks", "corrected_bits")


@dataclass(frozen=True, slots=True)
class FecCount:
    """A counter of a port, and of each lane where the driver knows it."""

    total: int
    lanes: tuple[int, ...] = ()

    def since(self, before: "FecCount | None") -> int | Unknown:
        """Return what was counted since `before` (None: zero), unless a lane may be full."""
        grown = delta(before.total if before else 0, self.total, FEC_COUNTER)
        if any(map(FEC_COUNTER.may_be_full, self.lanes)):
            return Unknown("saturated", grown.at_least if isinstance(grown, Unknown) else grown)
        return grown


@dataclass(frozen=True, slots=True)
class FecBin:
    """Number of code words with `low` to `high` symbol errors."""

    low: int
    high: int
    count: FecCount


@dataclass(frozen=True, slots=True)
class FecReading:
    """A port's forward error correction; counters are None where the driver has none.

    Attributes:
        configured: encodings that are configured (on some drivers: supported), such as `RS`.
        active: the encoding in use; `None` and `Off` are ethtool's names.
        corrected_blocks: code words with errors, all corrected (IEEE 802.3, 30.5.1.1.17).
        uncorrectable_blocks: code words that could not be corrected (30.5.1.1.18).
        corrected_bits: bits that were corrected.
        histogram: code words by number of symbol errors, where the device counts them.
    """

    netdev: str
    configured: tuple[str, ...]
    active: tuple[str, ...]
    corrected_blocks: FecCount | None = None
    uncorrectable_blocks: FecCount | None = None
    corrected_bits: FecCount | None = None
    histogram: tuple[FecBin, ...] = ()


def parse(text: str) -> FecReading:
    """Parse the output of `ethtool [--json] [-I] --show-fec IF`.

    Raises:
        ToolOutputError: it is something else.
    """
    return _of_json(text) if is_json(text) else _of_text(text)


def _of_text(text: str) -> FecReading:
    header, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    netdev = _HEADER.fullmatch(header.strip())
    if netdev is None or len(lines) < 2:
        raise ToolOutputError(TOOL, "`FEC parameters for IF:`, then two lines of encodings", header)
    configured = _CONFIGURED.fullmatch(lines[0].strip())
    active = _ACTIVE.fullmatch(lines[1].strip())
    if configured is None or active is None:
        raise ToolOutputError(TOOL, "configured and active encodings", " / ".join(lines[:2]))
    if lines[2:] and lines[2].strip() != "Statistics:":
        raise ToolOutputError(TOOL, "`Statistics:`", lines[2])
    counts: dict[str, FecCount] = {}
    for line in lines[3:]:
        try:
            _count_line(line.strip(), counts)
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error), line) from error
    return FecReading(
        netdev[1],
        tuple(configured[1].split()),
        tuple(active[1].split()),
        histogram=tuple(bin_ for name in counts if (bin_ := _bin_of(name, counts[name]))),
        **{name: counts[name] for name in _COUNTS if name in counts},
    )


def _count_line(line: str, counts: dict[str, FecCount]) -> None:
    """Take a counter, with or without its lanes, or one more lane of the last counter."""
    if (lane := _LANE.fullmatch(line)) and counts:
        name = next(reversed(counts))
        total, lanes = counts[name].total, counts[name].lanes
        if whole(lane[1]) != len(lanes):
            raise ValueError(f"lane {len(lanes)} of {name}")
        counts[name] = FecCount(total, (*lanes, whole(lane[2])))
    elif (match := _STATISTIC.fullmatch(line)) and match[1] not in counts:
        by_lane = match[3].split(",") if match[3] else []
        counts[match[1]] = FecCount(whole(match[2]), tuple(whole(each.strip()) for each in by_lane))
    else:
        raise ValueError("`name: count`, each name once")


def _bin_of(name: str, count: FecCount) -> FecBin | None:
    match = _BIN.fullmatch(name)
    return FecBin(int(match[1]), int(match[2] or match[1]), count) if match else None


def _of_json(text: str) -> FecReading:
    document = load(TOOL, text)
    if not isinstance(document, list) or len(document) != 1:
        raise ToolOutputError(TOOL, "a list with one port", type(document).__name__)
    (port,) = document
    statistics = optional(TOOL, port, "statistics", dict) or {}
    return FecReading(
        field(TOOL, port, "ifname", str),
        _names(port, "config"),
        _names(port, "active"),
        histogram=tuple(map(_bin, optional(TOOL, statistics, "hist", list) or ())),
        **{name: _count(statistics[name]) for name in _COUNTS if name in statistics},
    )


def _names(port: Any, key: str) -> tuple[str, ...]:
    names = field(TOOL, port, key, list)
    if not all(isinstance(word, str) for word in names):
        raise ToolOutputError(TOOL, f"names in {key!r}", names)
    return tuple(names)


def _count(entry: Any) -> FecCount:
    lanes = optional(TOOL, entry, "lanes", list) or []
    counts = [field(TOOL, entry, "total", int), *lanes]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ToolOutputError(TOOL, "counts", entry)
    return FecCount(counts[0], tuple(counts[1:]))


def _bin(entry: Any) -> FecBin:
    low, high = field(TOOL, entry, "bin_low", int), field(TOOL, entry, "bin_high", int)
    if not 0 <= low <= high:
        raise ToolOutputError(TOOL, "bins from low to high", entry)
    return FecBin(low, high, _count(entry))
