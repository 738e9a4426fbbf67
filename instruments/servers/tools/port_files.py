"""Files of the kernel about a port: settings of IP below /proc/sys, the NIC's numbers on PCI.

Source: Documentation/networking/ip-sysctl.rst: of each of these settings the greater value of
`conf/all` and `conf/IF` holds.
"""

import re
from dataclasses import dataclass

from lightrig.instruments.servers.tools.output import ToolOutputError, whole

TOOL = "/proc/sys/net/ipv4/conf"

_IP = ("arp_ignore", "arp_announce", "rp_filter")
_PCI = ("vendor", "device", "subsystem_device")
_NUMBER = re.compile(r"0x[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class PortFiles:
    """Settings of IP that hold for a port, and its NIC's kind; None for what is not there.

    Attributes:
        arp_ignore: which requests are answered; from 1 on, only those for an address of the port.
        arp_announce: which address requests carry.
        rp_filter: reverse-path filter: 0 none, 1 strict, 2 loose.
        pci_id: numbers of vendor, device and board, such as `0x15b3:0x1021:0x0023`.
    """

    arp_ignore: int | None = None
    arp_announce: int | None = None
    rp_filter: int | None = None
    pci_id: str | None = None


def ip_files(netdev: str) -> list[str]:
    """Return the files with settings of IP that hold for a port."""
    return [f"/proc/sys/net/ipv4/conf/{each}/{name}" for name in _IP for each in ("all", netdev)]


def pci_files(netdev: str) -> list[str]:
    """Return the files with the numbers of a port's NIC; a device of software has none."""
    return [f"/sys/class/net/{netdev}/device/{name}" for name in _PCI]


def parse(text: str) -> PortFiles:
    """Parse what `grep -Hs . FILE ...` printed of the files of one port.

    Raises:
        ToolOutputError: it is something else.
    """
    settings: dict[str, int] = {}
    numbers: dict[str, str] = {}
    for line in text.splitlines():
        path, _, value = line.rpartition(":")
        name = path.rpartition("/")[2]
        if name in _IP:
            try:
                settings[name] = max(settings.get(name, 0), whole(value))
            except ValueError as error:
                raise ToolOutputError(TOOL, "a number in each file", line) from error
        elif name in _PCI and _NUMBER.fullmatch(value):
            numbers[name] = value
        else:
            raise ToolOutputError(TOOL, "`FILE:VALUE` of the files that were read", line)
    pci = [numbers[name] for name in _PCI if name in numbers]
    return PortFiles(**settings, pci_id=":".join(pci) or None)
