"""To which night a run belongs: the one place that says so.

A run counts for the date that its header states as `night`: that on which it began in its zone, or
that of the name of the night that it is a part of, which may pass midnight. Runs whose header has
no `zone` were named by the date in UTC, and keep it. So two nights may have one date: west of
Greenwich the last one by UTC began on the evening before the first one by local time. They are two
nights wherever the earlier run, by the clocks of the later one, began on an earlier date.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lightrig.harness.record.digests import without_digest
from lightrig.harness.record.journal_reading import header_of
from lightrig.harness.record.places import Place
from lightrig.harness.record.row import RecordError
from lightrig.harness.record.rows_files import RowsFile
from lightrig.harness.record.run_folder import FACTS

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Night(NamedTuple):
    """A night of a testbed.

    place: 0, or its place among the nights of its date. zone: in which it has that date, where
    another night has the date too; empty where none has.
    """

    date: str
    place: int = 0
    zone: str = ""

    def __str__(self) -> str:
        """Return its date, with the zone where another night has that date too."""
        return f"{self.date} ({self.zone})" if self.zone else self.date

    @property
    def day(self) -> dt.date:
        """Its date."""
        return dt.date.fromisoformat(self.date)


class Start(NamedTuple):
    """When a run began.

    night: the date that it counts for. began: the moment, in UTC. zone, offset: of its clocks;
    empty and None for a run of a version that had no zones.
    """

    night: str
    began: dt.datetime = _EPOCH
    zone: str = ""
    offset: dt.timedelta | None = None


def start_of(header: Mapping[str, Any]) -> Start:
    """Return when the run of a header began, without what it does not state rightly."""
    night, began = str(header.get("night", "")), _EPOCH
    with suppress(ValueError):
        began = _moment(str(header.get("started", "")))
    with suppress(ValueError):
        at = dt.datetime.fromisoformat(f"2000-01-01T00:00:00{header.get('utc_offset', '')}")
        if isinstance(header.get("zone"), str) and at.tzinfo is not None:
            return Start(night, began, str(header["zone"]), at.utcoffset())
    return Start(night, began)


def _moment(text: str) -> dt.datetime:
    """Return a moment in UTC; raises `ValueError` for what states none, or not in which zone."""
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"found {text!r}, expected a time with its zone")
    return moment


def nights_of(starts: Mapping[str, Start]) -> dict[str, Night]:
    """Return the night of each run of one testbed, by the names of the runs."""
    by_date: dict[str, list[str]] = {}
    for run in sorted(starts, key=lambda run: (starts[run].began, run)):
        by_date.setdefault(starts[run].night, []).append(run)
    found: dict[str, Night] = {}
    for date, runs in by_date.items():
        nights: list[list[str]] = []
        for run in runs:
            if not nights or _is_of_an_earlier_date(starts[nights[-1][0]], starts[run]):
                nights.append([])
            nights[-1].append(run)
        for place, of_night in enumerate(nights):
            zone = (starts[of_night[0]].zone or "UTC") if len(nights) > 1 else ""
            found |= dict.fromkeys(of_night, Night(date, place, zone))
    return found


def _is_of_an_earlier_date(first: Start, later: Start) -> bool:
    """Return whether `first` began before the date of `later`, which is its own in another zone."""
    if later.offset is None or first.zone == later.zone or first.began == _EPOCH:
        return False
    return (first.began + later.offset).date() < dt.date.fromisoformat(later.night)


def order(header: Mapping[str, Any]) -> tuple[str, dt.datetime, str]:
    """Return a sort key of the run of a header: by date, then by the moment at which it began.

    Not by name: names have local times, of which an hour comes twice when clocks are set back.
    """
    start = start_of(header)
    return start.night, start.began, str(header.get("run", ""))


class StoredNights:
    """Nights of the runs that have rows at a place.

    Only the headers of runs that share their date and testbed with another are read. files: those
    that have the rows.
    """

    def __init__(self, place: Place, files: Iterable[RowsFile]) -> None:
        dates: dict[tuple[str, str], set[str]] = {}
        for file in files:
            for date, run in file.nights_and_runs():
                dates.setdefault((file.testbed, date), set()).add(run)
        shared = {key: runs for key, runs in dates.items() if len(runs) > 1}
        starts = _starts(place, {run: date for (_, date), runs in shared.items() for run in runs})
        self._began = {run: start.began for run, start in starts.items()}
        self._split: dict[tuple[str, str], Night] = {}
        for (testbed, _), runs in shared.items():
            found = nights_of({run: starts[run] for run in runs})
            if any(night.place for night in found.values()):
                self._split |= {(testbed, run): night for run, night in found.items()}
        # Where one testbed has two nights of a date, those of other testbeds lie beside theirs.
        split = {night.date for night in self._split.values()}
        beside = {
            (testbed, run): date
            for (testbed, date), runs in dates.items()
            if date in split
            for run in runs
            if (testbed, run) not in self._split
        }
        starts = _starts(place, {run: date for (_, run), date in beside.items()}) if beside else {}
        for (testbed, run), date in beside.items():
            named = (n for n in self._split.values() if n.date == date)
            last = max(named) if starts[run].zone else min(named)
            self._split[testbed, run] = last

    def of(self, testbed: str, date: str, run: str) -> Night:
        """Return the night of a run that has rows of `testbed` and the date `date`."""
        return self._split.get((testbed, run)) or Night(date)

    def in_order(self, runs: Iterable[str]) -> tuple[str, ...]:
        """Return the runs of a night by the moments at which they began."""
        return tuple(sorted(runs, key=lambda run: (self._began.get(run, _EPOCH), run)))

    @property
    def of_shared_dates(self) -> Collection[Night]:
        """The nights whose date another night has too."""
        return set(self._split.values())

    def places(self, testbed: str) -> dict[str, int]:
        """Return the place of each run's night among those of its date, where that is not 0."""
        return {
            run: night.place
            for (name, run), night in self._split.items()
            if name == testbed and night.place
        }


def nights_before(
    place: Place, files: Iterable[RowsFile], testbed: str, start: Start
) -> list[list[str]]:
    """Return the runs of `testbed` that have rows, by night, of the nights before a run's own.

    The oldest first. start: when the run began; it may have rows itself.
    """
    dated = {run: date for f in files if f.testbed == testbed for date, run in f.nights_and_runs()}
    shared = {date for date, n in Counter(dated.values()).items() if n > 1} | {start.night}
    starts = {run: Start(date) for run, date in dated.items() if date not in shared}
    starts |= _starts(place, {run: date for run, date in dated.items() if date in shared})
    nights = nights_of({**starts, "": start})
    found: dict[Night, list[str]] = {}
    for run in sorted(dated):
        if nights[run] < nights[""]:
            found.setdefault(nights[run], []).append(run)
    return [found[night] for night in sorted(found)]


def _starts(place: Place, dates: Mapping[str, str]) -> dict[str, Start]:
    """Return when runs began, by name; of one whose `run.json` cannot be read only the date."""
    found = {run: Start(date) for run, date in dates.items()}
    for name, text in place.read_each("runs", FACTS, dates.keys()).items() if dates else ():
        # A damaged one is named among the damaged runs.
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            run = name.split("/")[1]
            found[run] = start_of(without_digest(text)["header"])._replace(night=dates[run])
    return found


def start_of_open_run(folder: Path, night: str) -> Start:
    """Return when the run in `folder` began, which may still go on; `night` where nothing says."""
    with suppress(RecordError):
        return start_of(header_of(folder / "journal.jsonl"))._replace(night=night)
    return Start(night)
