"""`/sys/class/infiniband/DEV/ports/N`: an RDMA port's state and counters.

Read as `grep -rHs . DIRECTORY` prints it: `path:value` a line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lightrig.instruments.servers.tools.counters import infiniband_kind
from lightrig.instruments.servers.tools.output import ToolOutputError, whole

TOOL = "/sys/class/infiniband"

_PORT = re.compile(r"(?:.*/)?([^/]+)/ports/(\d{1,6})/(.+)", re.ASCII)
_LINE = re.compile(r"((?:.*/)?[^/]+/ports/\d+/[^:]+):(.*)", re.ASCII)
"""A line of a port; directories of PCI devices have colons."""
_CODED = re.compile(r"(\d+): (\S.*)", re.ASCII)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) Gb/sec(?: \((.+)\))?", re.ASCII)
_MILLISECOND = 1_000_000
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_PHYSICAL_STATES = (
    *("<unknown>", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp"),
    *("LinkErrorRecovery", "Phy Test"),
)


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """One port of an RDMA device.

    Attributes:
        state: such as `ACTIVE`.
        physical_state: such as `LinkUp`.
        rate_bps: of the link as it is, or as it was last.
        link_layer: `InfiniBand` or `Ethernet`.
        counters: those of `counters/`; how each behaves is `counters.infiniband_kind`.
        hw_counters: those of `hw_counters/`.
        refresh_ns: `hw_counters` are read from the device only this often (`lifespan`).
        saturated: counters that stand at their top: more may have been counted since.
    """

    device: str
    port: int
    state: str | None
    physical_state: str | None
    rate_bps: int | None
    link_layer: str | None
    counters: Mapping[str, int]
    hw_counters: Mapping[str, int]
    refresh_ns: int
    saturated: frozenset[str]


def parse(text: str) -> tuple[InfinibandPort, ...]:
    """Read `path:value` lines of any number of ports; what is not below a port is ignored.

    Raises:
        ToolOutputError: a line is none, a counter is no count, or no port is there.
    """
    ports: dict[tuple[str, int], dict[str, str]] = {}
    for line in text.splitlines():
        path, colon, value = line.partition(":")
        if not colon:
            raise ToolOutputError(TOOL, "`path:value`", line)
        if below := _LINE.fullmatch(line):
            path, value = below.groups()
        match = _PORT.fullmatch(path)
        if match is None or match[3].startswith(("gids/", "gid_attrs/", "pkeys/")):
            continue
        found = ports.setdefault((match[1], int(match[2])), {})
        if match[3] in found:
            raise ToolOutputError(TOOL, "each path once", line)
        found[match[3]] = value.strip()
    if not ports:
        raise ToolOutputError(TOOL, "a port's files", text[:80])
    return tuple(_port(*key, found) for key, found in sorted(ports.items()))


def _port(device: str, number: int, files: Mapping[str, str]) -> InfinibandPort:
    try:
        counters = _below("counters/", files)
        hardware = _below("hw_counters/", files)
        lifespan = hardware.pop("lifespan", 0)
        return InfinibandPort(
            device,
            number,
            _coded(files, "state", _STATES),
            _coded(files, "phys_state", _PHYSICAL_STATES),
            _rate(files.get("rate")),
            files.get("link_layer"),
            counters,
            hardware,
            lifespan * _MILLISECOND,
            frozenset(name for name, value in counters.items() if _at_top(name, value)),
        )
    except ValueError as error:
        raise ToolOutputError(TOOL, f"{error} ({device} port {number})") from error


def _below(folder: str, files: Mapping[str, str]) -> dict[str, int]:
    """Counters of a folder; `N/A (no PMA)` is one that the device does not answer for."""
    counts = {}
    for path, value in files.items():
        name = path.removeprefix(folder)
        if name == path or "/" in name or value.startswith("N/A"):
            continue
        try:
            counts[name] = whole(value)
        except ValueError as error:
            raise ValueError(f"a count in {path}, not {value!r}") from error
    return counts


def _at_top(name: str, value: int) -> bool:
    kind = infiniband_kind(name)
    if kind is None:
        return False
    if value > kind.top:
        raise ValueError(f"at most {kind.top} in {name}, which has {kind.bits} bits, not {value}")
    return value == kind.top if kind.at_top == "saturates" else value == (1 << 32) - 1


def _coded(files: Mapping[str, str], name: str, parts: tuple[str, ...]) -> str | None:
    """A value such as `4: ACTIVE`, whose number and word must belong together."""
    if name not in files:
        return None
    match = _CODED.fullmatch(files[name])
    code = whole(match[1]) if match else -1
    if match is None or code >= len(parts) or parts[code] != match[2]:
        raise ValueError(f"a code and its word in {name}, such as `4: ACTIVE`, not {files[name]!r}")
    return match[2]


def _rate(text: str | None) -> int | None:
    if text is None:
        return None
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"a rate in Gb/sec, not {text!r}")
    return round(float(match[1]) * 1e9)
