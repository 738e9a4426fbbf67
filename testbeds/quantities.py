"""Values with units: text such as "70 ms" in a file, plain numbers in the program.

Time is integer nanoseconds, rates are integer bit/s, levels are floats in dB or dBm,
electrical power is a float in W, temperatures are floats in °C, wavelengths floats in nm, and
shares floats from 0 to 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, NewType

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from lightrig.testbeds.errors import LightrigError

Db = NewType("Db", float)
Dbm = NewType("Dbm", float)

_NUMBER = r"[+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?"

_MICRO = ("\N{MICRO SIGN}s", "\N{GREEK SMALL LETTER MU}s")
_TIME = {
    "ns": Decimal(1),
    "us": Decimal(10**3),
    **dict.fromkeys(_MICRO, Decimal(10**3)),
    "ms": Decimal(10**6),
    "s": Decimal(10**9),
    "min": Decimal(60 * 10**9),
    "h": Decimal(3600 * 10**9),
}
_PREFIX = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE = {
    prefix + unit: Decimal(factor)
    for prefix, factor in _PREFIX.items()
    for unit in ("bit/s", "b/s", "bps", "")
    if prefix + unit
}
_WATT = {"W": Decimal(1), "mW": Decimal(1) / 1000, "kW": Decimal(1000)}
_LENGTH = {
    "nm": Decimal(1),
    "um": Decimal(1000),
    "\N{MICRO SIGN}m": Decimal(1000),
    "\N{GREEK SMALL LETTER MU}m": Decimal(1000),
}
SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1.0, "ns"), (1e3, _MICRO[0]), (1e6, "ms"), (1e9, "s")),
    "bit/s": ((1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s"), (1e12, "Tbit/s")),
    "W": ((1e-3, "mW"), (1.0, "W"), (1e3, "kW")),
    "share": ((0.01, "%"),),
}
"""Units that people read: the size of each in the program's unit, and its name; least first."""


class QuantityError(LightrigError, ValueError):
    """A text is not the quantity that was expected."""


def _describe(found: object) -> str:
    if isinstance(found, bool):
        return f"found {str(found).lower()}"
    if isinstance(found, int | float):
        return f"found the number {found} without a unit"
    if isinstance(found, str):
        return f"found {found!r}"
    return f"found a {'list' if isinstance(found, list) else 'mapping'}"


def _parse(found: object, what: str, units: Mapping[str, Decimal], example: str) -> Decimal:
    match = re.fullmatch(rf"\s*({_NUMBER})\s*(\S*)\s*", found) if isinstance(found, str) else None
    if match is None or match[2] not in units:
        raise QuantityError(f"{_describe(found)}, expected {what}, e.g. {example!r}")
    return Decimal(match[1]) * units[match[2]]


def parse_duration(text: str) -> int:
    """Return the nanoseconds in e.g. "70 ms", "75 µs", "0.354 ms", "3 s", "10 min".

    A sign is allowed, since an offset between clocks has one.
    """
    return round(_parse(text, "a duration with its unit (ns, us, ms, s, min, h)", _TIME, "70 ms"))


def parse_db(text: str) -> Db:
    """Return the decibels in e.g. "3 dB": a ratio, such as an insertion loss."""
    return Db(float(_parse(text, "a ratio in dB", {"dB": Decimal(1)}, "3 dB")))


def parse_dbm(text: str) -> Dbm:
    """Return the dBm in e.g. "-4.3 dBm": a power."""
    return Dbm(float(_parse(text, "a power in dBm", {"dBm": Decimal(1)}, "-4.3 dBm")))


def parse_watt(text: str) -> float:
    """Return the watts in e.g. "3.2 W" or "620 mW": electrical power."""
    return float(_parse(text, "an electrical power in W", _WATT, "3.2 W"))


def parse_celsius(text: str) -> float:
    """Return the degrees Celsius in e.g. "45 °C" or "-5 C": a temperature."""
    units = {"°C": Decimal(1), "C": Decimal(1)}
    return float(_parse(text, "a temperature in °C", units, "45 °C"))


def parse_rate(text: str) -> int:
    """Return the bit/s in e.g. "100G", "200 Mbit/s", "25 Gb/s"."""
    rate = _parse(text, "a rate in bit/s", _RATE, "100G")
    if rate <= 0:
        raise QuantityError(f"found {text!r}, expected a rate above zero, e.g. '100G'")
    return round(rate)


def parse_share(text: str) -> float:
    """Return the part of one in a percentage: "95 %" is 0.95."""
    percent = _parse(text, "a percentage", {"%": Decimal(1)}, "95 %")
    if not 0 <= percent <= 100:
        raise QuantityError(f"found {text!r}, expected a percentage from 0 to 100, e.g. '95 %'")
    return float(percent / 100)


def parse_wavelength(text: str) -> float:
    """Return the nanometres in e.g. "1310 nm" or "1.31 µm"."""
    length = _parse(text, "a wavelength", _LENGTH, "1310 nm")
    if length <= 0:
        raise QuantityError(f"found {text!r}, expected a wavelength above zero, e.g. '1310 nm'")
    return float(length)


def _three_digits(value: float, unit: str) -> str:
    """Write `value` with three significant digits in the largest scale that keeps it above 1."""
    number, name = "", ""
    for size, scale in reversed(SCALES[unit]):
        # Three digits are cut first, so that 999.9 µs is 1 ms and never 1000 µs.
        number, name = f"{value / size:.3g}", scale
        if abs(float(number)) >= 1:
            break
    return f"{Decimal(number):f} {name}" if "e" in number else f"{number} {name}"


def format_duration(ns: float) -> str:
    """Write nanoseconds for a person, three significant digits: "41.4 ms", "75 µs", "3.05 s"."""
    return _three_digits(ns, "ns")


def format_rate(bits_per_s: float) -> str:
    """Write bit/s for a person, three significant digits: "100 Gbit/s"."""
    return _three_digits(bits_per_s, "bit/s")


def format_db(ratio: float) -> str:
    """Write decibels for a person: "1.24 dB"."""
    return f"{round(ratio, 2) + 0.0:g} dB"  # without the sign of a zero


def format_dbm(power: float) -> str:
    """Write a power in dBm for a person: "-4.3 dBm"."""
    return f"{round(power, 2) + 0.0:g} dBm"


def format_watt(power: float) -> str:
    """Write an electrical power for a person, three significant digits: "3.2 W", "620 mW"."""
    return _three_digits(power, "W")


def format_celsius(celsius: float) -> str:
    """Write a temperature in degrees Celsius for a person: "45 °C"."""
    return f"{round(celsius, 2):g} °C"


def format_wavelength(nm: float) -> str:
    """Write a wavelength in nanometres for a person: "1310 nm"."""
    return f"{nm:g} nm"


def format_share(share: float) -> str:
    """Write a part of one as a percentage: 0.95 is "95 %"."""
    return f"{share * 100:.6g} %"


def _unsigned(text: str) -> int:
    ns = parse_duration(text)
    if ns < 0:
        raise QuantityError(f"found {text!r}, expected a duration of zero or more, e.g. '70 ms'")
    return ns


def _within(
    parse: Callable[[str], Any], write: Callable[[Any], str], least: float, most: float
) -> Callable[[str], Any]:
    """Return a reader of values that are possible in a lab; others are typing errors."""

    def read(text: str) -> Any:
        value = parse(text)
        if not least <= value <= most:
            raise QuantityError(f"found {text!r}, expected {write(least)} to {write(most)}")
        return value

    return read


class _FromText:
    """How a file writes a quantity: one annotation for pydantic in place of three, read faster."""

    def __init__(
        self,
        parse: Callable[[str], Any],
        write: Callable[[Any], str],
        pattern: str,
        *examples: str,
    ) -> None:
        self.parse = parse
        self.write = write
        self.schema = {"type": "string", "pattern": f"^{pattern}$", "examples": list(examples)}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.parse,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.write, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self.schema.copy()


_PLAIN = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?\s*"
_TIME_PATTERN = rf"{_PLAIN}({'|'.join(_TIME)})"

_duration = _FromText(_unsigned, format_duration, _TIME_PATTERN, "70 ms", "75 us", "3 s")
_limit = _FromText(
    _within(parse_duration, format_duration, 10**6, 3600 * 10**9),
    format_duration,
    _TIME_PATTERN,
    "500 ms",
    "30 s",
)
_offset = _FromText(parse_duration, format_duration, _TIME_PATTERN, "-2 ms", "0 s")
_decibels = _FromText(_within(parse_db, format_db, 0, 200), format_db, _PLAIN + "dB", "3 dB")
_power = _FromText(_within(parse_dbm, format_dbm, -100, 40), format_dbm, _PLAIN + "dBm", "-4.3 dBm")
_rate = _FromText(
    _within(parse_rate, format_rate, 10**6, 10**14),
    format_rate,
    _PLAIN + r"([kMGT]|[kMGT]?(bit/s|b/s|bps))",
    "100G",
    "200 Mbit/s",
)
_share = _FromText(parse_share, format_share, _PLAIN + "%", "95 %")
_celsius = _FromText(parse_celsius, format_celsius, _PLAIN + "°?C", "45 °C")
_length = _FromText(
    _within(parse_wavelength, format_wavelength, 400, 2500),
    format_wavelength,
    rf"{_PLAIN}({'|'.join(_LENGTH)})",
    "1310 nm",
)

Duration = Annotated[int, _duration]
"""A duration of zero or more, in ns."""
TimeLimit = Annotated[int, _limit]
"""A time limit of 1 ms to 1 h, in ns."""
Offset = Annotated[int, _offset]
"""A duration with a sign, in ns."""
Decibels = Annotated[float, _decibels]
"""A loss of zero or more, in dB."""
PowerLevel = Annotated[Dbm, _power]
"""A power, in dBm."""
Celsius = Annotated[float, _celsius]
"""A temperature, in °C."""
Rate = Annotated[int, _rate]
"""A rate, in bit/s."""
Share = Annotated[float, _share]
"""A part of one."""
Wavelength = Annotated[float, _length]
"""A wavelength, in nm."""
