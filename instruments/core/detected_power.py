"""Readings of optical detectors: conversion from watt to dBm, and over-range errors.

Detectors are read in watt: noise makes dark readings negative, which have no value in dBm, and
instruments answer those with errors or with placeholders.
"""

import math

from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.core.scpi_instrument import ScpiInstrument

NO_VALUE = 1e20
"""Instruments report more than this, in any unit, where they have no value."""


class OverRangeError(InstrumentError):
    """More light than the detector, or the range it is set to, can measure."""


def dbm(watt: float, floor: float) -> float:
    """Convert `watt` to dBm; return `floor` for everything below it, negative noise included.

    A reading at the floor is an upper bound, not a value.
    """
    least = 1e-3 * 10 ** (floor / 10)
    return floor if watt <= least else 10 * math.log10(watt / 1e-3)


def over_range(meter: ScpiInstrument, command: str, channel: int, advice: str) -> InstrumentError:
    """Return the error of a channel with too much light, and empty the error queue."""
    meter.read_error_queue()
    return meter.failed(
        OverRangeError,
        f"has more light on channel {channel} than its range takes",
        command,
        ("try", advice),
    )
