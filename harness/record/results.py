"""Results of all runs of a lab: listed, queried in place, as tidy frames, exported.

In a tidy frame every condition is a column; runs and tests are tables beside the rows. Runs are
listed without the libraries that read rows: those are imported where they are used.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote

from lightrig.harness.quantities.registry import current_name
from lightrig.harness.record.journal import is_written
from lightrig.harness.record.journal_reading import read_journal
from lightrig.harness.record.nights import Night, Start, StoredNights, nights_before, order
from lightrig.harness.record.notes import notes_table, read_notes
from lightrig.harness.record.places import Place
from lightrig.harness.record.recovery import JOURNAL
from lightrig.harness.record.row import JournalEmptyError, QuestionError, RecordError
from lightrig.harness.record.row_times import RowTimes
from lightrig.harness.record.rows_check import check_rows
from lightrig.harness.record.rows_files import BY_HAND, RowsFile, folder_of, reading, stored_rows
from lightrig.harness.record.run_folder import (
    FACTS,
    RunFacts,
    facts_of,
    load_quantities_of_runs,
    parse_facts,
)
from lightrig.testbeds.escaping import escape_cell

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset


def _csv(frame: pd.DataFrame) -> bytes:
    """Return a frame as CSV whose texts are text, whatever reads it."""
    texts = frame.select_dtypes(exclude=["number", "bool", "datetime"]).columns
    shown = frame.assign(**{name: frame[name].map(_cell) for name in texts})
    return bytes(shown.to_csv(index=False, date_format="%Y-%m-%d").encode())


def rows_as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV below their header; a text is text, unless it is a number."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([value if _is_number(value) else _cell(value) for value in row])
    return written.getvalue()


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False


def _cell(value: object) -> object:
    return escape_cell(value) if isinstance(value, str) else value


Format: TypeAlias = Literal["csv", "json", "parquet"]

_GUESS = re.compile(r"\nDid you mean [^\n]*")
_VIEWS = "the views are rows, runs, tests and notes, as in SELECT * FROM rows LIMIT 1"
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,  # no file, no address; rows are read by Arrow, not by DuckDB
    "python_enable_replacements": False,  # no variable of this process
}


class Results:
    """The results at a path or URL, such as `results`, `/mnt/lab/results`, `s3://lab/results`.

    Nothing here changes them, and runs may be added at any time by anybody. Raises
    `RecordError`, from here and from each method, for what cannot be reached or read.
    """

    def __init__(self, location: str | Path = "results") -> None:
        self._place = Place(location)

    @property
    def place(self) -> Place:
        """Where they are."""
        return self._place

    def runs(self) -> list[RunFacts]:
        """Every run, the oldest first; also those that were killed, or that still go on.

        One that cannot be read does not hide the others: `damaged` names it.
        """
        facts = [one for one in self._survey() if isinstance(one, RunFacts)]
        return sorted(facts, key=lambda one: order(one.header))

    def damaged(self) -> list[RecordError]:
        """Return the error of each run that cannot be read."""
        return [one for one in self._survey() if isinstance(one, RecordError)]

    def find(self, run: str, among: Sequence[RunFacts] | None = None) -> RunFacts:
        """The run of that name or with that beginning; "last" is the youngest not by hand.

        among: what `runs` returned, where it has been asked already. Raises `QuestionError` if
        there is none, or more than one.
        """
        if among is None and (named := self._named(run)) is not None:
            return named
        runs = list(self.runs() if among is None else among)
        if run == "last" and (of_nights := [one for one in runs if not one.by_hand]):
            return of_nights[-1]
        found = [one for one in runs if one.run == run] or [
            one for one in runs if one.run.startswith(run)
        ]
        if len(found) == 1:
            return found[0]
        names = ", ".join(one.run for one in (found or runs)[-5:]) or "none at all"
        which = "is the beginning of" if found else "is no run; the last are"
        raise QuestionError(f"{self._place.name}: {run!r} {which} {names}")

    def frame(
        self, *, run: str = "*", night: str = "*", testbed: str = "*", quantity: str = "*"
    ) -> pd.DataFrame:
        """Measured values as a tidy frame: one row a value, with its bounds, unit and provenance.

        Each argument is a name, or a pattern with `*` and `?`: `quantity="reconfiguration.*"`,
        `night="2026-03-*"`. Runs by hand, which belong to no night, are only among those that `run`
        names. Columns:

        run, night, testbed, test, subject, quantity: what the value is of.
        value, lower, upper: in `unit`; NaN where there is no bound. For a time they are the
            middle, the earliest and the latest that it can have been.
        simulated: whether anything that took part was; such a row says nothing of a device.
        instruments: name and identity of all that took part, joined by "; ".
        time_ns: when, on the clock of the run.
        and every condition by its name, such as `event`, `moved`, `before`, `clock`; missing
        where a row has none. A condition with the name of a column above gets `condition_`
        before it. Where a test was repeated, `attempt` numbers its attempts; the last one counts.

        Rows come by testbed, night and run, and as written within a run.
        """
        from lightrig.harness.record.dataset_reading import named
        from lightrig.harness.record.tidy_frames import ordered, tidy

        with reading(self._place), self._errors_named():
            dataset = self._dataset(run, night, testbed)
            return tidy(ordered(named(dataset, _regex(current_name(quantity)))))

    def frames_before(
        self, start: Start, nights: int, testbed: str, quantity: str = "*"
    ) -> list[list[pd.DataFrame]]:
        """Return the `frame` of each run of a testbed in the last `nights` before a run's night.

        By night, the oldest first; nights without runs are not counted. All are read at once.
        start: when the run began.
        """
        from lightrig.harness.record.dataset_reading import named
        from lightrig.harness.record.tidy_frames import ordered, tidy

        files = stored_rows(self._place, str(folder_of(testbed)))
        before = nights_before(self._place, files, testbed, start)[-nights:]
        chosen = {run for runs in before for run in runs}
        with reading(self._place), self._errors_named():
            dataset = self._chosen(lambda _, _date, run: run in chosen, files, some=True)
            rows = ordered(named(dataset, _regex(current_name(quantity))))
        frames = {run: tidy(each.reset_index(drop=True)) for run, each in rows.groupby("run")}
        return [[frames[run] for run in runs if run in frames] for runs in before]

    def last_of(self, testbed: str, date: str) -> frozenset[str]:
        """Return the runs of the last night of that date that have rows of a testbed."""
        files = [f for f in stored_rows(self._place, _folder("*", testbed)) if f.testbed == testbed]
        stored = StoredNights(self._place, files)
        found: dict[Night, set[str]] = {}
        for file in files:
            for night, run in file.nights_and_runs():
                if night == date:
                    found.setdefault(stored.of(testbed, date, run), set()).add(run)
        return frozenset(found[max(found)]) if found else frozenset()

    def query(self, sql: str) -> pd.DataFrame:
        """Ask anything in DuckDB's SQL of the views `rows`, `runs`, `tests` and `notes`.

        `rows` is the data set itself, read in place: the columns of `frame` but with
        `instruments` as a list, all `conditions` as one JSON object, `at_utc`, when a value was
        taken where that is known, and `by_hand`, whether the run was one by hand. Only one
        statement that reads is taken; raises `QuestionError` for
        another, and for what DuckDB refuses. It reaches no file but the results, and has no limit
        of memory or time: see `bounded_query`.
        """
        import duckdb

        from lightrig.harness.record.dataset_reading import present_names
        from lightrig.harness.record.runs_tables import runs_table, tests_table

        reads = {duckdb.StatementType.SELECT, duckdb.StatementType.MULTI}
        with reading(self._place), duckdb.connect(config=_CLOSED) as connection:
            try:
                statements = connection.extract_statements(sql)
                if len(statements) != 1 or statements[0].type not in reads:
                    raise QuestionError("expected one SELECT: results are read here, not changed")
                views = []
                # A function: headers of runs are read for statements that use the column alone.
                connection.create_function(  # type: ignore[call-overload]
                    "utc_of_row",
                    RowTimes(self.runs),
                    ["VARCHAR", "BIGINT"],
                    "TIMESTAMP",
                    type="arrow",
                    null_handling="special",
                )
                for name, by_hand in (("stored", False), ("stored_by_hand", True)):
                    connection.register(name, self._dataset("*", "*", "*", by_hand=by_hand))
                    of_rows = present_names(name, tests=True)
                    at = "utc_of_row(run, time_ns) AS at_utc"
                    views.append(f"SELECT *, {at}, {by_hand} AS by_hand FROM ({of_rows})")  # noqa: S608
                connection.execute(f"CREATE VIEW rows AS {' UNION ALL '.join(views)}")
                # A year has millions of tests: tables that the statement does not name are empty.
                text = sql.lower()
                named = [name for name in ("runs", "tests") if name in text]
                runs = self.runs() if named else []
                connection.register("runs", runs_table(runs))
                connection.register("tests", tests_table(runs if "tests" in named else []))
                notes = read_notes(self._place) if "notes" in text else []
                connection.register("notes", notes_table(notes))
                connection.execute("SET lock_configuration = true")
                return connection.execute(sql).df()
            except (duckdb.IOException, duckdb.InvalidInputException) as error:
                raise RecordError(f"{self._place.name}: {error}") from error
            except duckdb.CatalogException as error:
                # DuckDB's own guess may be a table of its catalogue.
                message = _GUESS.sub("", str(error))
                raise QuestionError(f"the query failed: {message}\n{_VIEWS}") from error
            except duckdb.Error as error:
                raise QuestionError(f"the query failed: {error}") from error

    def export(self, run: str, form: Format) -> bytes:
        """The frame of one run as a file's content: CSV, Parquet, or a JSON list of objects."""
        frame = self.frame(run=self.find(run).run)
        if form == "parquet":
            stream = io.BytesIO()
            frame.to_parquet(stream, index=False)
            return stream.getvalue()
        if form == "csv":
            return _csv(frame)
        from lightrig.harness.record.tidy_frames import records

        return json.dumps(records(frame), indent=1).encode() + b"\n"

    def declare_quantities(self, runs: Collection[str] | None = None) -> None:
        """Declare the quantities that `runs`, or all, had declared and this process has not."""
        load_quantities_of_runs(self._place, runs)

    def stored_file(self, run: RunFacts, name: str) -> bytes | None:
        """Return a file of the run's folder, such as a description, or None."""
        name = f"runs/{run.run}/{name}"
        if name not in self._place.files(f"runs/{run.run}"):
            return None
        return self._place.read([name])[name]

    def _named(self, run: str) -> RunFacts | None:
        """Return the run that `find` looks for, if few files tell; None where all must be read.

        A year has tens of thousands of runs: those with rows have their nights in the data set.
        """
        if self._place.folder is None:
            return None
        names = set(self._place.folders("runs"))
        latest: list[tuple[str, str]] = []
        if run == "last":
            files = stored_rows(self._place)
            dated = [pair for file in files for pair in file.nights_and_runs() if pair[1] in names]
            # The rest have no rows, or not yet: these alone are asked for their night.
            newest = max(dated, default=("", ""))[0]
            latest = [pair for pair in dated if pair[0] == newest]
            found = names - {name for _, name in dated} | {name for _, name in latest}
            found -= {file.run for file in stored_rows(self._place, BY_HAND)}
        else:
            found = names & {run} or {name for name in names if name.startswith(run)}
        if not found or (run != "last" and len(found) > 1):
            return None
        facts = {name: self._facts(name) for name in found}
        if run == "last":
            facts = {name: one for name, one in facts.items() if one is None or not one.by_hand}
            if not facts:
                return None
        read = [one for one in facts.values() if one is not None]
        nights = {name: one.night for name, one in facts.items() if one is not None}
        # A stray file may name a night that its run is not of.
        if len(read) < len(facts) or any(
            name in nights and nights[name] != night for night, name in latest
        ):
            return None
        return max(read, key=lambda one: order(one.header))

    def _facts(self, run: str) -> RunFacts | None:
        name = f"runs/{run}/{FACTS}"
        text = self._place.read_each("runs", FACTS, [run]).get(name)
        with suppress(RecordError):
            return parse_facts(name, text) if text is not None else None
        return None

    def _survey(self) -> Iterator[RunFacts | RecordError]:
        unread = dict[str, str]()
        stored = self._place.read_each("runs", FACTS, unread=unread)
        yield from (RecordError(f"{self._place.name}: {each}") for each in unread.values())
        damaged = set()
        for name, text in stored.items():
            try:
                yield parse_facts(name, text)
            except RecordError as error:
                damaged.add(name)
                yield error
        # The rest was killed, still goes on, is older than `run.json` or has a damaged one; all
        # that is local.
        folder = self._place.folder
        for run in self._place.folders("runs") if folder else ():
            name, journal = f"runs/{run}/{FACTS}", Path(folder or "", "runs", run, JOURNAL)
            known = name in unread or (name in stored and name not in damaged)
            if not known and journal.exists():
                try:
                    yield _facts_of_open_run(journal)
                except JournalEmptyError:
                    continue
                except RecordError as error:
                    yield error

    def _dataset(
        self, run: str, night: str, testbed: str, *, by_hand: bool | None = None
    ) -> pyarrow.dataset.Dataset:
        """Return the rows of runs; by_hand: of those by hand alone, or of all others.

        Without it those by hand are there where `run` names some.
        """
        patterns = [re.compile(_regex(pattern)) for pattern in (testbed, night, run)]

        def wanted(*names: str) -> bool:
            return all(p.fullmatch(name) for p, name in zip(patterns, names, strict=True))

        files = stored_rows(self._place, _folder(night, testbed), by_hand=by_hand or run != "*")
        if by_hand is not None:
            files = [file for file in files if file.by_hand == by_hand]
        return self._chosen(wanted, files, some=run != "*" or night != "*")

    def _chosen(
        self, wanted: Callable[[str, str, str], bool], among: Iterable[RowsFile], *, some: bool
    ) -> pyarrow.dataset.Dataset:
        """Return the rows of the wanted runs, by testbed, night and run; some: not of all runs."""
        from lightrig.harness.record.dataset_reading import is_one_of, open_dataset

        chosen, compacted = [], False
        nights, runs = set[str](), set[str]()
        for file in among:
            found = [
                (night, run)
                for night, run in file.nights_and_runs()
                if wanted(file.testbed, night, run)
            ]
            if found:
                chosen.append(file)
                nights.update(night for night, _ in found)
                runs.update(run for _, run in found)
                compacted |= file.runs is not None
        files = [self._place.path(file.name) for file in check_rows(self._place, chosen)]
        with self._errors_named():
            root = self._place.path("")
            dataset = open_dataset(files, root, self._place.filesystem)
            if compacted and some:
                dates = [datetime.date.fromisoformat(text) for text in sorted(nights)]
                return dataset.filter(is_one_of("night", dates) & is_one_of("run", sorted(runs)))
            return dataset

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (OSError, pyarrow.ArrowException) as error:
            raise RecordError(f"{self._place.name}: {error}") from error


def _facts_of_open_run(journal: Path) -> RunFacts:
    # Asked before reading: a run that ends in between has a closing line.
    goes_on = is_written(journal)
    record = read_journal(journal, salvage=True)
    if record.complete:
        # The first schema had no `run.json`, only runs that were whole.
        return facts_of(record, "ended" if record.header["schema"] > 1 else "complete")
    return facts_of(record, "running" if goes_on else "killed")


def _folder(night: str, testbed: str) -> str:
    """Return the least folder that has all rows of these: of a year, listing all takes seconds."""
    if _is_pattern(testbed):
        return "rows"
    below = f"rows/testbed={quote(testbed, safe='')}"
    return below if _is_pattern(night) else f"{below}/night={night}"


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def _regex(pattern: str) -> str:
    """The pattern as a regular expression that Python and Arrow read alike."""
    return "".join({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in pattern)
