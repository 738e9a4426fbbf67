"""Stored series of figures: of runs, and of computations that take minutes.

They lie in `SYSTEM.stored.json` beside the declarations; `make figures` writes them. A digest of
its content names a damaged one, and one of the code that computed it a stale one.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lightrig.harness.claims.computed import Computed
from lightrig.harness.claims.covered_code import SystemCode
from lightrig.harness.claims.figures.curves import Curve
from lightrig.harness.claims.figures.declarations import figures_file
from lightrig.harness.claims.published import Published
from lightrig.harness.claims.verdicts import Kind
from lightrig.harness.system_registry import System
from lightrig.testbeds import LightrigError


class StoredSeriesError(LightrigError):
    """Stored series are missing, stale or damaged."""


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """Series of one source of a panel.

    kind: their origin. day: on which they were made. origin: by what, in a sentence. code: digest
    of the code that computed them; empty for measurements.
    """

    kind: Kind
    day: str
    origin: str
    code: str
    curves: tuple[Curve, ...]


def stored_file(published: Path) -> Path:
    """Return the file of stored series of a file of published values."""
    return figures_file(published).with_suffix(".stored.json")


def code_digest(system: System, function: Callable[..., Any]) -> str:
    """Return the digest of a system's code that a function of its reaches."""
    made_of = function.func if isinstance(function, partial) else function
    return SystemCode(system).digest([made_of.__module__])


def read_stored(published: Published, name: str) -> StoredSeries | None:
    """Return the stored series of that name; None where there are none.

    Raises `StoredSeriesError` for a file that cannot be read or was changed by hand.
    """
    path = stored_file(published.path)
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document.get(name)
        if found is None:
            return None
        content = found.pop("content")
        if content != _content(found):
            raise ValueError(f"{name}: its content is not what its digest states")
        curves = tuple(map(_curve, found.pop("curves")))
        return StoredSeries(**found, curves=curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoredSeriesError(
            f"{path} is damaged: {error}; `make figures` writes it anew"
        ) from error


def write_stored(published: Published, series: Mapping[str, StoredSeries]) -> Path:
    """Write the stored series of a paper's figures by name; raises `OSError`."""
    lines = []
    for name, one in sorted(series.items()):
        stated = json.loads(json.dumps(asdict(one)))
        lines.append(f"{json.dumps(name)}: {json.dumps({**stated, 'content': _content(stated)})}")
    path = stored_file(published.path)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return draft.replace(path)


def _content(stated: Mapping[str, Any]) -> str:
    text = json.dumps(stated, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _curve(stated: Mapping[str, Any]) -> Curve:
    numbers = {name: Computed(**each) for name, each in stated["numbers"].items()}
    x, y, lower, upper = (tuple(stated[key]) for key in ("x", "y", "lower", "upper"))
    return Curve(stated["name"], x, y, lower, upper, stated["n"], numbers)
