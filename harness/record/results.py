"""All runs of a lab in one place: listed, queried in place, as tidy frames, exported."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset

from harness.record.errors import JournalEmptyError, QuestionError, RecordError
from harness.record.facts import FACTS, RunFacts, facts_of, parse_facts
from harness.record.locks import is_written
from harness.record.opening import open_dataset
from harness.record.places import Place
from harness.record.reading import read_journal
from harness.record.recovery import JOURNAL
from harness.record.tables import runs_table, tests_table
from harness.record.tidy import records, tidy

Format: TypeAlias = Literal["csv", "json", "parquet"]

_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.MULTI}


class Results:
    """The results at a path or URL, such as `results`, `/mnt/lab/results`, `s3://lab/results`.

    Nothing here changes them, and runs may be added at any time by anybody. Raises
    `RecordError`, from here and from each method, for what cannot be reached or read.
    """

    def __init__(self, location: str | Path = "results") -> None:
        self._place = Place(location)

    def runs(self) -> list[RunFacts]:
        """Every run, the oldest first; also those that were killed, or that still go on.

        One that cannot be read does not hide the others: `damaged` names it.
        """
        facts = [one for one in self._survey() if isinstance(one, RunFacts)]
        return sorted(facts, key=lambda one: (one.night, one.run))

    def damaged(self) -> list[RecordError]:
        """What is wrong with each run that cannot be read."""
        return [one for one in self._survey() if isinstance(one, RecordError)]

    def find(self, run: str) -> RunFacts:
        """The run of that name or with that beginning; "last" is the youngest.

        Raises `QuestionError` if there is none, or more than one.
        """
        runs = self.runs()
        if run == "last" and runs:
            return runs[-1]
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
        `night="2026-03-*"`. Columns:

        run, night, testbed, test, subject, quantity: what the value is of.
        value, lower, upper: in `unit`; NaN where there is no bound. For a time they are the
            middle, the earliest and the latest that it can have been.
        simulated: whether anything that took part was; such a row says nothing of a device.
        instruments: name and identity of all that took part, joined by "; ".
        time_ns: when, on the clock of the run.
        and every condition by its name, such as `event`, `moved`, `before`, `clock`; missing
        where a row has none. A condition with the name of a column above gets `condition_`
        before it.

        Rows come by testbed, night and run, and as written within a run.
        """
        dataset = self._dataset(run, night, testbed)
        named = pa.compute.match_substring_regex(
            pa.dataset.field("quantity"), f"^{_regex(quantity)}$"
        )
        with self._trouble():
            table = dataset.to_table(filter=named)
        return tidy(table.to_pandas(date_as_object=False))

    def query(self, sql: str) -> pd.DataFrame:
        """Ask anything in DuckDB's SQL of the views `rows`, `runs` and `tests`.

        `rows` is the data set itself, read in place: the columns of `frame` but with
        `instruments` as a list and all `conditions` as one JSON object. Only one statement
        that reads is taken; raises `QuestionError` for another, and for what DuckDB refuses.
        """
        with duckdb.connect() as connection:
            try:
                statements = connection.extract_statements(sql)
                if len(statements) != 1 or statements[0].type not in _READS:
                    raise QuestionError("expected one SELECT: results are read here, not changed")
                runs = self.runs()
                connection.register("rows", self._dataset("*", "*", "*"))
                connection.register("runs", runs_table(runs))
                connection.register("tests", tests_table(runs))
                return connection.execute(sql).df()
            except (duckdb.IOException, duckdb.InvalidInputException) as error:
                raise RecordError(f"{self._place.name}: {error}") from error
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
            return bytes(frame.to_csv(index=False, date_format="%Y-%m-%d").encode())
        return json.dumps(records(frame), ensure_ascii=False, indent=1).encode() + b"\n"

    def kept(self, run: RunFacts, name: str) -> bytes | None:
        """A file in the run's folder, such as a description; None if there is none."""
        name = f"runs/{run.run}/{name}"
        if name not in self._place.files(f"runs/{run.run}"):
            return None
        return self._place.read([name])[name]

    def _survey(self) -> Iterator[RunFacts | RecordError]:
        told = self._place.read(n for n in self._place.files("runs") if n.endswith(f"/{FACTS}"))
        for name, text in told.items():
            try:
                yield parse_facts(name, text)
            except RecordError as error:
                yield error
        # The rest was killed, still goes on, or is older than `run.json`; all that is local.
        folder = self._place.folder
        for journal in sorted(folder.glob(f"runs/*/{JOURNAL}")) if folder else ():
            if not journal.with_name(FACTS).exists():
                try:
                    yield _untold(journal)
                except JournalEmptyError:
                    continue
                except RecordError as error:
                    yield error

    def _dataset(self, run: str, night: str, testbed: str) -> pa.dataset.Dataset:
        wanted = re.compile(
            f"rows/testbed={_regex(testbed)}/night={_regex(night)}/{_regex(run)}[.]parquet"
        )
        files = [
            self._place.path(name)
            for name in self._place.files("rows")
            if wanted.fullmatch(unquote(name))
        ]
        with self._trouble():
            return open_dataset(files, self._place.path("rows"), self._place.filesystem)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise RecordError(f"{self._place.name}: {error}") from error


def _untold(journal: Path) -> RunFacts:
    # Asked before reading: a run that ends in between has a closing line.
    goes_on = is_written(journal)
    record = read_journal(journal)
    if record.complete:
        # The first schema had no `run.json`, only runs that were whole.
        return facts_of(record, "ended" if record.header["schema"] > 1 else "complete")
    return facts_of(record, "running" if goes_on else "killed")


def _regex(pattern: str) -> str:
    """The pattern as a regular expression that Python and Arrow read alike."""
    return "".join({"*": ".*", "?": "."}.get(c) or re.escape(c) for c in pattern)
