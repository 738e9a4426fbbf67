"""The light of a transceiver in the fiber of its port, by the readings of its lanes.

A module prints lanes that its port does not use: those beyond its PMD's, and those of another
port (2xFR4). A switch's monitor reads all lanes that share a fiber together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightrig.testbeds import Port, Testbed
from lightrig.testbeds.pmds import Pmd, find_pmd

if TYPE_CHECKING:
    from lightrig.instruments.servers.tools.module import Lane, ModuleReading

UNKNOWN = "how many lanes the fiber carries is not known"
_DUPLEX_LANES = 4
"""Lanes behind an LC connector that are certainly of one fiber: eight may be of two (2xFR4)."""
_STANDARD = re.compile(r"(\d+G) ?(?:BASE)?-?([A-Z][A-Z0-9]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FiberLight:
    """What a transceiver sends into its port's fiber, and receives from it.

    Attributes:
        lanes: those that the port uses.
        sent, received: power in the fiber in dBm, -inf for none; None where it is not known.
        unsent, unreceived: why it is not.
        expected: how many lanes the testbed file states that there are; None for not stated.
    """

    lanes: tuple[Lane, ...]
    sent: float | None
    received: float | None
    unsent: str
    unreceived: str
    expected: int | None


def fiber_light(testbed: Testbed, port: Port, module: ModuleReading) -> FiberLight:
    """Return the light of `module` in the fiber of `port`.

    How many lanes share a fiber is told by the testbed file, else by the standard that the module
    states, else by its connector.
    """
    kind = testbed.transceiver_of(port)
    pmd = stated_pmd(module) if kind is None or kind.wavelengths is None else None
    # A module of four lanes that serves one port of a breakout uses one: its standard tells not.
    expected = kind.lanes if kind else None
    wavelengths = kind.wavelengths if kind else None
    if wavelengths is None:
        wavelengths = pmd.wavelengths if pmd else _by_connector(module)
    lanes, unclear = _of_port(testbed, port, module, expected, wavelengths)
    sent = [lane.tx_power_dbm for lane in lanes]
    received = [lane.rx_power_dbm for lane in lanes]
    if module.rx_power_is == "oma":
        received = []
    why = unclear or _why(sent, wavelengths)
    why_not = unclear or _why(received, wavelengths)
    if module.rx_power_is == "oma":
        why_not = "its module measures OMA, not the average power"
    return FiberLight(
        lanes,
        None if why else _together(sent, wavelengths),
        None if why_not else _together(received, wavelengths),
        why,
        why_not,
        expected,
    )


def stated_pmd(module: ModuleReading) -> Pmd | None:
    """Return the PMD that a module states to comply with, None where it is not one.

    One code of SFF-8024 stands for two standards, such as 100GBASE-LR4 or 25GBASE-LR: that with
    as many lanes as the module prints is meant.
    """
    found = {
        pmd.name: pmd
        for text in module.compliance
        for match in _STANDARD.finditer(text)
        if (pmd := find_pmd(f"{match[1]}-{match[2]}")) is not None
        and pmd.lanes == len(module.lanes)
    }
    return next(iter(found.values())) if len(found) == 1 else None


def power_in_fiber(levels: Sequence[float], wavelengths: int | None) -> float | None:
    """Return the power in one fiber in dBm, by the powers of the lanes of a transceiver in use.

    `wavelengths` lanes share a fiber; where more lanes are in use, the light is taken as alike in
    all fibers. None where the number of wavelengths is unknown and there are several lanes, or no
    lane has a power.
    """
    if not levels or (wavelengths is None and levels[1:]):
        return None
    fibers = math.ceil(len(levels) / (wavelengths or 1))
    milliwatt = sum(10 ** (level / 10) for level in levels) / fibers
    return 10 * math.log10(milliwatt) if milliwatt else -math.inf


def _together(levels: Sequence[float | None], wavelengths: int | None) -> float | None:
    known = [level for level in levels if level is not None]
    if wavelengths == 1:  # a fiber each: one that is dark says nothing of another's
        known = [level for level in known if level > -math.inf] or known
    return power_in_fiber(known, wavelengths)


def _why(levels: Sequence[float | None], wavelengths: int | None) -> str:
    """Return why the power in the fiber is not known; empty where it is."""
    if all(level is None for level in levels):
        return "its module reports no power"
    if wavelengths is None and levels[1:]:
        return UNKNOWN
    if wavelengths != 1 and None in levels:
        return "its module reports the power of some lanes alone"
    return ""


def _by_connector(module: ModuleReading) -> int | None:
    """Return how many lanes share a fiber by a module's connector, None where that tells not."""
    connector, used = module.connector or "", len(module.lanes_in_use)
    if connector == "LC":
        return used if used <= _DUPLEX_LANES else None
    return 1 if connector.startswith("MPO") else None


def _of_port(
    testbed: Testbed,
    port: Port,
    module: ModuleReading,
    expected: int | None,
    wavelengths: int | None,
) -> tuple[tuple[Lane, ...], str]:
    """Return the lanes that a port uses, and why they are not known, if so.

    Two ports of one module (2xFR4, 2xLR4) both print all lanes: the first port's come first.
    """
    used = module.lanes_in_use
    size = expected or (wavelengths if wavelengths and wavelengths > 1 else None)
    if size is None or len(module.lanes) <= size:
        return (module.lanes if expected else used), ""
    groups = [module.lanes[n : n + size] for n in range(0, len(module.lanes), size)]
    sending = [lane for lane in module.lanes if lane.tx_bias_ma or _is_lit(lane.tx_power_dbm)]
    # A receiver without light may show some: only where no lane sends does that count.
    receiving = [lane for lane in module.lanes if _is_lit(lane.rx_power_dbm)]
    lit = [group for group in groups if any(lane in (sending or receiving) for lane in group)]
    if len(lit) == 1:
        return lit[0], ""
    ports = [spec.port for spec in testbed.nic_of(port)[1].ports]
    index = ports.index(port)
    if not lit or len(ports) >= len(lit):
        return groups[min(index, len(groups) - 1)], ""
    if expected is None:
        return used, ""
    why = (
        f"its module uses {len(used)} lanes, and which {size} of them are this port's is not known"
    )
    return used, why


def _is_lit(dbm: float | None) -> bool:
    return dbm not in (None, -math.inf)
