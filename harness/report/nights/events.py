"""What was different about a testbed from one run to the next: identities, cabling, description.

An event explains nothing by itself; it stands beside a change so that a person can.
"""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import duckdb

from harness.report.nights.source import Descriptions
from testbeds import Testbed

Kind: TypeAlias = Literal["identity", "cabling", "description"]

_ANSWERS = """
SELECT testbed, simulated, night, run, instruments FROM recent WHERE file_row_number = 0
ORDER BY testbed, simulated, night, run
"""
"""A run's rows on one testbed have the same participants, so the first one tells."""
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Event:
    """From this night on something about the lab is another; `text` says what, for people."""

    night: int
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class _Visit:
    """One run at one lab."""

    night: int
    run: str
    answers: Mapping[str, str]


def events(
    connection: duckdb.DuckDBPyConnection, kept: Descriptions, first: datetime.date
) -> dict[tuple[str, bool], tuple[Event, ...]]:
    """The events of each lab, by testbed and whether it was simulated, the oldest first.

    The view `recent` holds the rows looked at; `first` is night 0.
    """
    visits: dict[tuple[str, bool], list[_Visit]] = {}
    for testbed, simulated, night, run, instruments in connection.sql(_ANSWERS).fetchall():
        visit = _Visit((night - first).days, run, _answers(instruments))
        visits.setdefault((testbed, simulated), []).append(visit)
    return {
        lab: tuple(
            event
            for before, after in pairwise(found)
            for event in _between(kept, lab[0], before, after)
        )
        for lab, found in visits.items()
    }


def _between(kept: Descriptions, testbed: str, before: _Visit, after: _Visit) -> Iterator[Event]:
    yield from _identities(before, after)
    yield from _descriptions(kept, testbed, before, after)


def _answers(instruments: Sequence[str]) -> dict[str, str]:
    """What each instrument said of itself, by its name."""
    found = {}
    for instrument in instruments:
        if instrument.startswith("{"):
            fields = json.loads(instrument)
            name = str(fields.pop("name", fields.get("serial", fields.get("model", "?"))))
            found[name] = ", ".join(f"{key} {value}" for key, value in fields.items())
        else:
            name, separated, identity = instrument.partition(": ")
            found[name] = identity if separated else name
    return found


def _identities(before: _Visit, after: _Visit) -> Iterator[Event]:
    """What answers otherwise, joined or left; those of which the same can be said together."""
    said: dict[str, list[str]] = {}
    for name, identity in after.answers.items():
        old = before.answers.get(name)
        if old is None:
            said.setdefault("joined", []).append(name)
        elif old != identity:
            said.setdefault(_difference(old, identity), []).append(name)
    left = [name for name in before.answers if name not in after.answers]
    if left:
        said["left"] = left
    for what, names in said.items():
        yield Event(after.night, "identity", f"{_listed(names)}: {what}")


def _difference(old: str, new: str) -> str:
    """The parts of an identity that are new, such as "firmware 6.7 → 6.8"."""
    parts, others = old.split(", "), new.split(", ")
    if len(parts) != len(others):
        return f"{old} → {new}"
    told = []
    for part, other in zip(parts, others, strict=True):
        if part != other:
            what, _, value = part.rpartition(" ")
            other_what, _, other_value = other.rpartition(" ")
            same = what and what == other_what
            told.append(f"{what} {value} → {other_value}" if same else f"{part} → {other}")
    return ", ".join(told)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} more"


def _descriptions(
    kept: Descriptions, testbed: str, before: _Visit, after: _Visit
) -> Iterator[Event]:
    """How the testbed's description has changed, if both runs kept it."""
    if not kept.differ(testbed, before.run, after.run):
        return
    old, new = kept.load(testbed, before.run), kept.load(testbed, after.run)
    if old is None or new is None:
        yield Event(after.night, "description", "the testbed's description has changed")
    elif cabling := _cabling(old, new):
        yield Event(after.night, "cabling", cabling)
    else:
        changed = "the testbed's description has changed, not its cabling"
        yield Event(after.night, "description", changed)


def _cabling(old: Testbed, new: Testbed) -> str:
    """Which fibers are gone and which are new; empty where none is."""
    gone = [str(fiber) for fiber in old.fibers if fiber not in set(new.fibers)]
    come = [str(fiber) for fiber in new.fibers if fiber not in set(old.fibers)]
    told = [f"{len(gone)} fibers gone ({_listed(gone)})"] if gone else []
    told += [f"{len(come)} fibers new ({_listed(come)})"] if come else []
    return "cabling: " + ", ".join(told) if told else ""
