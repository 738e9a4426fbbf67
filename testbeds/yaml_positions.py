"""YAML as plain data with the position of each value and key.

Files are parsed by libyaml, through PyYAML: a parser in Python takes 27 times as long. What libyaml
refuses, ruamel.yaml reads once more: its errors say more, and it knows YAML 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from lightrig.testbeds.errors import Problem, TestbedError
from lightrig.testbeds.regular_files import read_regular

Keys = tuple[str | int, ...]
"""Path to a value: keys of mappings and indices of lists, from the top."""

Node: TypeAlias = Any
"""A node of PyYAML or of ruamel.yaml: both have its `id`, `tag`, `value` and `start_mark`."""

MOST_DIGITS = 40
"""Largest number of digits of a whole number; no quantity of a testbed has more."""

_BARE_DASH = re.compile(r"^( *)-(?=[A-Za-z_\"'\[])(.*?) *(?:#.*)?$", re.MULTILINE)
"""A list item whose dash has no space after it: its indent and its text."""

_UNUSUAL = re.compile(r"^%|^ *-[^- \n]|[\t\r\x85\u2028\u2029\ufeff]", re.MULTILINE)
"""Constructs that libyaml and ruamel.yaml read differently: directives, tabs, bare dashes."""

MOST_NESTED = 200
"""Largest depth of brackets; the parser's time grows with the square of it."""

MOST_VALUES = 100_000
"""Largest number of values of a file with aliases expanded."""

_MOST_NODES = 2 * MOST_VALUES
"""Each value of a mapping has a key."""

MOST_FILE_BYTES = 1 << 22
_MOST_UNUSUAL = 1 << 17
"""Characters of what the parser in Python reads within seconds."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a value; both count from 1.

    `text` is the column where the text of a scalar starts, after an opening quote.
    """

    line: int
    column: int
    text: int


@dataclass(frozen=True, slots=True)
class Located:
    """A YAML file as plain data, with the places of its values and keys."""

    file: str
    data: Any
    values: Mapping[Keys, Position]
    keys: Mapping[Keys, Position]
    problems: tuple[Problem, ...] = ()

    def place(self, keys: Keys, *, of_key: bool = False) -> Position:
        """Return where the value at `keys` stands, or its key, or the nearest thing around it."""
        for end in range(len(keys), 0, -1):
            near = keys[:end]
            if of_key and near in self.keys:
                return self.keys[near]
            if near in self.values:
                return self.values[near]
        return self.values.get((), Position(1, 1, 1))


def read(path: Path, content: bytes | None = None) -> Located:
    """Read a YAML file, or `content` in its place; duplicate keys become `Located.problems`.

    Raises `TestbedError` where nothing can be read: no file, no text, no YAML, nothing in it.
    """
    file = str(path)
    try:
        content = read_regular(path, MOST_FILE_BYTES) if content is None else content
        if len(content) > MOST_FILE_BYTES:
            raise OSError(0, f"is longer than {MOST_FILE_BYTES >> 20} MiB")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise TestbedError([Problem(file, 1, 1, f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        message = f"found the byte 0x{error.object[error.start]:02x}, expected text in UTF-8"
        raise TestbedError([Problem(file, line, column, message)]) from None
    too_deep = TestbedError([Problem(file, 1, 1, "is nested too deeply to be read")])
    if _nested(text) > MOST_NESTED:
        raise too_deep
    try:
        root = _compose(text, file)
    except RecursionError:
        raise too_deep from None
    if root is None:
        raise TestbedError([Problem(file, 1, 1, "is empty, expected e.g. 'name: mine'")])
    reader = _Reader(file)
    data = reader.plain(root, ())
    return Located(file, data, reader.values, reader.keys, tuple(reader.problems))


class _TooManyNodesError(Exception):
    """Raised while a file is parsed that has too many values."""


class _Resolver(yaml.resolver.BaseResolver):
    """Tags of plain scalars by YAML 1.2, as ruamel.yaml resolves them; PyYAML's are of YAML 1.1."""


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (
        "float",
        r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.[0-9_]+(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    (
        "int",
        r"[-+]?0b[0-1_]+|[-+]?0o?[0-7_]+|[-+]?[0-9_]+|[-+]?0x[0-9a-fA-F_]+",
        "-+0123456789",
    ),
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("value", r"=", "="),
):
    _whole = re.compile(rf"^(?:{_pattern})$")
    _Resolver.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, list(_first))


if yaml.__with_libyaml__:

    class _Parser(yaml.cyaml.CParser, _Resolver):
        def __init__(self, text: str) -> None:
            yaml.cyaml.CParser.__init__(self, text)
            _Resolver.__init__(self)
            self.finds_nothing = False
            self._nodes = 0

        def resolve(self, kind: type, value: str | None, implicit: Any) -> str:
            self._nodes += 1
            if self._nodes > _MOST_NODES:
                raise _TooManyNodesError
            # The two place it differently.
            self.finds_nothing |= value == ""
            tag: str = super().resolve(kind, value, implicit)
            return tag


def _compose(text: str, file: str) -> Node | None:
    """Return the root of the one document in `text`, None where there is none.

    Raises `TestbedError` with the place of an error.
    """
    if yaml.__with_libyaml__ and not _UNUSUAL.search(text):
        parser = _Parser(text)
        try:
            root = parser.get_single_node()
        except _TooManyNodesError:
            many = f"has more than {MOST_VALUES} values"
            raise TestbedError([Problem(file, 1, 1, many)]) from None
        except (yaml.YAMLError, ValueError):
            pass
        else:
            if not parser.finds_nothing:
                return root
    if len(text) > _MOST_UNUSUAL:
        kib = _MOST_UNUSUAL >> 10
        problem = f"is no plain YAML, of which more than {kib} KiB would take too long to read"
        raise TestbedError([Problem(file, 1, 1, problem)])
    from ruamel.yaml import YAML  # noqa: PLC0415 - loaded for a wrong file
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        return YAML(typ="rt").compose(text)
    except (YAMLError, ValueError, NotImplementedError) as error:
        # ruamel lets a few errors escape: ValueError from an impossible escape in a string,
        # NotImplementedError from a comment before a list item without a space after its dash.
        raise TestbedError([_syntax(file, text, error)]) from None


def _nested(text: str) -> int:
    """Return the greatest number of brackets that are open at one place, those in strings too."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _syntax(file: str, text: str, error: Exception) -> Problem:
    from ruamel.yaml.error import MarkedYAMLError  # noqa: PLC0415 - loaded for a wrong file
    from ruamel.yaml.reader import ReaderError  # noqa: PLC0415

    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    found = getattr(error, "problem", None) if isinstance(error, MarkedYAMLError) else None
    if isinstance(error, ReaderError):
        before = text[: error.position] if isinstance(error.position, int) else ""
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = "found a character that YAML does not allow"
    hint = ""
    if dash := _BARE_DASH.search(text):
        hint = f"; a list item needs a space after its dash, e.g. {'- ' + dash[2][:40]!r}"
        if isinstance(error, NotImplementedError):
            line, column = text.count("\n", 0, dash.start(2)) + 1, len(dash[1]) + 1
            found = f"found {'-' + dash[2][:40]!r}"
    elif found and "'{'" in found and "',' or '}'" in found:
        hint = '; text with { } inside braces needs quotes, e.g. netdev: "ens{n}"'
    return Problem(file, line, column, f"is not YAML: {found or 'it cannot be parsed'}{hint}")


@dataclass(slots=True)
class _Reader:
    file: str
    values: dict[Keys, Position] = field(default_factory=dict)
    keys: dict[Keys, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _open: list[int] = field(default_factory=list)

    def plain(self, node: Node, keys: Keys) -> Any:
        """Return the plain value of `node`, and note its place and those below it."""
        place = _place(node)
        self.values[keys] = place
        if len(self.values) > MOST_VALUES:
            raise TestbedError([self._problem(place, f"has more than {MOST_VALUES} values")])
        if node.id == "scalar":
            return self._scalar(node, place)
        if id(node) in self._open:
            raise TestbedError([self._problem(place, "this alias contains itself")])
        self._open.append(id(node))
        plain: Any
        if node.id == "sequence":
            plain = [self.plain(item, (*keys, i)) for i, item in enumerate(node.value)]
        else:
            plain = self._mapping(node, keys)
        self._open.pop()
        return plain

    def _mapping(self, node: Node, keys: Keys) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node)
            if key_node.id != "scalar":
                self.problems.append(self._problem(place, "a key must be plain text"))
                continue
            key = str(key_node.value)
            if key == "<<" and not getattr(key_node, "style", None):
                # Without what it merges, keys would be missing that are not.
                message = "merge keys (<<) are of YAML 1.1 and not used here: write the keys out"
                raise TestbedError([self._problem(place, f"{message}, or alias a whole value")])
            below = (*keys, key)
            if key in plain:
                first = self.keys[below]
                message = f"the key {key!r} is given twice, first in line {first.line}"
                self.problems.append(self._problem(place, message))
                continue
            self.keys[below] = place
            plain[key] = self.plain(value_node, below)
        return plain

    def _scalar(self, node: Node, place: Position) -> object:
        text = str(node.value)
        kind = str(node.tag).rpartition(":")[2]
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return text.lower() in {"true", "yes", "on"}
                case "int" if len(text) > MOST_DIGITS:
                    message = f"found a number of {len(text):,} digits, expected at most"
                    self.problems.append(self._problem(place, f"{message} {MOST_DIGITS}"))
                    return 0
                case "int":
                    return int(text.replace("_", ""), 0 if text[:2] in {"0x", "0o"} else 10)
                case "float":
                    return float(
                        text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan")
                    )
                case "str" if node.style == ">":
                    return text.replace("\a", "")  # by which ruamel.yaml marks a fold
                case "str" | "timestamp":
                    return text
        except ValueError:
            self.problems.append(self._problem(place, f"found {text[:40]!r}, which is no {kind}"))
            return text
        self.problems.append(self._problem(place, f"the YAML tag {node.tag} is not used here"))
        return text

    def _problem(self, place: Position, message: str) -> Problem:
        return Problem(self.file, place.line, place.column, message)


def _place(node: Node) -> Position:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    quoted = getattr(node, "style", None) in {"'", '"'}
    return Position(line, column, column + quoted)
