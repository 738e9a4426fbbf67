"""Readings of a server's NIC ports by its tools: link, light, counters, errors, test patterns."""

import contextlib
import shlex
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, TypeVar

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Diagnostic, LinkUpTimes
from lightrig.instruments.servers.host.commands import (
    Commands,
    Reading,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.ports.down_reasons import down_reasons
from lightrig.instruments.servers.ports.mlxlink_tool import MlxlinkTool
from lightrig.instruments.servers.tools import (
    cmis_diagnostics,
    ethtool_counters,
    ethtool_driver,
    ethtool_fec,
    ethtool_link,
    ethtool_module,
    ethtool_pause,
    infiniband_sysfs,
    ip_link,
    pci_path,
    pfc,
    port_files,
    rdma_link,
    roce_addresses,
)
from lightrig.instruments.servers.tools.ethtool_driver import DriverReading
from lightrig.instruments.servers.tools.ethtool_fec import FecReading
from lightrig.instruments.servers.tools.ethtool_link import LinkSettings
from lightrig.instruments.servers.tools.ethtool_pause import PauseReading
from lightrig.instruments.servers.tools.infiniband_sysfs import InfinibandPort
from lightrig.instruments.servers.tools.ip_link import IpLink
from lightrig.instruments.servers.tools.mlxlink import MlxlinkReport, PrbsTest
from lightrig.instruments.servers.tools.module import ModuleReading
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.pci_path import PciPath
from lightrig.instruments.servers.tools.port_files import PortFiles
from lightrig.instruments.servers.tools.rdma_link import RdmaLink
from lightrig.instruments.servers.tools.roce_addresses import RoceAddress

T = TypeVar("T")

_GREP_STATUSES = (0, 2)
"""Exit statuses of grep: 2 means that some of the files could not be read."""

_PORT_FILES = ("state", "phys_state", "rate", "link_layer", "counters", "hw_counters")


class PrbsMode(Protocol):
    """A port that sends and checks a test pattern."""

    def read(self) -> Reading[PrbsTest]:
        """Whether each lane has found the pattern, and its errors since they were cleared."""

    def clear(self) -> None:
        """Reset the error counters."""

    def tune(self) -> None:
        """Start tuning the receiver to the pattern; `read` shows its progress."""


class Nic(Protocol):
    """The NIC ports of a server, read through the server's tools.

    Every method raises `InstrumentError` if the tool is missing, fails or does not end, and
    `ToolOutputError` if its output cannot be parsed with certainty.
    """

    def link(self, netdev: str) -> Reading[LinkSettings]:
        """Speed, duplex, and whether the driver has a link."""

    def module(self, netdev: str) -> Reading[ModuleReading]:
        """The transceiver: its identity, temperature, and bias and light of every lane."""

    def diagnostics(self, netdev: str) -> Reading[tuple[Diagnostic, ...]]:
        """Signal quality as a CMIS module measures it; none where the module does not."""

    def counters(self, netdev: str) -> Reading[dict[str, int]]:
        """All counters of the driver, by its own names; `tools.counters` has what they mean."""

    def fec(self, netdev: str) -> Reading[FecReading]:
        """Forward error correction: what is active, and blocks corrected and not."""

    def device(self, netdev: str) -> Reading[IpLink]:
        """The kernel's view: carrier, changes of carrier, packets and errors."""

    def driver(self, netdev: str) -> Reading[DriverReading]:
        """The port's driver, and the firmware of its NIC."""

    def pause(self, netdev: str) -> Reading[PauseReading]:
        """Flow control by pause frames."""

    def pfc(self, netdev: str) -> Reading[tuple[int, ...]]:
        """The priorities with flow control (PFC)."""

    def files(self, netdev: str) -> Reading[PortFiles]:
        """The kernel's settings of IP that hold for the port, and its NIC's numbers on PCI."""

    def pci_path(self, netdev: str) -> Reading[PciPath]:
        """The PCI Express links from the processor to the port's NIC."""

    def rdma_links(self) -> Reading[tuple[RdmaLink, ...]]:
        """The state of every RDMA port of the server."""

    def infiniband(self, device: str, port: int = 1) -> Reading[InfinibandPort]:
        """State and counters of one RDMA port, from sysfs."""

    def roce_addresses(self, device: str, port: int = 1) -> Reading[dict[int, RoceAddress]]:
        """The RoCE addresses of one RDMA port by their index."""

    def firmware(self, device: str) -> Reading[MlxlinkReport]:
        """Firmware readings: link, transceiver, bit errors before and after FEC."""

    def link_counters(self, device: str) -> Reading[MlxlinkReport]:
        """The firmware's counters of the link and its errors; no module is asked."""

    def link_up_times(self, device: str) -> Reading[LinkUpTimes]:
        """How long the last link-up took by the firmware's timers; no module is asked."""

    def down_reasons(
        self, netdev: str, device: str | None, driver: DriverReading | None = None
    ) -> tuple[str, ...]:
        """What the driver and the firmware say about a link that is down; raises nothing.

        driver: as it was read just now.
        """

    def prbs(
        self, device: str, pattern: str = "PRBS31", lane_rate: str | None = None
    ) -> AbstractContextManager[PrbsMode]:
        """Send and check a test pattern for as long as the context lasts.

        The port's link is down meanwhile, and is given back however the context ends; raises
        `NotDoneError` where that did not succeed.
        """


class NicTools:
    """The tools of one server: ethtool, ip, rdma, mlxlink or mstlink, and sysfs.

    JSON is requested where a tool may support it; the text of an older version is parsed as
    well. Implements `Nic`.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def link(self, netdev: str) -> Reading[LinkSettings]:
        """`ethtool IF`."""
        return self._commands.read(["ethtool", netdev], ethtool_link.parse)

    def module(self, netdev: str) -> Reading[ModuleReading]:
        """`ethtool -m IF`, as JSON if that is complete, else as text.

        Some versions refuse JSON for modules. That of 6.14 has text behind it for an SFP with
        diagnostics (netdev, J. Eigner, 24 October 2025), and repeats keys for a second bank.
        """
        try:
            reading = self._commands.read(["ethtool", "--json", "-m", netdev], ethtool_module.parse)
            if reading.value.lanes:
                return reading
        except (ToolFailedError, ToolOutputError):
            pass  # unless --json was the reason, the next command fails as well and is raised
        return self._commands.read(["ethtool", "-m", netdev], ethtool_module.parse)

    def diagnostics(self, netdev: str) -> Reading[tuple[Diagnostic, ...]]:
        """`ethtool -m IF page N offset N length 128`, of as many pages as the module has."""
        lower, at = self._half_page(netdev, 0, 0)
        if not cmis_diagnostics.has_pages(lower):
            return Reading((), at)
        upper = cmis_diagnostics.HALF_PAGE
        advertising, at = self._half_page(netdev, cmis_diagnostics.ADVERTISING_PAGE, upper)
        if not cmis_diagnostics.has_diagnostics(advertising):
            return Reading((), at)
        found: list[Diagnostic] = []
        earliest = at.earliest
        for bank in cmis_diagnostics.banks(advertising):
            control, _ = self._half_page(netdev, cmis_diagnostics.CONTROL_PAGE, upper, bank)
            halves = []
            for descriptors, samples in cmis_diagnostics.pages(control):
                stated, _ = self._half_page(netdev, descriptors, upper, bank)
                measured, at = self._half_page(netdev, samples, upper, bank)
                halves.append((stated, measured))
            flags, at = self._half_page(netdev, cmis_diagnostics.FLAGS_PAGE, upper, bank)
            found += cmis_diagnostics.decode(halves, flags, bank)
        return Reading(tuple(found), Span(earliest, at.latest))

    def _half_page(
        self, netdev: str, page: int, offset: int, bank: int = 0
    ) -> Reading[dict[int, int]]:
        where = {"page": page, "offset": offset, "length": cmis_diagnostics.HALF_PAGE}
        if bank:
            where["bank"] = bank
        stated = [text for name, number in where.items() for text in (name, f"{number:#04x}")]
        return self._commands.read(
            ["ethtool", "-m", netdev, "hex", "on", *stated], cmis_diagnostics.parse_dump
        )

    def counters(self, netdev: str) -> Reading[dict[str, int]]:
        """`ethtool -S IF`."""
        return self._commands.read(["ethtool", "-S", netdev], ethtool_counters.parse)

    def fec(self, netdev: str) -> Reading[FecReading]:
        """`ethtool --json -I --show-fec IF`; without counters where ethtool knows none."""
        counted = ["ethtool", "--json", "-I", "--show-fec", netdev]
        try:
            return self._commands.read(counted, ethtool_fec.parse)
        except ToolFailedError:
            return self._commands.read(["ethtool", "--show-fec", netdev], ethtool_fec.parse)

    def driver(self, netdev: str) -> Reading[DriverReading]:
        """`ethtool -i IF`."""
        return self._commands.read(["ethtool", "-i", netdev], ethtool_driver.parse)

    def pause(self, netdev: str) -> Reading[PauseReading]:
        """`ethtool -a IF`."""
        return self._commands.read(["ethtool", "-a", netdev], ethtool_pause.parse)

    def pfc(self, netdev: str) -> Reading[tuple[int, ...]]:
        """`dcb pfc show dev IF`, or `mlnx_qos -i IF` where the NIC's firmware has the settings."""
        try:
            return self._commands.read(["dcb", "pfc", "show", "dev", netdev], pfc.parse_dcb)
        except (ToolFailedError, ToolMissingError) as error:
            with contextlib.suppress(ToolFailedError, ToolMissingError):
                return self._commands.read(["mlnx_qos", "-i", netdev], pfc.parse_mlnx_qos)
            raise error

    def files(self, netdev: str) -> Reading[PortFiles]:
        """`grep -Hs .` of files below /proc/sys/net/ipv4/conf and /sys/class/net/IF/device."""
        command = ["grep", "-Hs", ".", *port_files.ip_files(netdev), *port_files.pci_files(netdev)]
        result = self._commands.run(command)
        return self._commands.parsed(command, result, port_files.parse)

    def pci_path(self, netdev: str) -> Reading[PciPath]:
        """`readlink -f /sys/class/net/IF/device`, and `grep -Hs .` of files below it and above."""
        command = ["readlink", "-f", f"/sys/class/net/{netdev}/device"]
        device = self._commands.read(command, str.strip)
        files = pci_path.files(device.value)
        if not files:
            return Reading(PciPath(()), device.at)
        command = ["grep", "-Hs", ".", *files]
        result = self._commands.run(command)
        return self._commands.parsed(command, result, partial(pci_path.parse, device.value))

    def set_device(self, netdev: str, *, up: bool) -> None:
        """`ip link set dev IF up|down`; most NICs switch their laser with it."""
        state = "up" if up else "down"
        self._commands.read(["ip", "link", "set", "dev", netdev, state], str)

    def device(self, netdev: str) -> Reading[IpLink]:
        """`ip -j -s -s link show dev IF`."""
        links, at = self._commands.read(
            ["ip", "-j", "-s", "-s", "link", "show", "dev", netdev], ip_link.parse
        )
        return Reading(_only(ip_link.TOOL, netdev, links), at)

    def rdma_links(self) -> Reading[tuple[RdmaLink, ...]]:
        """`rdma -j link`."""
        return self._commands.read(["rdma", "-j", "link"], rdma_link.parse)

    def infiniband(self, device: str, port: int = 1) -> Reading[InfinibandPort]:
        """`grep -rHs . /sys/class/infiniband/DEV/ports/N/...`."""
        files = [f"/sys/class/infiniband/{device}/ports/{port}/{name}" for name in _PORT_FILES]
        command = ["grep", "-rHs", ".", *files]
        result = self._commands.run(command)
        if result.status not in _GREP_STATUSES or not result.stdout:
            raise ToolFailedError(self._commands.server, result, shlex.join(command))
        ports, at = self._commands.parsed(command, result, infiniband_sysfs.parse)
        return Reading(_only(infiniband_sysfs.TOOL, device, ports), at)

    def roce_addresses(self, device: str, port: int = 1) -> Reading[dict[int, RoceAddress]]:
        """`grep -rHs .` of `gids` and `gid_attrs` below /sys/class/infiniband/DEV/ports/N."""
        command = ["grep", "-rHs", ".", *roce_addresses.files(device, port)]
        result = self._commands.run(command)
        if not result.stdout:
            raise ToolFailedError(self._commands.server, result, shlex.join(command))
        return self._commands.parsed(command, result, roce_addresses.parse)

    def firmware(self, device: str) -> Reading[MlxlinkReport]:
        """`mlxlink -d DEV -m -c --json`."""
        return MlxlinkTool(self._commands, device).report("-m", "-c")

    def link_counters(self, device: str) -> Reading[MlxlinkReport]:
        """`mlxlink -d DEV -c --json`."""
        return MlxlinkTool(self._commands, device).report("-c")

    def link_up_times(self, device: str) -> Reading[LinkUpTimes]:
        """`mlxlink -d DEV --amber_collect FILE`, which is read and removed."""
        return MlxlinkTool(self._commands, device).link_up_times()

    def down_reasons(
        self, netdev: str, device: str | None, driver: DriverReading | None = None
    ) -> tuple[str, ...]:
        """By `ethtool -i IF`, `ethtool IF`, and of Mellanox NICs `mlxlink -d DEV -m -c`."""
        return down_reasons(self, netdev, device, driver)

    def prbs(
        self, device: str, pattern: str = "PRBS31", lane_rate: str | None = None
    ) -> AbstractContextManager[PrbsMode]:
        """`mlxlink -d DEV --test_mode EN ...`, and `--test_mode DS` at the end."""
        return MlxlinkTool(self._commands, device).prbs(pattern, lane_rate)


def _only(tool: str, name: str, found: tuple[T, ...]) -> T:
    if len(found) != 1:
        raise ToolOutputError(tool, f"one entry for {name}", f"{len(found)} answers")
    return found[0]
