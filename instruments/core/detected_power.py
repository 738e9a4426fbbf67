"""Readings of optical detectors: conversion from watt to dBm, and readings that are no value.

Detectors are read in watt: noise makes dark readings negative, which have no value in dBm, and
instruments answer those with errors or with placeholders. SCPI 1999, volume 1, 7.2.1.4 and 7.2.1.5,
has three placeholders: 9.9E+37 for infinity, -9.9E+37 for negative infinity, 9.91E+37 for what is
not a number. Thorlabs' command reference says of both infinities "signal out of measurement range".
"""

import math

from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.core.scpi_instrument import ScpiInstrument

NO_VALUE = 1e20
"""Instruments report more than this, in any unit, where they have no value."""


_NOT_A_NUMBER = 9.91e37
_CLOSE = 4e-4  # 9.9E37 and 9.91E37 differ by 1e-3, also as 4-byte floats


class OverRangeError(InstrumentError):
    """More light than the detector, or the range it is set to, can measure."""


class UnderRangeError(InstrumentError):
    """Less light than the range that the detector is set to can measure."""


class NoReadingError(InstrumentError):
    """The instrument has measured nothing: its reply is the one for what is not a number."""


def missing_value(watt: float) -> type[InstrumentError] | None:
    """Return the error of a reading that is no value; None for a value."""
    if math.isnan(watt) or math.isclose(watt, _NOT_A_NUMBER, rel_tol=_CLOSE):
        return NoReadingError
    if abs(watt) <= NO_VALUE:
        return None
    return OverRangeError if watt > 0 else UnderRangeError


def dbm(watt: float, floor: float) -> float:
    """Convert `watt` to dBm; return `floor` for everything below it, negative noise included.

    A reading at the floor is an upper bound, not a value.
    """
    least = 1e-3 * 10 ** (floor / 10)
    return floor if watt <= least else 10 * math.log10(watt / 1e-3)


def over_range(meter: ScpiInstrument, command: str, channel: int, advice: str) -> InstrumentError:
    """Return the error of a channel with too much light, and empty the error queue."""
    return no_value(meter, command, channel, math.inf, advice)


def no_value(
    meter: ScpiInstrument, command: str, channel: int, watt: float, advice: str
) -> InstrumentError:
    """Return the error of a channel whose reading is no value, and empty the error queue.

    advice: what to try where there is too much light.
    """
    meter.read_error_queue()
    kind = missing_value(watt) or OverRangeError
    problem, remedy = {
        NoReadingError: (
            f"has no reading of channel {channel}: it answers that it is not a number",
            "is its sensor plugged in, is another program using it? then read again",
        ),
        UnderRangeError: (
            f"has less light on channel {channel} than its range shows",
            "is there light? prepare() sets the range to automatic",
        ),
    }.get(kind, (f"has more light on channel {channel} than its range takes", advice))
    return meter.failed(kind, problem, command, ("try", remedy))
