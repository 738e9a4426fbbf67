"""Outcomes of replays through the service that are too long to repeat for each comparison.

`python -m tests.campaigns service_replays` makes them and writes the file, with the day and a
digest of the code that ran; they answer while that code is the same.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from lightrig.harness.claims.covered_code import SystemCode
from lightrig.harness.claims.verdicts import FEWEST
from lightrig.harness.system_registry import installed_systems

COMMAND = "python -m tests.campaigns service_replays"

_RAN = (
    "lightrig.harness.systems.infinitehbd.runtime.layout",
    "lightrig.suites.claims.infinitehbd.replay",
    "lightrig.suites.claims.infinitehbd.service",
)
"""Modules of the system that a replay imports."""


@dataclass(frozen=True)
class Replays:
    """Outcomes of the replays of one day: a row has its `seed`, and what `service.filled` found."""

    day: str
    rows: tuple[Mapping[str, Any], ...]

    def mean(self, name: str) -> float:
        """Return the mean of an outcome over the draws."""
        return sum(float(row[name]) for row in self.rows) / len(self.rows)


def stored_file() -> Path:
    """Return the file."""
    return Path(str(files("lightrig.suites.claims.infinitehbd") / "data" / "service_replays.json"))


@cache
def digest() -> str:
    """Return the digest of the system's code that a replay runs, as it is now."""
    return SystemCode(installed_systems()["infinitehbd"]).digest(_RAN)


def write(path: Path, day: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the outcomes of replays by the code as it is now, one a line."""
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    path.write_text(f'{{"day": "{day}", "code": "{digest()}", "replays": [\n{lines}\n]}}\n')


def replays(hops: int, group: int, *, apart: bool = True) -> Replays | None:
    """Return what was stored for groups of `group` GPUs; see `replay.cluster` for `apart`.

    None where nothing is, fewer than have a verdict, or the code has changed since.
    """
    found = _read(stored_file())
    wanted = {"hops": hops, "tp": group, "apart": apart}
    rows = [row for row in (found.rows if found else ()) if wanted.items() <= row.items()]
    if found is None or len(rows) < FEWEST:
        return None
    return Replays(found.day, tuple(sorted(rows, key=lambda row: int(row["seed"]))))


def _read(path: Path) -> Replays | None:
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return Replays(found["day"], tuple(found["replays"])) if found["code"] == digest() else None
