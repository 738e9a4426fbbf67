"""Lines of kernels' logs and what they are about; the lines are from public logs and issues."""

import pytest

from lightrig.instruments.servers.tools.kernel_patterns import PATTERNS, pattern_of

# The source of each: kernel sources' formats with values, or public logs that quote them.
LINES = [
    ("link", "mlx5_core 0000:3b:00.0 ens3f0np0: Link up"),
    ("link", "mlx5_core 0000:3b:00.1 ens3f1np1: Link down"),
    ("link", "bnxt_en 0000:04:00.0 ens3f0np0: NIC Link is Down"),
    ("link", "e1000e 0000:02:00.0 eth1: NIC Link is Up 1000 Mbps Full Duplex, Flow Control: Rx/Tx"),
    ("link", "ice 0000:17:00.0 ens1f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS"),
    ("link", "r8169 0000:08:00.0 enp8s0: Link is Down"),
    ("link", "r8169 0000:08:00.0 enp8s0: Link is Up - 1Gbps/Full - flow control off"),
    ("link", "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready"),
    ("link", "br0: port 2(p4) entered forwarding state"),
    ("module", "mlx5_core 0004:01:00.0: Port module event: module 0, Cable plugged"),
    ("module", "mlx5_core 0004:01:00.0: Port module event[error]: module 1, Cable error, Bus"),
    ("nic", "mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised - reached "
            "miss count"),
    ("nic", "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out"),
    ("pcie", "pcieport 0000:00:1c.0: AER: Multiple Corrected error received: 0000:00:1c.0"),
    ("pcie", "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer"),
    (
        "pcie",
        "pci 0000:05:00.0: 4.000 Gb/s available PCIe bandwidth, limited by 5.0 GT/s PCIe x1 link "
        "at 0000:00:1c.1 (capable of 7.876 Gb/s with 8.0 GT/s PCIe x1 link)",
    ),
    ("gpu", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python3, GPU has fallen off the bus."),
    ("gpu", "NVRM: Xid (PCI:0000:00:01.0): 79, pid='<unknown>', name='<unknown>'"),
    ("machine", "mce: [Hardware Error]: Machine check events logged"),
    ("machine", "Out of memory: Killed process 1234 (python) total-vm:8GB"),
    ("machine", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]"),
]  # fmt: skip
NOTHING = [
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.211.01",
    "mlx5_core 0004:01:00.0: firmware version: 16.27.2048",
    "mlx5_core 0004:01:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
    "pci 0000:05:00.0: PME# supported from D0 D3hot D3cold",
    "systemd[1]: Reached target Network is Online.",
]


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_lines_of_each_kind(kind: str, line: str) -> None:
    found = pattern_of(line)
    assert found is not None
    assert found.kind == kind
    assert found.source


@pytest.mark.parametrize("line", NOTHING)
def test_other_lines(line: str) -> None:
    assert pattern_of(line) is None


def test_each_kind_is_a_quantity() -> None:
    kinds = {each.kind for each in PATTERNS}
    assert kinds == {"link", "module", "nic", "pcie", "gpu", "machine"}
