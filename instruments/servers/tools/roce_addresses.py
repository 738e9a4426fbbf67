"""The RoCE addresses (GIDs) of an RDMA port, each with its index in the port's table.

Programs choose an address by its index, and the kernel fills the table in the order in which IP
addresses appear: after a change the same index may be another address, or none. Read as
`grep -rHs .` prints `gids`, `gid_attrs/types` and `gid_attrs/ndevs`; source:
Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "/sys/class/infiniband"

_LINE = re.compile(r".*/ports/\d+/(gids|gid_attrs/types|gid_attrs/ndevs)/(\d{1,5}):(.*)", re.ASCII)
_EMPTY = re.compile(r"[0:]*")


@dataclass(frozen=True, slots=True)
class RoceAddress:
    """An address: the GID as the kernel writes it, its kind ("RoCE v2"), and its network device."""

    gid: str
    kind: str = ""
    netdev: str = ""

    def __str__(self) -> str:
        kind = f" ({self.kind}{' of ' if self.netdev else ''}{self.netdev})" if self.kind else ""
        return f"{self.gid}{kind}"


class Move(NamedTuple):
    """An address whose index has changed."""

    address: RoceAddress
    before: int
    after: int


def files(device: str, port: int = 1) -> list[str]:
    """Return the folders that `parse` needs."""
    root = f"{TOOL}/{device}/ports/{port}"
    return [f"{root}/{name}" for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs")]


def parse(text: str) -> dict[int, RoceAddress]:
    """Return the addresses by index; places of the table without one are left out.

    Raises:
        ToolOutputError: it is something else.
    """
    fields: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ToolOutputError(TOOL, "`FILE:VALUE` of gids and gid_attrs", line)
        fields.setdefault(int(match[2]), {})[match[1]] = match[3].strip()
    return {
        index: RoceAddress(gid, found.get("gid_attrs/types", ""), found.get("gid_attrs/ndevs", ""))
        for index, found in sorted(fields.items())
        if not _EMPTY.fullmatch(gid := found.get("gids", ""))
    }


def moves(before: Mapping[int, RoceAddress], after: Mapping[int, RoceAddress]) -> list[Move]:
    """Return the addresses of both readings whose index is another one, by the index before."""
    now = {address: index for index, address in after.items()}
    return [
        Move(address, index, now[address])
        for index, address in sorted(before.items())
        if now.get(address, index) != index
    ]
