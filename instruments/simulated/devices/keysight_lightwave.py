"""Conventions of Keysight's lightwave instruments: number format, errors, power readings.

Source: N77xx Programming Guide, edition 7.
"""

import math
import struct
from collections.abc import Sequence

from lightrig.instruments.simulated.protocols.scpi_device import ErrorQueue, ScpiDevice, block
from lightrig.instruments.simulated.protocols.scpi_values import (
    OUT_OF_RANGE,
    ScpiError,
    ScpiNode,
    boolean,
)

INVALID = 3.402823e38
"""Reading for a power that cannot be shown (a guess; anything above 1e20 counts as such)."""

NO_LOGARITHM = (-261, "Math error in expression (StatUnitCalculationError)")
NO_SUCH_SLOT = (-303, "Module slot empty or slot / channel invalid")
BUSY = (-284, "Function currently running (StatModuleBusy)")
CONFLICT = (-221, "Settings conflict (StatParmInconsistent)")
FAILED = (-200, "Execution error (StatExecError)")


def keysight_float(value: float) -> str:
    """Return `value` in Keysight's format: `+1.33555600E-006`."""
    mantissa, _, exponent = f"{value:+.8E}".partition("E")
    return f"{mantissa}E{exponent[0]}{exponent[1:]:0>3}"


class KeysightNode(ScpiNode):
    """An instrument or a channel with Keysight's formats."""

    def format_number(self, value: float) -> str:
        """Return `value` in Keysight's format."""
        return keysight_float(value)

    def out_of_range(self, *, too_large: bool) -> ScpiError:
        """Return the error with Keysight's status word."""
        code, text = OUT_OF_RANGE
        return ScpiError(code, f"{text} (StatParmToo{'Large' if too_large else 'Small'})")


class KeysightDevice(KeysightNode, ScpiDevice):
    """Base of simulated Keysight instruments."""


def parse_power_unit(text: str) -> bool:
    """Return whether `W`, `WATT` or 1 (not `DBM` or 0) is stated; raise `ScpiError`."""
    word = text.upper()
    return word in {"W", "WATT"} or (word != "DBM" and boolean(word))


def format_power(watt: float, errors: ErrorQueue, *, in_watt: bool) -> str:
    """Return a reading in W or in dBm; a power without logarithm goes to the error queue."""
    if in_watt or watt >= INVALID:
        return keysight_float(watt)
    if watt <= 0:
        errors.put(*NO_LOGARITHM)
        return keysight_float(INVALID)
    return keysight_float(10 * math.log10(watt * 1e3))


def power_block(watts: Sequence[float]) -> bytes:
    """Return readings in W as 4-byte floats in Intel's byte order."""
    return block(struct.pack(f"<{len(watts)}f", *watts))


def slot_block(slots: Sequence[int]) -> bytes:
    """Return slot and channel of each reading as 2-byte numbers; the channel is always 1."""
    return block(b"".join(struct.pack("<HH", slot, 1) for slot in slots))
