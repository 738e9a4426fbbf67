"""Notes of the logbook as events of labs: marks in trends, and what is new on cards."""

import datetime
from collections.abc import Iterable, Mapping, Sequence

from lightrig.harness.record.nights import Start
from lightrig.harness.record.notes import Note
from lightrig.harness.report.nights.series import Lab
from lightrig.harness.report.nights.series_changes import LabChange

_MOST_NOTES = 3
"""Notes of a night that are written out; a lab may have hundreds."""

_LONGEST = 120
"""Characters of a note's words on the page; `lightrig note` shows all."""


def note_marks(lab: Lab, notes: Iterable[Note], starts: Mapping[str, Start]) -> list[LabChange]:
    """Return one event for each night that is the first after some notes of its testbed.

    notes: of that testbed, the oldest first. starts: when runs began, by name. A note before the
    first night marks none, and one after the last night has not been measured yet.
    """
    began = [_began(runs, starts) for runs in lab.runs]
    known = [(at, night) for night, at in enumerate(began) if at]
    found: dict[int, list[Note]] = {}
    place = 0
    for note in notes:  # the oldest first, as nights are
        while place < len(known) and known[place][0] <= note.at_utc:
            place += 1
        if 0 < place < len(known):
            found.setdefault(known[place][1], []).append(note)
    return [LabChange(night, "note", _text(of_night)) for night, of_night in found.items()]


def moments_of_nights(labs: Iterable[Lab], starts: Mapping[str, Start]) -> list[str]:
    """Return when the nights of all labs began, as notes state times, the oldest first."""
    return sorted(filter(None, (_began(runs, starts) for lab in labs for runs in lab.runs)))


def _began(runs: Sequence[str], starts: Mapping[str, Start]) -> str:
    """Return when the first run of a night began, as notes state times; empty if unknown."""
    known = [starts[run].began for run in runs if run in starts]
    return min(known).astimezone(datetime.UTC).strftime("%F %T") if known else ""


def _text(notes: Sequence[Note]) -> str:
    parts = []
    for note in notes[:_MOST_NOTES]:
        text = " ".join(note.text.split())
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        parts.append(f"{note.at_utc[:16]} UTC, {note.subject}: {text}")
    more = len(notes) - _MOST_NOTES
    return f"noted {'; '.join(parts)}{f' and {more:,} more' if more > 0 else ''}"
