"""The PCI Express links between a device and its processor, as sysfs has them.

Read as `readlink -f` prints the device's folder and `grep -Hs .` its files and those of each bridge
above it. Sources: Documentation/ABI/testing/sysfs-bus-pci; drivers/pci/pci.c of Linux, whose
`pcie_bandwidth_available` and `PCIE_SPEED2MBS_ENC` this computes with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "/sys/bus/pci/devices"

_FILES = ("class", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_DISPLAYS = (0x03, 0x12)
"""Base classes of GPUs: displays and processing accelerators (PCI Code and ID Assignment)."""

_8B_10B_UNTIL, _FLITS_FROM = 5.0, 64.0
_WIDTHS = range(1, 33)


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A device or bridge; None for what it has not, or the kernel does not know.

    speed, max_speed: of its link now, and that it can, in GT/s. width, max_width: lanes likewise.
    """

    address: str
    is_gpu: bool = False
    speed: float | None = None
    width: int | None = None
    max_speed: float | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True)
class PciLink:
    """The link of a device, or of a bridge on its path, and the port above it."""

    above: PciFunction
    below: PciFunction

    def __str__(self) -> str:
        """Return speed and width as far as they are known."""
        if self.speed is None or self.width is None:
            return "an unknown speed"
        return link_text(self.speed, self.width)

    @property
    def ends(self) -> str:
        """The addresses of its ends."""
        return f"{self.above.address} - {self.below.address}"

    @property
    def speed(self) -> float | None:
        """Its speed in GT/s; both ends have the same."""
        return self.below.speed

    @property
    def width(self) -> int | None:
        """Its lanes in use."""
        return self.below.width

    @property
    def able(self) -> tuple[float, int] | None:
        """The speed and the lanes that both its ends can."""
        a, b = self.above, self.below
        if None in (a.max_speed, b.max_speed, a.max_width, b.max_width):
            return None
        speeds, widths = (a.max_speed or 0, b.max_speed or 0), (a.max_width or 0, b.max_width or 0)
        return min(speeds), min(widths)

    @property
    def problem(self) -> str | None:
        """What it is below what both its ends can, as a clause; None where it is not.

        The speed of a GPU's link is not judged: it falls while the GPU is idle.
        """
        able = self.able
        if able is None or self.speed is None or self.width is None:
            return None
        slow = self.speed < able[0] and not self.below.is_gpu
        if not slow and self.width >= able[1]:
            return None
        now, could = link_text(self.speed, self.width), link_text(*able)
        return f"runs at {now}, and both its ends can {could}"

    @property
    def bandwidth_bps(self) -> float | None:
        """What it carries one way, without the encoding and before headers, in bit/s."""
        if self.speed is None or self.width is None:
            return None
        return _lane_bps(self.speed) * self.width


def link_text(speed: float, width: int) -> str:
    """Return a speed in GT/s and a number of lanes as Linux writes them."""
    return f"{speed:.1f} GT/s x{width}"


def _lane_bps(speed: float) -> float:
    """Return what one lane carries, cut to whole Mbit/s as the kernel does."""
    share = 8 / 10 if speed <= _8B_10B_UNTIL else 1 if speed >= _FLITS_FROM else 128 / 130
    return int(speed * 1000 * share) * 1e6


@dataclass(frozen=True, slots=True)
class PciPath:
    """The links from the processor, first, to a device; none for a device that is not on PCI."""

    links: tuple[PciLink, ...]

    @property
    def narrowest(self) -> PciLink | None:
        """The link that carries least; of equal ones the one nearest to the processor."""
        known = [link for link in self.links if link.bandwidth_bps is not None]
        return min(known, key=lambda link: link.bandwidth_bps or 0, default=None)


def folders(device: str) -> list[tuple[str, str]]:
    """Return the folders of both ends of each link from the processor, first, to a device.

    device: what `readlink -f` printed. Below a root the folders are by turns those of a port that
    looks down, of the processor or a switch, and of what is plugged into it: a device, or a switch,
    whose own two sides are joined inside. A domain of its own, as behind Intel's VMD, has a root.
    """
    parts = device.strip().split("/")
    found, port = [], ""
    for end, part in enumerate(parts, 1):
        folder = "/".join(parts[:end])
        if _ROOT.fullmatch(part):
            port = ""
        elif _ADDRESS.fullmatch(part):
            if port:
                found.append((port, folder))
            port = "" if port else folder
    return found


def files(device: str) -> list[str]:
    """Return the files that `parse` needs."""
    return [f"{folder}/{name}" for ends in folders(device) for folder in ends for name in _FILES]


def parse(device: str, text: str) -> PciPath:
    """Parse what `grep -Hs . FILE ...` printed of the `files` of a device.

    Raises:
        ToolOutputError: it is something else.
    """
    values: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        # Folders of PCI devices have colons in their names, and the values have none.
        path, colon, value = line.rpartition(":")
        folder, _, name = path.rpartition("/")
        if not colon or name not in _FILES:
            raise ToolOutputError(TOOL, "`FILE:VALUE` of the files that were read", line)
        values.setdefault(folder, {})[name] = value
    return PciPath(
        tuple(
            PciLink(*(_function(folder, values.get(folder, {})) for folder in ends))
            for ends in folders(device)
        )
    )


def _function(folder: str, values: Mapping[str, str]) -> PciFunction:
    try:
        kind = int(values.get("class", "0"), 16) >> 16
    except ValueError as error:
        raise ToolOutputError(TOOL, "a class in hexadecimal digits", values["class"]) from error
    return PciFunction(
        folder.rpartition("/")[2],
        kind in _DISPLAYS,
        _speed(values.get("current_link_speed")),
        _width(values.get("current_link_width")),
        _speed(values.get("max_link_speed")),
        _width(values.get("max_link_width")),
    )


def _speed(text: str | None) -> float | None:
    """Return a speed in GT/s; "Unknown" and what no link has are None."""
    found = _SPEED.fullmatch(text or "")
    return float(found[1]) if found else None


def _width(text: str | None) -> int | None:
    """Return a number of lanes; 0 (no link) and 255 (the device does not answer) are None."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return int(text) if int(text) in _WIDTHS else None
