"""Specs made of what parts of a file state, by the names of their fields.

So an option is a field of a part (what a file may say) and one of its spec (what others read).
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from lightrig.testbeds.base import Part

S = TypeVar("S")

_UNITS = ("_ns", "_dbm", "_db", "_nm", "_bps")
"""Ends of the names of a spec's fields that a part's do not have: a file writes its units."""


def spec_of(spec: type[S], part: Part | None, **more: Any) -> S:
    """Return a `spec` with the values of `part`'s fields of the same names, and those in `more`.

    What the part leaves out has the spec's default.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(spec):  # type: ignore[arg-type]  # of a dataclass
        unit = next((unit for unit in _UNITS if field.name.endswith(unit)), "")
        name = field.name.removesuffix(unit)
        is_required = field.default is field.default_factory is dataclasses.MISSING
        if field.name in more or not (is_required or hasattr(part, name)):
            continue
        value = getattr(part, name)
        if value is not None or is_required:
            values[field.name] = value
    return spec(**values, **more)
