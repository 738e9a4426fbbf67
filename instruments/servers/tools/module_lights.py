"""What a transceiver's memory says of its receiver and its data paths, from the few bytes of each.

Places: CMIS 00h:3 and 11h:128 to 153 (OIF-CMIS-05.2, 6.3.3 and 8.10, as the memory maps of
sonic-net/sonic-platform-common have them); SFF-8636 bytes 3 to 5; SFF-8472 A2h:110. Flags of the
first two are latched, and cleared by any reading.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ModuleLights, Shown, ShownState
from lightrig.instruments.servers.tools.module import CMIS


class ModulePlace(NamedTuple):
    """A part of a transceiver's memory: on the module's bus, its page, and bytes of that.

    Attributes:
        address: 0x50, or 0x51 for the second device of SFF-8472.
        page: its number; 0 where there is one alone.
        offset: of the first byte.
        length: in bytes.
    """

    address: int
    page: int
    offset: int
    length: int


class MemoryReading(NamedTuple):
    """One reading of a transceiver's memory.

    Attributes:
        netdev: the port's network device on its server.
        place: what was read.
        at: it began and ended within this time, on the bench's clock.
        data: the bytes; None where the read failed.
        problem: why it did, in the kernel's words.
    """

    netdev: str
    place: ModulePlace
    at: Span
    data: bytes | None
    problem: str = ""


IDENTITY = ModulePlace(0x50, 0, 0, 3)
"""Identifier, revision and memory model."""

_STATE, _PATHS = ModulePlace(0x50, 0, 3, 1), ModulePlace(0x50, 0x11, 128, 26)
_SFF_8636 = ModulePlace(0x50, 0, 3, 3)
_SFF_8472 = ModulePlace(0x51, 0, 110, 1)

_QSFP, _SFP = frozenset((0x0D, 0x11)), frozenset((0x03,))
_FLAT = 0x80

LATE = 100_000_000
"""By how many ns a receiver's loss of signal may be shown late: Finisar AN-2030, table 3.10, of
SFF-8472."""

LATE_FLAG = 2 * LATE
"""The same of latched flags: an allowance, since no document with their limits was at hand."""

DATA_PATHS = {
    1: "DPDeactivated",
    2: "DPInit",
    3: "DPDeinit",
    4: "DPActivated",
    5: "DPTxTurnOn",
    6: "DPTxTurnOff",
    7: "DPInitialized",
}
"""Names of the states of a data path by their codes."""


def places_of(identity: bytes) -> tuple[ModulePlace, ...]:
    """Return what to read of a module, by the bytes of `IDENTITY`; nothing of an unknown one."""
    if len(identity) != IDENTITY.length:
        return ()
    if identity[0] in CMIS and not identity[2] & _FLAT:
        return _STATE, _PATHS
    if identity[0] in _QSFP:
        return (_SFF_8636,)
    return (_SFF_8472,) if identity[0] in _SFP else ()


def lights(readings: Sequence[MemoryReading]) -> ModuleLights:
    """Return what the readings of one module show; those of no known place are left out."""
    is_sfp = any(one.place == _SFF_8472 for one in readings)
    found = ModuleLights(latched=not is_sfp, late=LATE if is_sfp else LATE_FLAG)
    valid: list[tuple[Span, int]] = []
    for netdev, place, at, data, problem in readings:
        if data is None or len(data) != place.length:
            why = problem or f"{len(data or b'')} of {place.length} bytes came from {netdev}"
            found.failed[why] = found.failed.get(why, 0) + 1
        elif place == _PATHS:
            found.no_signal.append(Shown(at, bool(data[147 - 128])))
            found.no_lock.append(Shown(at, bool(data[148 - 128])))
            valid.append((at, data[132 - 128]))
            found.paths.append(ShownState(at, _path_names(data[:4])))
            for lane, code in enumerate((n for b in data[:4] for n in (b & 0x0F, b >> 4)), 1):
                state = DATA_PATHS.get(code, f"state {code}")
                found.lanes.setdefault(lane, []).append(ShownState(at, state))
        elif place == _SFF_8636:
            found.no_signal.append(Shown(at, bool(data[0] & 0x0F)))
            found.no_lock.append(Shown(at, bool(data[2] & 0x0F)))
        elif place == _SFF_8472:
            found.no_signal.append(Shown(at, bool(data[0] & 0x02)))
    used = 0
    for _, lanes in valid:
        used |= lanes
    if used:
        found.output = [Shown(at, lanes & used == used) for at, lanes in valid]
    return found


def _path_names(states: Iterable[int]) -> str:
    codes = {code for byte in states for code in (byte & 0x0F, byte >> 4)}
    used = codes - {1} or codes  # lanes that are not in use stay deactivated
    return ", ".join(DATA_PATHS.get(code, f"state {code}") for code in sorted(used))
