"""`ip -s link`: network devices with their counters, as text or JSON (`ip -j -s -s link`).

Text has a line of flags a device, then `RX:` and `TX:` with the names of columns and below them
the counts; columns differ between versions and are taken by name. JSON calls some of them
otherwise. Source: iproute2, ip/ipaddress.c.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    field,
    is_json,
    load,
    optional,
    whole,
)

TOOL = "ip link"

_DEVICE = re.compile(r"(\d+): ([^:@\s]+)(?:@\S+)?: <([^>]*)> (.+)", re.ASCII)
_TITLE = re.compile(r"(RX|TX)(?: errors)?:")
_NAMES = {
    "mcast": "multicast",
    "carrier": "carrier_errors",
    "collsns": "collisions",
    "missed": "missed_errors",
    "length": "length_errors",
    "crc": "crc_errors",
    "frame": "frame_errors",
    "fifo": "fifo_errors",
    "overrun": "over_errors",
    "aborted": "aborted_errors",
    "window": "window_errors",
    "heartbt": "heartbeat_errors",
    "transns": "carrier_changes",
}
"""Name of a counter in text, and in JSON."""


@dataclass(frozen=True, slots=True)
class IpLink:
    """One network device.

    Attributes:
        operstate: such as `UP`, `DOWN`, `UNKNOWN`.
        rx: counters of receiving by JSON's names: 64 bits, they wrap. Empty without `-s`.
        tx: counters of sending; `carrier_changes` among them where it was asked for.
    """

    index: int
    netdev: str
    flags: frozenset[str]
    mtu: int
    operstate: str
    mac: str | None
    rx: Mapping[str, int]
    tx: Mapping[str, int]

    @property
    def carrier(self) -> bool:
        """Whether the kernel has its carrier (flag LOWER_UP)."""
        return "LOWER_UP" in self.flags

    @property
    def carrier_changes(self) -> int | None:
        """Number of carrier changes since the device was created."""
        return self.tx.get("carrier_changes")


def parse(text: str) -> tuple[IpLink, ...]:
    """Parse the output of `ip [-j] [-s [-s]] link`.

    Raises:
        ToolOutputError: it is something else, or a row has more or fewer counts than names.
    """
    return _of_json(text) if is_json(text) else _of_text(text)


def _of_json(text: str) -> tuple[IpLink, ...]:
    document = load(TOOL, text)
    if not isinstance(document, list):
        raise ToolOutputError(TOOL, "a list of devices", type(document).__name__)
    # Some versions put an empty object where a device was filtered out.
    return tuple(_device(entry) for entry in document if entry != {})


def _device(entry: Any) -> IpLink:
    flags = field(TOOL, entry, "flags", list)
    if not all(isinstance(flag, str) for flag in flags):
        raise ToolOutputError(TOOL, "tokens in 'flags'", flags)
    statistics = (
        optional(TOOL, entry, "stats64", dict) or optional(TOOL, entry, "stats", dict) or {}
    )
    return IpLink(
        field(TOOL, entry, "ifindex", int),
        field(TOOL, entry, "ifname", str),
        frozenset(flags),
        field(TOOL, entry, "mtu", int),
        field(TOOL, entry, "operstate", str),
        optional(TOOL, entry, "address", str),
        _counts(optional(TOOL, statistics, "rx", dict) or {}),
        _counts(optional(TOOL, statistics, "tx", dict) or {}),
    )


def _counts(entry: Mapping[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {name: field(TOOL, entry, name, int) for name in entry}
    if any(count < 0 for count in counts.values()):
        raise ToolOutputError(TOOL, "counts", entry)
    return counts


def _of_text(text: str) -> tuple[IpLink, ...]:
    devices: list[list[str]] = []
    for line in text.splitlines():
        if line[:1].isdigit():
            devices.append([line])
        elif line.strip() and devices:
            devices[-1].append(line.strip())
        elif line.strip():
            raise ToolOutputError(TOOL, "`N: IF: <FLAGS> ...`", line)
    return tuple(_of_lines(*lines) for lines in devices)


def _of_lines(head: str, *lines: str) -> IpLink:
    match = _DEVICE.fullmatch(head.strip())
    if match is None:
        raise ToolOutputError(TOOL, "`N: IF: <FLAGS> ...`", head)
    tokens = match[4].split()
    settings = dict(zip(tokens[::2], tokens[1::2], strict=False))
    directions: dict[str, dict[str, int]] = {"RX": {}, "TX": {}}
    names: list[str] = []
    direction = ""
    address = None
    try:
        for line in lines:
            first, *rest = line.split()
            if first == "vf" and rest and rest[0].isdigit():
                break  # what follows is of virtual functions, in the same words
            if title := _TITLE.match(line):
                direction = title[1]
                names = line[title.end() :].split()
            elif names:
                _take(directions[direction], names, [first, *rest])
                names = []
            elif first.startswith("link/"):
                address = rest[0] if rest else None
        if names or not {"mtu", "state"} <= settings.keys():
            raise ValueError("an mtu, a state, and counts below their names")
        return IpLink(
            whole(match[1]),
            match[2],
            frozenset(filter(None, match[3].split(","))),
            whole(settings["mtu"]),
            settings["state"],
            address,
            directions["RX"],
            directions["TX"],
        )
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), head) from error


def _take(counts: dict[str, int], names: list[str], values: list[str]) -> None:
    if len(names) != len(values):
        raise ValueError(f"{len(names)} counts below {' '.join(names)}, not {len(values)}")
    for name, value in zip(names, values, strict=True):
        counts[_NAMES.get(name, name)] = whole(value)
