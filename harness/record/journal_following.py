"""The newest rows of runs that go on, read from their journals as these grow."""

from dataclasses import dataclass
from pathlib import Path

from lightrig.harness.record.journal import is_written
from lightrig.harness.record.journal_reading import PartReader, header_of, parts_of
from lightrig.harness.record.recovery import JOURNAL
from lightrig.harness.record.row import RecordError, Row
from lightrig.harness.record.row_times import time_of_row

_NEWEST = 50
"""Runs that are looked at, by name: a run that goes on is one of the last."""


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A row of a run that goes on; `at` is when it was taken, in seconds of UTC, if known."""

    run: str
    row: Row
    at: float | None


class JournalFollower:
    """Reads what runs record of one testbed, as they record it.

    Args:
        results: the folder of results; it may not exist.
        testbed: the testbed's name.
    """

    def __init__(self, results: Path, testbed: str) -> None:
        self._results = results
        self._testbed = testbed
        self._headers: dict[Path, dict[str, object]] = {}
        self._readers: dict[Path, PartReader] = {}
        self._newest: dict[tuple[str, str], JournalRow] = {}

    def newest(self) -> list[JournalRow]:
        """Return the newest row of each subject and quantity of runs that go on, newest first.

        A journal that cannot be read is left out.
        """
        for journal in sorted(self._results.glob(f"runs/*/{JOURNAL}"))[-_NEWEST:]:
            if not is_written(journal):
                self._headers.pop(journal, None)
                continue
            try:
                self._follow(journal)
            except RecordError:
                continue
        goes_on = {str(header["run"]) for header in self._headers.values()}
        self._newest = {key: row for key, row in self._newest.items() if row.run in goes_on}
        return sorted(self._newest.values(), key=lambda each: each.row.time_ns, reverse=True)

    def _follow(self, journal: Path) -> None:
        if journal not in self._headers:
            self._headers[journal] = dict(header_of(journal))
        header = self._headers[journal]
        named = header.get("testbeds")
        if not isinstance(named, dict) or self._testbed not in named:
            return
        for path in (journal, *parts_of(journal.parent)):
            for context, rows, _ in self._readers.setdefault(path, PartReader(path)).read():
                if context.testbed == self._testbed:
                    for row in rows:
                        at = time_of_row(header, row.time_ns)
                        self._newest[row.subject, row.quantity] = JournalRow(
                            str(header["run"]), row, at.timestamp() if at else None
                        )
