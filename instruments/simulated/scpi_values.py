"""Values as instruments write and read them: quantities with units, settings with limits."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from instruments.simulated.scpi_peer import (
    ILLEGAL_VALUE,
    OUT_OF_RANGE,
    Later,
    ScpiCommands,
    ScpiError,
    one,
)

METRES = {"": 1.0, "M": 1.0, "MM": 1e-3, "UM": 1e-6, "NM": 1e-9, "PM": 1e-12}
SECONDS = {"": 1.0, "S": 1.0, "MS": 1e-3, "US": 1e-6, "NS": 1e-9}
DECIBELS = {"": 1.0, "DB": 1.0, "MDB": 1e-3}
DBM = {"": 1.0, "DBM": 1.0, "MDBM": 1e-3}
WATTS = {"W": 1.0, "WATT": 1.0, "MW": 1e-3, "UW": 1e-6, "NW": 1e-9, "PW": 1e-12}

_ROUNDING = 1e-9
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?)\s*([A-Z/]*)")


def quantity(text: str, units: Mapping[str, float]) -> float:
    """A number with one of `units`, in the base unit; raises `ScpiError`."""
    value, unit = number_and_unit(text)
    if unit not in units:
        raise ScpiError(-131, "Invalid suffix")
    return value * units[unit]


def number_and_unit(text: str) -> tuple[float, str]:
    """A number and the unit behind it, in upper case; raises `ScpiError`."""
    match = _QUANTITY.fullmatch(text.strip().upper())
    if match is None:
        raise ScpiError(-121, "Invalid character in number")
    return float(match[1]), match[2]


def boolean(text: str) -> bool:
    """`0`, `1`, `OFF` or `ON`; raises `ScpiError`."""
    match text.strip().upper():
        case "1" | "ON":
            return True
        case "0" | "OFF":
            return False
    raise ScpiError(*ILLEGAL_VALUE)


def keysight_float(value: float) -> str:
    """`value` as Keysight's lightwave instruments write it: `+1.33555600E-006`."""
    mantissa, _, exponent = f"{value:+.8E}".partition("E")
    return f"{mantissa}E{exponent[0]}{exponent[1:]:0>3}"


@dataclass
class Setting:
    """A number that a client may set and ask for.

    Attributes:
        value: what is set, in the base unit.
        least: the least that can be set.
        greatest: the greatest that can be set.
        units: what may stand behind the number.
        default: what `DEF` stands for, and what a reset sets.
        keysight: whether errors and numbers are worded as Keysight's instruments do.
    """

    value: float
    least: float
    greatest: float
    units: Mapping[str, float]
    default: float = float("nan")
    keysight: bool = True

    def __post_init__(self) -> None:
        if self.default != self.default:
            self.default = self.value

    def reset(self) -> None:
        """Set the default."""
        self.value = self.default

    def set(self, text: str) -> None:
        """Set what `text` says; raises `ScpiError`."""
        value = self._named(text)
        if value is None:
            value = quantity(text, self.units)
        if value > self.greatest + _ROUNDING * abs(self.greatest):
            raise self._out_of_range("StatParmTooLarge")
        if value < self.least - _ROUNDING * abs(self.least):
            raise self._out_of_range("StatParmTooSmall")
        self.value = value

    def answer(self, arguments: tuple[str, ...] = ()) -> str:
        """What is set, or the limit that the query names."""
        named = self._named(arguments[0]) if arguments else None
        value = self.value if named is None else named
        return keysight_float(value) if self.keysight else f"{value:.8E}"

    def offer(self, commands: ScpiCommands, pattern: str) -> None:
        """Let clients set it, and ask for it, by `pattern`."""
        commands.add(pattern, lambda request: self.set(one(request)))
        commands.add(f"{pattern}?", lambda request: self.answer(request.arguments))

    def _named(self, text: str) -> float | None:
        """What `MIN`, `MAX` or `DEF` stands for, in short or in full; None for anything else."""
        match text.strip().upper():
            case "MIN" | "MINIMUM":
                return self.least
            case "MAX" | "MAXIMUM":
                return self.greatest
            case "DEF" | "DEFAULT":
                return self.default
        return None

    def _out_of_range(self, word: str) -> ScpiError:
        code, text = OUT_OF_RANGE
        return ScpiError(code, f"{text} ({word})" if self.keysight else text)


@dataclass
class Choice:
    """A word that a client may set and ask for.

    Attributes:
        value: the short form of what is set.
        words: all that can be set, as manuals write them: capitals are the short form.
    """

    value: str
    words: tuple[str, ...]

    def set(self, text: str) -> None:
        """Set what `text` says, in short or in full; raises `ScpiError`."""
        wanted = text.strip().upper()
        for word in self.words:
            short = "".join(letter for letter in word if not letter.islower())
            if wanted in {short, word.upper()}:
                self.value = short
                return
        raise ScpiError(*ILLEGAL_VALUE)

    def offer(self, commands: ScpiCommands, pattern: str) -> None:
        """Let clients set it, and ask for it, by `pattern`."""
        commands.add(pattern, lambda request: self.set(one(request)))
        commands.add(f"{pattern}?", lambda _: self.value)


def when_done(after: int, answer: Callable[[], str | bytes]) -> Later:
    """An answer that is known only when its time has come, in `after` ns."""
    text = bytearray()

    def then() -> None:
        known = answer()
        text.extend(known.encode() if isinstance(known, str) else known)

    return Later(after, cast(bytes, text), then)
