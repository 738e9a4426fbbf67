"""Files below /sys and /proc/sys of a simulated server: its network and RDMA devices."""

from collections.abc import Iterable, Sequence

from lightrig.instruments.simulated.hosts.ethtool_format import pci_address
from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort

_RATES = {
    10: "10 Gb/sec (4X SDR)",
    25: "25 Gb/sec (1X EDR)",
    40: "40 Gb/sec (4X QDR)",
    100: "100 Gb/sec (4X EDR)",
    200: "200 Gb/sec (4X HDR)",
    400: "400 Gb/sec (4X NDR)",
}
_LIFESPAN_MS = 10

_NIC = {"vendor": "0x15b3", "device": "0x1021", "subsystem_device": "0x0000"}
"""Numbers of a ConnectX-7, which is MT4129 too, on no board that is sold. Source: pci.ids."""

PCI = "/sys/devices/pci"
"""Beginning of the folders of PCI devices."""

_LANES = "16"


def files(ports: Iterable[SimulatedPort]) -> dict[str, str]:
    """All files by path, without the ends of lines."""
    found = {}
    for index, port in enumerate(ports, 2):
        port.accrue()
        found.update(_network(port, index))
        found.update(_pci(port, index - 2))
        if port.spec.rdma is not None:
            found.update(_rdma(port, port.spec.rdma))
    return found


def _network(port: SimulatedPort, index: int) -> dict[str, str]:
    up = port.is_up("carrier")
    folder = f"/sys/class/net/{port.spec.netdev}"
    settings = {
        f"/proc/sys/net/ipv4/conf/{name}/{setting}": value
        for name in ("all", port.spec.netdev)
        for setting, value in (("arp_announce", "0"), ("arp_ignore", "0"), ("rp_filter", "2"))
    }
    return {
        **settings,
        **{f"{folder}/device/{name}": number for name, number in _NIC.items()},
        f"{folder}/address": f"02:00:00:00:00:{index:02x}",
        f"{folder}/carrier": "1" if up else "0",
        f"{folder}/carrier_changes": str(port.carrier_changes),
        f"{folder}/ifindex": str(index),
        f"{folder}/mtu": "1500",
        f"{folder}/operstate": "up" if up else "down",
        f"{folder}/speed": str(port.spec.rate_bps // 1_000_000 if up else -1),
    }


def pci_folder(index: int) -> str:
    """Return the folder of the server's port `index`: behind a port of the processor of its own."""
    return f"{_root_port(index)}/{pci_address(index)}"


def _root_port(index: int) -> str:
    return f"{PCI}0000:00/0000:00:{index + 1:02x}.0"


def _pci(port: SimulatedPort, index: int) -> dict[str, str]:
    speed = "32.0 GT/s PCIe" if port.spec.rate_bps <= 400 * 10**9 else "64.0 GT/s PCIe"
    link = {
        f"{end}_link_{what}": value
        for end in ("current", "max")
        for what, value in (("speed", speed), ("width", _LANES))
    }
    kinds = {_root_port(index): "0x060400", pci_folder(index): "0x020000"}
    return {
        f"{folder}/{name}": value
        for folder, kind in kinds.items()
        for name, value in {"class": kind, **link}.items()
    }


def _rdma(port: SimulatedPort, device: str) -> dict[str, str]:
    up = port.is_up("firmware")
    gigabits = port.spec.rate_bps // 10**9
    folder = f"/sys/class/infiniband/{device}"
    root = f"{folder}/ports/1"
    counters = {
        "VL15_dropped": 0,
        "excessive_buffer_overrun_errors": 0,
        "link_downed": min(port.link_downs, 255),
        "link_error_recovery": 0,
        "local_link_integrity_errors": 0,
        "port_rcv_data": 0,
        "port_rcv_errors": min(port.uncorrectable_blocks, 65535),
        "port_xmit_data": 0,
        "symbol_error": min(port.symbol_errors, 65535),
    }
    hardware = {"lifespan": _LIFESPAN_MS, "out_of_sequence": 0, "rx_write_requests": 0}
    return {
        f"{folder}/board_id": "SIM_0000000001",
        f"{folder}/fw_ver": "28.41.1000",
        f"{folder}/hca_type": "MT4129",
        f"{root}/link_layer": "Ethernet",
        f"{root}/phys_state": "5: LinkUp" if up else "2: Polling",
        f"{root}/rate": _RATES.get(gigabits, f"{gigabits} Gb/sec (4X)"),
        f"{root}/state": "4: ACTIVE" if port.is_up("carrier") else "1: DOWN",
        **{f"{root}/counters/{name}": str(count) for name, count in counters.items()},
        **{f"{root}/hw_counters/{name}": str(count) for name, count in hardware.items()},
    }


def cat(tree: dict[str, str], paths: Sequence[str]) -> tuple[str, str, int]:
    """Return the output, errors and exit status of `cat PATH ...`."""
    stdout = "".join(f"{tree[path]}\n" for path in paths if path in tree)
    missing = [path for path in paths if path not in tree]
    stderr = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
    return stdout, stderr, 1 if missing else 0


def grep(tree: dict[str, str], paths: Sequence[str]) -> tuple[str, str, int]:
    """Return the output and exit status of `grep -rHs . PATH ...`."""
    stdout, missing = "", False
    for path in paths:
        found = {name: text for name, text in tree.items() if name == path or f"{path}/" in name}
        missing |= not found
        stdout += "".join(f"{name}:{text}\n" for name, text in found.items() if text)
    return stdout, "", 2 if missing else 0
