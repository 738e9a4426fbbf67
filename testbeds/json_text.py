"""JSON from outside: files that may have been changed, replies of programs and instruments."""

import json
from typing import Any


def from_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or nested deeper than Python can read, for which `json.loads`
            raises `RecursionError`.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply to be read") from None


def from_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text as RFC 8259 has it, in which no object has a key twice.

    Raises ValueError.
    """
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply to be read") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"found the key {twice!r} twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"found {name}, which is no JSON")
