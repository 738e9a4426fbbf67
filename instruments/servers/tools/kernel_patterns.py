"""What lines of a kernel's log are about: a table of patterns, each with its source.

Files are of Linux unless stated; texts differ between versions only where a pattern allows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PATTERNS", "KernelPattern", "pattern_of"]


@dataclass(frozen=True, slots=True)
class KernelPattern:
    """A kind of line.

    Attributes:
        kind: what it is about: `link`, `module`, `nic`, `pcie`, `gpu` or `machine`.
        text: is searched in a line.
        source: the code that writes it.
    """

    kind: str
    text: re.Pattern[str]
    source: str


def _table(lines: str) -> tuple[KernelPattern, ...]:
    found, source = [], ""
    for line in filter(None, map(str.strip, lines.splitlines())):
        if line.startswith("# "):
            source = line[2:]
            continue
        kind, text = line.split(maxsplit=1)
        found.append(KernelPattern(kind, re.compile(text), source))
    return tuple(found)


PATTERNS = _table(
    r"""
    # drivers/net/ethernet/mellanox/mlx5/core/en_main.c
    link     ^mlx5_core \S+ \S+: Link (up|down)$
    # drivers/net/ethernet/mellanox/mlx5/core/events.c
    module   \bPort module event(\[error\])?: module \d+, \S
    pcie     \bDetected insufficient power on the PCIe slot
    nic      \bHigh temperature on sensors with bit set
    # drivers/net/ethernet/mellanox/mlx5/core/health.c
    nic      \bdevice's health compromised - reached miss count
    nic      \bHealth issue observed, .+ severity\(\d\)
    nic      \bFatal error \d+ detected
    # drivers/net/ethernet/mellanox/mlx5/core/cmd.c
    nic      \btimeout\. Will cause a leak of a command resource
    # drivers/net/ethernet/mellanox/mlx5/core/en_tx.c and en/reporter_tx.c
    nic      \bTX timeout (detected|on queue)|\bError cqe on cqn 0x
    # drivers/net/ethernet/broadcom/bnxt/bnxt.c, intel/e1000e/netdev.c, intel/ice and intel/i40e
    link     \bNIC Link is (Up|Down|up|down)\b
    nic      \bFirmware (not responding|reset|hang)|\bDetected firmware fatal condition
    nic      \bDetected Hardware Unit Hang
    # drivers/net/ethernet/broadcom/bnxt/bnxt_link or bnxt.c: bnxt_port_module_event
    module   \b(Unqualified SFP\+? module detected|SFP\+? module inserted without Tx)
    # drivers/net/phy/phy.c and phylink.c
    link     \bLink is (Up - |Down\b)
    # net/bridge/br_stp.c
    link     : port \d+\(\S+\) entered (blocking|listening|learning|forwarding|disabled) state$
    # drivers/net/bonding/bond_main.c
    link     \blink status (definitely |up|down)
    # net/ipv6/addrconf.c
    link     ^IPv6: ADDRCONF\(NETDEV_(CHANGE|UP)\): \S+: link (becomes|is not) ready$
    # net/sched/sch_generic.c
    nic      \bNETDEV WATCHDOG: \S+ .*transmit queue \d+ timed out
    # drivers/pci/pcie/aer.c
    pcie     \bAER: .*(error message received|error received)
    pcie     \bPCIe Bus Error: severity=
    pcie     \bAER: (aer_status|Root Port link has been reset|device recovery (failed|successful))
    # drivers/pci/pcie/dpc.c
    pcie     \bDPC: (containment event|unmasked uncorrectable error detected)
    # drivers/pci/hotplug/pciehp_ctrl.c
    pcie     \bpciehp: Slot\([^)]*\): (Link Down|Link Up|Card not present|Card present)
    # drivers/pci/pci.c: __pcie_print_link_status
    pcie     Gb/s available PCIe bandwidth, limited by
    # NVIDIA's open-gpu-kernel-modules, src/nvidia/src/kernel/gpu: nvErrorLog
    gpu      \bNVRM: Xid \(PCI:[0-9a-fA-F:.]+\): \d+
    gpu      \bNVRM: .*GPU has fallen off the bus
    # NVIDIA's open-gpu-kernel-modules, kernel-open/nvidia: NVSwitch
    gpu      \bnvidia-nvswitch\d+: SXid \(PCI:[0-9a-fA-F:.]+\): \d+
    # drivers/gpu/drm/amd/amdgpu
    gpu      \bamdgpu \S+: .*(GPU reset|ring \S+ timeout|RAS|uncorrectable)
    # arch/x86/kernel/cpu/mce/core.c
    machine  \[Hardware Error\]:
    # mm/oom_kill.c
    machine  \bOut of memory: Killed process \d+
    # kernel/watchdog.c, kernel/hung_task.c, kernel/rcu/tree_stall.h
    machine  \bsoft lockup - CPU#\d+ stuck|\bblocked for more than \d+ seconds
    machine  \bdetected stalls? on CPU
    # drivers/thermal/intel/therm_throt.c
    machine  \btemperature (above|is above) threshold, cpu clock (is )?throttled
    """
)


def pattern_of(text: str) -> KernelPattern | None:
    """Return the first pattern that a line has; None for a line about nothing of the table."""
    return next((each for each in PATTERNS if each.text.search(text)), None)
