"""Values with their units, for people: in text, and along an axis."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lightrig.testbeds import (
    format_db,
    format_dbm,
    format_duration,
    format_rate,
    format_share,
    format_watt,
)
from lightrig.testbeds.intervals import ENDLESS, NO_BOUND
from lightrig.testbeds.quantities import SCALES

_LEAST_DECIMAL = 1e-3
"""Smaller ratios have an exponent, so that those of errors are compared at a glance."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number as text, and the context that it needs to be understood.

    Attributes:
        text: the number with its unit.
        context: sample count, interval, "simulated", ...; empty parts are left out.
    """

    text: str
    context: tuple[str, ...]


def plain(value: float) -> str:
    """Write a number with three digits: "0.0123", "1.2e-9"."""
    return _without_zeros(f"{value:.3g}")


def _ratio(value: float) -> str:
    """Write a number without unit with three digits: "0.0123", "2.55e-4", "1.2e-9"."""
    if not 0 < abs(value) < _LEAST_DECIMAL:
        return plain(value)
    digits, _, power = f"{value:.2e}".partition("e")
    return _without_zeros(f"{digits.rstrip('0').rstrip('.')}e{power}")


def _without_zeros(written: str) -> str:
    return re.sub(r"e([+-])0*", lambda m: "e" + m[1].strip("+"), written)


def _measured_share(value: float) -> str:
    """A share with as many digits as one is ever known to."""
    return format_share(float(f"{value:.4g}"))


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ns": format_duration,
    "dB": format_db,
    "dBm": format_dbm,
    "bit/s": format_rate,
    "W": format_watt,
    "share": _measured_share,
    "1": _ratio,
    "": plain,
}
_STEPS: Mapping[str, tuple[tuple[float, str], ...]] = {
    **{unit: scales[::-1] for unit, scales in SCALES.items()},
    "1": ((1.0, ""),),
}


def shown(value: float, unit: str) -> str:
    """Write a value in `unit` with its unit, three digits; "no bound" where there is none.

    One with an interval is written by `interval`, a bound by `at_most` and `at_least`.
    """
    if not abs(value) < ENDLESS:
        return NO_BOUND
    write = _FORMATS.get(unit)
    return write(value) if write is not None else f"{plain(value)} {unit}"


def scale(unit: str, greatest: float) -> tuple[float, str]:
    """The factor and the name of the unit that suits an axis up to `greatest`, in `unit`."""
    steps = _STEPS.get(unit, ((1.0, unit),))
    return next((step for step in steps if greatest >= step[0]), steps[-1])


def round_steps(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from `low` to `high`, evenly spaced."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Rounded, so that 3 * 0.1 is written 0.3.
    return [float(f"{count * step:.12g}") for count in range(first, last + 1)]
