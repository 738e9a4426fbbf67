"""Power as Keysight's lightwave instruments write it."""

import math
import struct
from collections.abc import Sequence

from instruments.simulated.scpi_peer import ErrorQueue, block
from instruments.simulated.scpi_values import keysight_float

INVALID = 3.402823e38
"""What is shown for a power that cannot be shown (a guess; anything above 1e20 counts as such)."""

NO_LOGARITHM = (-261, "Math error in expression (StatUnitCalculationError)")


def worded_power(watt: float, errors: ErrorQueue, *, in_watt: bool) -> str:
    """A reading in W or in dBm; what has no logarithm goes to the error queue."""
    if in_watt or watt >= INVALID:
        return keysight_float(watt)
    if watt <= 0:
        errors.put(*NO_LOGARITHM)
        return keysight_float(INVALID)
    return keysight_float(10 * math.log10(watt * 1e3))


def power_block(watts: Sequence[float]) -> bytes:
    """Readings in W as 4-byte floats in Intel's byte order."""
    return block(struct.pack(f"<{len(watts)}f", *watts))


def slot_block(slots: Sequence[int]) -> bytes:
    """Slot and channel of each reading as 2-byte numbers; the channel is always 1."""
    return block(b"".join(struct.pack("<HH", slot, 1) for slot in slots))
