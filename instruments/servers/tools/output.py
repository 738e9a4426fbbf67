"""Common parts of the parsers: errors, printed numbers, JSON with repeated keys."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lightrig.testbeds.errors import LightrigError

_LONGEST = 200
_NUMBER = re.compile(r"[+-]?\d+(?:\.(\d+))?(?:[eE]([+-]?\d{1,3}))?", re.ASCII)
_WHOLE = re.compile(r"\d+", re.ASCII)
_DIGITS = 30
_LARGEST_EXPONENT = 100
_PREFIX = re.compile(
    r"(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?"  # Open MPI, --timestamp-output
    r"\[\d+,\d+\]<std(?:out|err)>: ?"  # Open MPI up to 4, --tag-output
    r"|\[[^\]\s]+@\d+,\d+\]<std(?:out|err)>: ?"  # Open MPI 5 (PRRTE): [prterun-host-1@1,0]
    r"|\[\d+\] "  # MPICH and Intel MPI, -prepend-rank
    r"|\[pod/[^\]\s]+\] (?:\d{4}-\d\d-\d\dT[\d:.]+Z )?"  # kubectl logs --prefix --timestamps
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z "  # kubectl logs --timestamps
    r"|\s*\d+: "  # srun --label
)
_MOST_PREFIXES = 2  # a launcher's, behind that of a container's log
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class ToolOutputError(LightrigError):
    """The output of a tool cannot be parsed with certainty.

    Attributes:
        tool: the tool, such as `ethtool -m`.
        expected: the expected content.
        found: the line found instead, shortened; empty if it must not be shown.
    """

    def __init__(self, tool: str, expected: str, found: object = "", *, where: str = "") -> None:
        self.tool = tool
        self.expected = expected
        self.found = _shortened(str(found))
        self.where = where
        lines = [f"{where or tool} printed something that cannot be read with certainty"]
        lines.append(f"  expected  {expected}")
        if self.found:
            lines.append(f"  found     {self.found}")
        super().__init__("\n".join(lines))

    def at(self, server: str, command: str, note: str = "") -> "ToolOutputError":
        """Return the same error with its server, its command (`ethtool -m ens1f0`) and a note."""
        error = type(self)(self.tool, self.expected, self.found, where=f"{server}: {command}")
        if note:
            error.args = (f"{error}\n  note      {note}",)
        error.subjects = (server,)
        return error


class ToolReportedError(ToolOutputError):
    """A tool reports in its output that it failed; `found` is its message."""

    def __init__(self, tool: str, expected: str, found: object = "", *, where: str = "") -> None:
        super().__init__(tool, expected, found, where=where)
        self.args = (f"{where or tool} did not succeed\n  printed   {self.found}",)


class Printed(NamedTuple):
    """A number as printed: the true one is within `value` ± `half`."""

    value: float
    half: float

    def agrees(self, second: "Printed", tolerance: float = 1e-9) -> bool:
        """Whether both can be the same number, with a relative `tolerance`."""
        slack = self.half + second.half + tolerance * max(abs(self.value), abs(second.value))
        return abs(self.value - second.value) <= slack

    def times(self, factor: float) -> "Printed":
        """Return it in another unit."""
        return Printed(self.value * factor, self.half * abs(factor))

    def over(self, second: "Printed") -> "Printed":
        """Return the quotient; `second` must exceed its rounding."""
        value = self.value / second.value
        least = second.value - second.half
        return Printed(value, (self.half + abs(value) * second.half) / least)


def number(text: str) -> Printed:
    """Return a decimal number and half a unit of its last digit; raises ValueError otherwise.

    Narrower than `float`, which takes `nan`, `1_000` and digits of any script.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > _DIGITS:
        raise ValueError(f"{text!r} is no number")
    decimals = len(match[1] or "")
    exponent = int(match[2] or 0)
    if abs(exponent) > _LARGEST_EXPONENT:
        raise ValueError(f"{text!r} is no number that is measured")
    return Printed(float(text), 0.5 * 10.0 ** (exponent - decimals))


def whole(text: str) -> int:
    """Return a count; raises ValueError otherwise."""
    if not _WHOLE.fullmatch(text) or len(text) > _DIGITS:
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def without_colours(text: str) -> str:
    """Return `text` without ANSI colour codes."""
    return _COLOUR.sub("", text)


def without_prefixes(line: str) -> str:
    """Return `line` without what launchers and container logs print before it."""
    for _ in range(_MOST_PREFIXES):
        line = _PREFIX.sub("", line, count=1) if _PREFIX.match(line) else line
    return line


def is_json(text: str) -> bool:
    """Whether `text` begins like a JSON list or object."""
    return text.lstrip()[:1] in ("[", "{")


class Repeated(dict[str, list[Any]]):
    """A JSON object whose keys may repeat: each key with all its values, in order."""


def _every_value(pairs: list[tuple[str, Any]]) -> Repeated:
    collected = Repeated()
    for key, value in pairs:
        collected.setdefault(key, []).append(value)
    return collected


def load_repeating(tool: str, text: str) -> Any:
    """Parse JSON whose keys may repeat: every object becomes a `Repeated`."""
    return _load(tool, text, _every_value)


def load(tool: str, text: str, *, ignored_repeats: frozenset[str] = frozenset()) -> Any:
    """Parse JSON in which no key may repeat, except those in `ignored_repeats`.

    json.loads would silently drop all values but the last.
    """

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        merged = dict(pairs)
        if len(merged) != len(pairs):
            for key in merged.keys() - ignored_repeats:
                if sum(key == second for second, _ in pairs) > 1:
                    raise ToolOutputError(tool, "each key once in a JSON object", key)
        return merged

    return _load(tool, text, no_key_twice)


def _load(tool: str, text: str, hook: Any) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=hook,
            parse_constant=_no_constant,
            parse_float=lambda digits: number(digits).value,
            parse_int=lambda digits: -whole(digits[1:]) if digits[0] == "-" else whole(digits),
        )
    except (ValueError, RecursionError) as error:
        # Without the cause: it contains the whole document, which may have secrets.
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise ToolOutputError(tool, f"JSON, but {reason}") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def field(tool: str, mapping: object, key: str, kind: type | tuple[type, ...]) -> Any:
    """Return `mapping[key]`, which must be present and of `kind`; a bool is no number."""
    if not isinstance(mapping, Mapping) or key not in mapping:
        raise ToolOutputError(tool, f"a field {key!r}", _keys(mapping))
    value = mapping[key]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(each.__name__ for each in kinds)
        raise ToolOutputError(tool, f"{key!r} to be {names}", value)
    return value


def optional(tool: str, mapping: object, key: str, kind: type | tuple[type, ...]) -> Any:
    """Like `field` for a field that may be missing or null: None then."""
    if isinstance(mapping, Mapping) and mapping.get(key) is None:
        return None
    return field(tool, mapping, key, kind)


def _keys(mapping: object) -> str:
    return ", ".join(map(str, mapping)) if isinstance(mapping, Mapping) else type(mapping).__name__


def _shortened(text: str) -> str:
    line = text.strip().replace("\n", "\\n")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
