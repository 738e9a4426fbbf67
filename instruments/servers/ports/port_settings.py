"""What a NIC port is set to, and the versions of its driver and firmware, for comparison."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from lightrig.instruments.servers.host.commands import Reading, ToolFailedError, ToolMissingError
from lightrig.instruments.servers.ports.nic import Nic
from lightrig.instruments.servers.tools.ethtool_driver import DriverReading
from lightrig.instruments.servers.tools.ip_link import IpLink
from lightrig.instruments.servers.tools.module import ModuleReading
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.pci_path import PciPath
from lightrig.testbeds import LightrigError

T = TypeVar("T")

_NO_FEC = frozenset(("None", "Auto", "Not", "reported"))
"""Names of ethtool for no encoding that is known: of a device that has none to configure, too."""


@dataclass(frozen=True, slots=True)
class PortSettings:
    """A NIC port; None for what was not read, which `unread` says why.

    Attributes:
        mtu: greatest payload of a frame, in bytes.
        fec: the encoding in use, or the only one that is configured while the link is down.
        receives_pause, sends_pause: flow control by pause frames.
        pfc: the priorities with flow control of their own (PFC); None also where the port has none.
        arp_ignore, arp_announce, rp_filter: settings of IP that hold for the port.
        driver, driver_version: the kernel's driver.
        nic_firmware: version of the NIC's firmware.
        pci_id: numbers of its NIC's vendor, device and board.
        transceiver: vendor and part of the module.
        module_firmware: version of the module's firmware.
        pci: the PCI Express links to its NIC.
        unread: why what is missing could not be read, by tool: the last line of the program.
    """

    mtu: int | None
    fec: str | None
    receives_pause: bool | None
    sends_pause: bool | None
    pfc: tuple[int, ...] | None
    arp_ignore: int | None
    arp_announce: int | None
    rp_filter: int | None
    driver: str | None
    driver_version: str | None
    nic_firmware: str | None
    pci_id: str | None
    transceiver: str | None
    module_firmware: str | None
    pci: PciPath | None
    unread: Mapping[str, str]

    def __str__(self) -> str:
        """Return what was read, in one line."""
        pauses = (self.receives_pause, self.sends_pause)
        rx, tx = (None if each is None else "on" if each else "off" for each in pauses)
        shown = (
            ("MTU", self.mtu),
            ("FEC", self.fec),
            ("flow control rx", rx),
            ("tx", tx),
            ("PFC of priority", pfc_text(self.pfc)),
            ("arp_ignore", self.arp_ignore),
            ("arp_announce", self.arp_announce),
            ("rp_filter", self.rp_filter),
            (self.driver, self.driver_version),
            ("NIC firmware", self.nic_firmware),
            ("module firmware", self.module_firmware),
            ("PCIe", self._pci_text),
        )
        read = [f"{name} {value}" for name, value in shown if value is not None]
        missing = [f"{tool} not read: {why}" for tool, why in self.unread.items()]
        return "; ".join([", ".join(read), *missing])

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "pci": self._pci_text}

    @property
    def _pci_text(self) -> str | None:
        return str(self.pci.narrowest) if self.pci and self.pci.narrowest else None


def pfc_text(priorities: tuple[int, ...] | None) -> str | None:
    """Return the priorities with flow control as words; None where it was not read."""
    return None if priorities is None else " ".join(map(str, priorities)) or "none"


def read_settings(
    nic: Nic,
    netdev: str,
    *,
    transceiver: bool = True,
    device: IpLink | None = None,
    driver: DriverReading | None = None,
    module: ModuleReading | None = None,
) -> PortSettings:
    """Read a port; what a tool or driver does not tell is left out, with the reason.

    transceiver: whether it may have a module. device, driver, module: as they were read just now.
    """
    unread: dict[str, str] = {}

    def value(tool: str, read: Callable[[str], Reading[T]]) -> T | None:
        try:
            return read(netdev).value
        except LightrigError as error:
            unread[tool] = cause_of(error)
            return None

    device = device or value("ip link", nic.device)
    driver = driver or value("ethtool -i", nic.driver)
    pause = value("ethtool -a", nic.pause)
    priorities = None
    try:
        priorities = nic.pfc(netdev).value
    except (ToolFailedError, ToolMissingError):
        pass  # most ports have none, and both tools end with an error there
    except LightrigError as error:
        unread["dcb pfc show"] = cause_of(error)
    fec = value("ethtool --show-fec", nic.fec)
    files = value("files", nic.files)
    if transceiver and module is None:
        module = value("ethtool -m", nic.module)
    receives, sends = pause.active if pause else (None, None)
    pci = value("PCI Express", nic.pci_path)
    encodings: tuple[str, ...] = ()
    if fec is not None:
        encodings = fec.active if device and device.carrier else fec.configured
    return PortSettings(
        mtu=device.mtu if device else None,
        fec=_only(encodings),
        receives_pause=receives,
        sends_pause=sends,
        pfc=priorities,
        arp_ignore=files.arp_ignore if files else None,
        arp_announce=files.arp_announce if files else None,
        rp_filter=files.rp_filter if files else None,
        driver=driver.driver if driver else None,
        driver_version=driver.version if driver else None,
        nic_firmware=driver.firmware if driver else None,
        pci_id=files.pci_id if files else None,
        transceiver=f"{module.vendor} {module.part}" if module and module.part else None,
        module_firmware=module.firmware if module else None,
        pci=pci,
        unread=unread,
    )


def fec_in_use(nic: Nic, netdev: str) -> str | None:
    """Return the encoding of a link that is up; None where it is not, or the port has none.

    Raises `LightrigError` where a tool fails.
    """
    return _only(nic.fec(netdev).value.active) if nic.device(netdev).value.carrier else None


def _only(encodings: tuple[str, ...]) -> str | None:
    known = [name for name in encodings if name not in _NO_FEC]
    return known[0] if len(known) == 1 and len(encodings) == 1 else None


def cause_of(error: LightrigError) -> str:
    """Return in one line why a tool told nothing: its own last line where it failed."""
    if isinstance(error, ToolFailedError):
        return error.last
    if isinstance(error, ToolOutputError):
        return f"it printed {error.found or 'nothing'!r}, not {error.expected}"
    return str(error).splitlines()[0]
