"""Parameters of SCPI instruments: declared once, set and queried by their headers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")

METRES = {"": 1.0, "M": 1.0, "MM": 1e-3, "UM": 1e-6, "NM": 1e-9, "PM": 1e-12}
SECONDS = {"": 1.0, "S": 1.0, "MS": 1e-3, "US": 1e-6, "NS": 1e-9}
DECIBELS = {"": 1.0, "DB": 1.0, "MDB": 1e-3}
DBM = {"": 1.0, "DBM": 1.0, "MDBM": 1e-3}
WATTS = {"W": 1.0, "WATT": 1.0, "MW": 1e-3, "UW": 1e-6, "NW": 1e-9, "PW": 1e-12}
PLAIN = {"": 1.0}

OUT_OF_RANGE = (-222, "Data out of range")
ILLEGAL_VALUE = (-224, "Illegal parameter value")

_ROUNDING = 1e-9
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?)\s*([A-Z/]*)")


class ScpiError(Exception):
    """A command that the instrument refuses: an entry for its error queue."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


def number(text: str) -> float:
    """Return a decimal argument; raise `ScpiError`."""
    try:
        return float(text)
    except ValueError as error:
        raise ScpiError(-121, "Invalid character in number") from error


def number_and_unit(text: str) -> tuple[float, str]:
    """Return a number and its unit in upper case; raise `ScpiError`."""
    match = _QUANTITY.fullmatch(text.strip().upper())
    if match is None:
        raise ScpiError(-121, "Invalid character in number")
    return float(match[1]), match[2]


def boolean(text: str) -> bool:
    """Parse `0`, `1`, with a sign or without, `OFF` or `ON`; raise `ScpiError`."""
    match text.strip().upper():
        case "1" | "+1" | "ON":
            return True
        case "0" | "+0" | "OFF":
            return False
    raise ScpiError(*ILLEGAL_VALUE)


class ScpiNode:
    """Owner of parameters: an instrument, or one of its channels."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def reset_parameters(self) -> None:
        """Set every parameter to its default."""
        self.values.clear()

    def parameter_changed(self, parameter: "Parameter[Any]") -> None:
        """Act on a parameter that a client has set."""

    def format_number(self, value: float) -> str:
        """Return `value` in the instrument's number format."""
        return f"{value:.8E}"

    def out_of_range(self, *, too_large: bool) -> ScpiError:
        """Return the instrument's error for a number outside its limits."""
        return ScpiError(*OUT_OF_RANGE)


class Parameter(Generic[T]):
    """A value that clients set with a pattern and query with the same pattern and `?`.

    On an instance of its owner it reads and writes like an attribute.

    Attributes:
        patterns: headers of the manual, aliases included.
        default: value after switching on and after a reset.
    """

    def __init__(self, *patterns: str, default: T) -> None:
        self.patterns = patterns
        self.default = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: ScpiNode, owner: type) -> T: ...

    def __get__(self, instance: ScpiNode | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.values.get(self.name, self.default)
        return value

    def __set__(self, instance: ScpiNode, value: T) -> None:
        instance.values[self.name] = value

    def write(self, node: ScpiNode, arguments: tuple[str, ...]) -> None:
        """Set the value that the only argument states; raise `ScpiError`."""
        self.__set__(node, self.parse(node, arguments[0]))
        node.parameter_changed(self)

    def query(self, node: ScpiNode, arguments: tuple[str, ...] = ()) -> str:
        """Return the reply to a query."""
        return self.format(node, self.__get__(node, type(node)))

    def parse(self, node: ScpiNode, text: str) -> T:
        """Return the value that `text` states; raise `ScpiError`."""
        raise NotImplementedError

    def format(self, node: ScpiNode, value: T) -> str:
        """Return `value` as the instrument writes it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Range:
    """Limits of a number in its base unit, and the units that may follow it."""

    minimum: float
    maximum: float
    default: float
    units: Mapping[str, float]

    def named(self, text: str) -> float | None:
        """Return the value of `MIN`, `MAX` or `DEF`, short or long; None for anything else."""
        match text.strip().upper():
            case "MIN" | "MINIMUM":
                return self.minimum
            case "MAX" | "MAXIMUM":
                return self.maximum
            case "DEF" | "DEFAULT":
                return self.default
        return None

    def parse(self, node: ScpiNode, text: str) -> float:
        """Return the number that `text` states, in the base unit; raise `ScpiError`."""
        value = self.named(text)
        if value is None:
            value, unit = number_and_unit(text)
            if unit not in self.units:
                raise ScpiError(-131, "Invalid suffix")
            value *= self.units[unit]
        # Limits were typed in another unit than the value: 1640 nm is not exactly 1640e-9 m.
        if value > self.maximum + _ROUNDING * abs(self.maximum):
            raise node.out_of_range(too_large=True)
        if value < self.minimum - _ROUNDING * abs(self.minimum):
            raise node.out_of_range(too_large=False)
        return value

    def query(self, node: ScpiNode, value: float, arguments: tuple[str, ...]) -> str:
        """Return `value`, or the limit that the query names."""
        limit = self.named(arguments[0]) if arguments else None
        return node.format_number(value if limit is None else limit)


class Number(Parameter[float]):
    """A number with limits; queries may name `MIN`, `MAX` or `DEF`."""

    def __init__(
        self,
        *patterns: str,
        default: float,
        minimum: float,
        maximum: float,
        units: Mapping[str, float] = PLAIN,
    ) -> None:
        super().__init__(*patterns, default=default)
        self.range = Range(minimum, maximum, default, units)

    def parse(self, node: ScpiNode, text: str) -> float:
        """Return the number that `text` states, in the base unit; raise `ScpiError`."""
        return self.range.parse(node, text)

    def query(self, node: ScpiNode, arguments: tuple[str, ...] = ()) -> str:
        """Return the value, or the limit that the query names."""
        return self.range.query(node, self.__get__(node, type(node)), arguments)


class Flag(Parameter[bool]):
    """A parameter that is on or off."""

    def parse(self, node: ScpiNode, text: str) -> bool:
        """Parse `0`, `1`, `OFF` or `ON`; raise `ScpiError`."""
        return boolean(text)

    def format(self, node: ScpiNode, value: bool) -> str:
        """Return `1` or `0`."""
        return str(int(value))


class Choice(Parameter[str]):
    """One of several words, stored in its short form.

    Args:
        names: keywords that can be set, as manuals write them: capitals are the short form.
    """

    def __init__(self, *patterns: str, default: str, names: tuple[str, ...]) -> None:
        super().__init__(*patterns, default=default)
        self.names = names

    def parse(self, node: ScpiNode, text: str) -> str:
        """Return the short form of a word, given short or in full; raise `ScpiError`."""
        wanted = text.strip().upper()
        for word in self.names:
            short = "".join(letter for letter in word if not letter.islower())
            if wanted in {short, word.upper()}:
                return short
        raise ScpiError(*ILLEGAL_VALUE)

    def format(self, node: ScpiNode, value: str) -> str:
        """Return the short form."""
        return value
