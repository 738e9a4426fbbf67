"""Why a port's link is down, as its driver and its firmware say: verbatim, and theirs alone.

A NIC says "No cable" also where the laser at the far end is off: none of it is a cause by itself.
Sources: ethtool(8), which prints the kernel's ETHTOOL_A_LINKSTATE_EXT_STATE in brackets after
`Link detected: no`; mstflint's mlxlink, section `Troubleshooting Info`.
"""

from __future__ import annotations

from typing import Protocol

from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.tools.ethtool_driver import DriverReading
from lightrig.instruments.servers.tools.ethtool_link import LinkSettings
from lightrig.instruments.servers.tools.mlxlink import MlxlinkReport
from lightrig.testbeds import LightrigError


class AskedNic(Protocol):
    """The tools of a server that may give a reason: see `instruments.servers.ports.nic.Nic`."""

    def driver(self, netdev: str) -> Reading[DriverReading]:
        """The port's driver."""

    def link(self, netdev: str) -> Reading[LinkSettings]:
        """Whether the driver has a link, and why not."""

    def firmware(self, device: str) -> Reading[MlxlinkReport]:
        """Firmware readings."""


_SECTION, _TOOL = "Troubleshooting Info", "Tool Information"
_KEYS = ("Status Opcode", "Group Opcode", "Recommendation")
_FINE = "No issue was observed"


def down_reasons(
    nic: AskedNic, netdev: str, device: str | None, driver: DriverReading | None = None
) -> tuple[str, ...]:
    """Return what the vendor's software says about a link that is down, a sentence a tool.

    device: the RDMA device, of which firmware is asked where its driver is of Mellanox. driver: as
    it was read just now. A driver that gives no reason is left out, as is a tool that is missing or
    fails: nothing needs them.
    """
    found = []
    try:
        driver = driver or nic.driver(netdev).value
    except LightrigError:
        return ()
    try:
        link = nic.link(netdev).value
    except LightrigError:
        pass
    else:
        if not link.detected and link.reason is not None:
            name = " ".join(filter(None, (driver.driver, driver.version)))
            found.append(f"its driver {name} says by ethtool: {link.reason!r}")
    if device is not None and driver.of_mellanox:
        try:
            report = nic.firmware(device).value
        except LightrigError:
            pass
        else:
            found += _advised_by_firmware(report)
    return tuple(found)


def _advised_by_firmware(report: MlxlinkReport) -> list[str]:
    section = report.sections.get(_SECTION, {})
    shown = [
        f"{key} {value!r}" for key in _KEYS if (value := section.get(key)) not in (None, "N/A")
    ]
    if not shown or section.get("Recommendation") == _FINE:
        return []
    tool = report.sections.get(_TOOL, {})
    versions = [tool.get("Firmware Version"), tool.get("MFT Version")]
    of = ", ".join(filter(None, versions))
    return [f"its firmware{f' ({of})' if of else ''} says by mlxlink: {', '.join(shown)}"]
