"""One run: its name, its folder, its journal, and what becomes of them at the end."""

import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, TypeAlias

from lightrig.harness.bench import Bench
from lightrig.harness.record import (
    Context,
    Journal,
    RecordError,
    Row,
    RunRecord,
    Scalar,
    TestOutcome,
    load_quantities,
    publish,
    read_journal,
    settle,
    store_descriptions,
)
from lightrig.harness.record.journal_reading import PartReader, parts_of
from lightrig.harness.record.places import Place
from lightrig.harness.record.row_times import ANCHOR, clock_anchor
from lightrig.harness.record.run_folder import note_files
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.clock import SystemClock, wall_time
from lightrig.testbeds import Limit
from lightrig.testbeds.timezones import local

_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[A-Za-z0-9._-]+")


class Run:
    """One session's measurements, stored in `results/runs/<name>` from the first row on.

    Args:
        results: the folder of all runs; several sessions, also of several hosts, may share it.
        header: what the journal says of the run besides its name and night. The files that
            `testbeds` names are copied into the run's folder.
        location: where `publish` brings the run, a path or URL.
        name: of the run, YYYYMMDD-HHMMSS-...; the run counts for the night of that date. By
            default it is made of the time now by the clocks of `zone`.
        zone: IANA name of a time zone; None for this machine's.

    Raises `RecordError` for what cannot be written, for a location that cannot be, and for a
    name of another form.
    """

    def __init__(
        self,
        results: Path,
        header: Mapping[str, Any],
        location: str | None = None,
        name: str | None = None,
        zone: str | None = None,
    ) -> None:
        if location is not None:
            Place(location)  # a night is not measured first and then brought nowhere
        now = local(wall_time(), zone)
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._location = location
        self.name = name or f"{now.stamp}-{uuid.uuid4().hex[:6]}"
        self.night = night_of(self.name)
        self.folder = results / "runs" / self.name
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise RecordError(f"{self.folder}: {error.strerror}") from error
        self._parts: dict[Path, PartReader] = {}
        self._closed: RunRecord | None = None
        self._journal = Journal(
            self.folder / "journal.jsonl",
            {
                "run": self.name,
                "night": self.night,
                "started": f"{now.time.astimezone(UTC):%FT%TZ}",
                "zone": now.zone,
                "utc_offset": now.offset,
                ANCHOR: clock_anchor(),
                "descriptions": store_descriptions(header.get("testbeds", {}), self.folder),
                **({"publish": location} if location else {}),
                **header,
            },
        )

    @property
    def report(self) -> Path:
        """Path of the run's HTML report."""
        return self.folder / "report.html"

    def recorder(
        self, bench: Bench, test: str, conditions: Mapping[str, Scalar]
    ) -> Callable[[Sequence[Row]], None]:
        """A function that appends rows of `test`, with the identities of all that took part."""
        context = context_of(bench, test, conditions)
        return lambda rows: self._journal.append_many(context, rows)

    def take_over(self, path: Path) -> Iterator[tuple[Context, list[Row]]]:
        """Append the new rows of a worker's journal at `path`, and return them as they go."""
        for context, rows, lines in self._parts.setdefault(path, PartReader(path)).read():
            self._journal.append_lines(context, lines)
            yield context, rows

    def test_finished(
        self, nodeid: str, outcome: str, duration_s: float, details: Mapping[str, Any]
    ) -> None:
        """Record how a test has ended; see `TestOutcome`.

        Failures quote what was on a wire: what JSON or Unicode does not know is written as text.
        """
        if not all(isinstance(value, str) and value.isascii() for value in details.values()):
            text = json.dumps(details, default=str, ensure_ascii=False).encode(errors="replace")
            details = json.loads(text)
        self._journal.note_test(TestOutcome(nodeid, outcome, duration_s, details))

    def record(self) -> RunRecord:
        """Return the run as its journal has it; its quantities are declared."""
        load_quantities(self.folder)
        return self._closed or read_journal(self._journal.path)

    def close(self, summary: Mapping[str, Any]) -> None:
        """End the journal and add its rows to the data set in `results/rows`."""
        duration_s = (self._clock.now() - self._began) / 1e9
        for part in parts_of(self.folder):  # of workers that were interrupted amid a test
            for _taken in self.take_over(part):
                pass
        self._journal.close({"duration_s": duration_s, **summary})
        for part in parts_of(self.folder):
            part.unlink()
        self._closed = settle(self.folder).record

    def discard(self) -> None:
        """Remove the run, in which no test has begun; raises `RecordError` or `OSError`."""
        self._journal.close()
        shutil.rmtree(self.folder)

    def publish(self) -> None:
        """Note what its files are, and copy the run to the location that it was given, if any.

        What cannot be brought there now, `lightrig results recover` brings later. Raises
        `RecordError`.
        """
        note_files(self.folder)
        if self._location is not None:
            publish(self.folder, self._location)


def night_of(name: str) -> str:
    """Return the date, YYYY-MM-DD, that a run of this name counts for; raises `RecordError`."""
    if not _NAME.fullmatch(name):
        raise RecordError(f"found {name!r} as a run's name, expected YYYYMMDD-HHMMSS-NAME")
    return f"{name[:4]}-{name[4:6]}-{name[6:8]}"


def context_of(bench: Bench, test: str, conditions: Mapping[str, Scalar]) -> Context:
    """The context of rows that `test` measures on `bench`: identities, conditions, clock."""
    return Context(
        bench.testbed.name,
        test,
        bench.participants(),
        bool(bench.simulated),
        {**conditions, "clock": "virtual" if bench.clock.virtual else "system"},
    )


Observer: TypeAlias = Callable[[str, bool, Sequence[Row]], None]
"""Called with recorded rows: their test, whether anything was simulated, the rows."""

Judge: TypeAlias = Callable[[str, Limit, Verdict], None]
"""Called with a verdict: the test that requested it, the limit, the verdict."""

Finish: TypeAlias = Callable[[str, str, float, str], None]
"""Called at the end of a test: node id, pytest's outcome, seconds, reason or ""."""

Find: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Called with what a test found wrong, before its end: node id, document of the finding."""

Note: TypeAlias = Callable[[str, str], None]
"""Called with a note on a testbed: its name, and a sentence."""


class ObservedRun(Run):
    """A run that tells `observers` of all rows, once the journal has them.

    `finishes` are told of tests that have ended, `finders` of what they found wrong, `judges` of
    verdicts, `notes` of what a person should know, `failed_restores` of what is not as it was
    found; `report_notes` are the sentences that the report shows, by testbed.
    """

    observers: tuple[Observer, ...] = ()
    finishes: tuple[Finish, ...] = ()
    finders: tuple[Find, ...] = ()
    failed_restores: tuple[Note, ...] = ()
    judges: tuple[Judge, ...] = ()
    notes: tuple[Note, ...] = ()

    def __init__(
        self,
        results: Path,
        header: Mapping[str, Any],
        location: str | None = None,
        name: str | None = None,
        zone: str | None = None,
    ) -> None:
        super().__init__(results, header, location, name, zone)
        self.report_notes: dict[str, list[str]] = {}
        self.failures_to_restore: list[str] = []

    def recorder(
        self, bench: Bench, test: str, conditions: Mapping[str, Scalar]
    ) -> Callable[[Sequence[Row]], None]:
        """A function that appends rows of `test` and shows them to the observers."""
        record = super().recorder(bench, test, conditions)
        simulated = bool(bench.simulated)

        def observed(rows: Sequence[Row]) -> None:
            record(rows)
            for observer in self.observers:
                observer(test, simulated, rows)

        return observed

    def test_finished(
        self, nodeid: str, outcome: str, duration_s: float, details: Mapping[str, Any]
    ) -> None:
        """Record how a test has ended, and notify the observers."""
        super().test_finished(nodeid, outcome, duration_s, details)
        for find in self.finders:
            for finding in details.get("findings", ()):
                find(nodeid, finding)
        for finish in self.finishes:
            finish(nodeid, outcome, duration_s, details.get("why", ""))

    def judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        """Notify the observers of a verdict."""
        for judge in self.judges:
            judge(test, limit, verdict)

    def taken_over(self, path: Path) -> None:
        """Record the new rows of a worker's journal and show them to the observers."""
        for context, rows in self.take_over(path):
            for observer in self.observers:
                observer(context.test, context.simulated, rows)

    def note(self, testbed: str, sentence: str, *, in_report: bool = False) -> None:
        """Show a sentence to the observers, and in the report if wanted."""
        if in_report:
            self.report_notes.setdefault(testbed, []).append(sentence)
        for note in self.notes:
            note(testbed, sentence)

    def not_restored(self, testbed: str, problem: str) -> None:
        """Keep that instruments of a testbed are not as they were found, and tell of it."""
        self.failures_to_restore.append(problem)
        for observer in self.failed_restores:
            observer(testbed, problem)
