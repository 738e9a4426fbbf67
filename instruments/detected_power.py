"""What a detector reported in watt, as power in dBm.

Detectors report in watt here, since the logarithm of what noise makes negative is undefined and
instruments answer that with errors or with numbers that are none.
"""

import math

from instruments.errors import InstrumentError
from instruments.scpi_instrument import ScpiInstrument

NO_VALUE = 1e20
"""Instruments answer more than this, in whatever unit, where they have no value."""


class OverRangeError(InstrumentError):
    """More light than the detector, or the range it is set to, can measure."""


def dbm(watt: float, floor: float) -> float:
    """`watt` in dBm; `floor` for all that is less, and for what noise makes negative.

    A reading at the floor says "no more than this", never how much.
    """
    least = 1e-3 * 10 ** (floor / 10)
    return floor if watt <= least else 10 * math.log10(watt / 1e-3)


def over_range(scpi: ScpiInstrument, command: str, channel: int, advice: str) -> InstrumentError:
    """The error of a channel whose light is too strong; empties the error queue."""
    scpi.objections()
    return scpi.failed(
        OverRangeError,
        f"has more light on channel {channel} than its range takes",
        command,
        ("try", advice),
    )
