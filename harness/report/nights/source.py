"""Source of the nights: the data set by Arrow and DuckDB, and files that runs stored beside it.

Arrow and DuckDB are imported where they read: `night` and reports of one run load none.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.record import RecordError
from lightrig.harness.record.journal import check_header
from lightrig.harness.record.nights import StoredNights
from lightrig.harness.record.places import Place
from lightrig.harness.record.row import RowError
from lightrig.harness.record.rows_check import check_rows
from lightrig.harness.record.rows_files import RowsFile, reading, stored_rows
from lightrig.harness.record.run_folder import load_quantities_of_runs
from lightrig.testbeds import LightrigError, Testbed, load
from lightrig.testbeds.json_text import from_json

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset

_NUMBERED = """(
SELECT *, row_number() OVER (PARTITION BY testbed, run) - 1 AS file_row_number FROM elsewhere
)"""


class Source:
    """The results at a path or URL; raises `RecordError` for what cannot be reached or read.

    last: the number of days, up to the last one, whose nights are read; None for all. until: the
    date of the last one, if it is not the newest. through: a run of the last one; what later nights
    of its date have is left out. testbeds: those that are read. run: the only run that is read.
    """

    def __init__(
        self,
        location: str | Path | Place,
        last: int | None = None,
        *,
        until: str = "",
        through: str = "",
        testbeds: Collection[str] | None = None,
        run: str = "",
    ) -> None:
        self._place = location if isinstance(location, Place) else Place(location)
        self._run, self._until = run, until
        self._after: frozenset[str] = frozenset()
        found = stored_rows(self._place)
        if run:
            found = [file for file in found if run in {name for _, name in file.nights_and_runs()}]
        latest = until
        while found and not latest:
            # Stray files may name a night that nothing was measured in.
            night = max(_nights(file)[-1] for file in found)
            of_night = [file for file in found if _nights(file)[-1] == night]
            checked = check_rows(self._place, of_night)
            strays = {file.name for file in of_night} - {file.name for file in checked}
            found = [file for file in found if file.name not in strays]
            latest = night if checked else ""
        self._since = ""
        if last is not None and latest:
            first = datetime.date.fromisoformat(latest) - datetime.timedelta(last - 1)
            self._since = str(first)
        # Opening a file takes a millisecond, and a year of fifty testbeds has 1,650.
        found = [file for file in found if any(map(self._has, _nights(file)))]
        self._sharing = len({file.testbed for file in found})
        if testbeds is not None:
            found = [file for file in found if file.testbed in testbeds]
        self._found = check_rows(self._place, found)
        self.nights = StoredNights(self._place, self._found)
        if through:
            self._after = frozenset(self._later(through))
        self._files = [file.name for file in self._found if file.runs is None]
        self._compacted = [file.name for file in self._found if file.runs is not None]
        load_quantities_of_runs(self._place, frozenset(self._runs()))

    @property
    def place(self) -> Place:
        """Where the results are."""
        return self._place

    @property
    def testbeds(self) -> list[str]:
        """Names of the testbeds."""
        return sorted({file.testbed for file in self._found})

    @property
    def sharing(self) -> int:
        """The number of testbeds of these nights, whether they are read or not."""
        return self._sharing

    def _later(self, through: str) -> Iterator[str]:
        """Yield the runs that are of the date of `through`, and of a later night."""
        for testbed in self.testbeds:
            of_date = [
                run
                for file in self._found
                if file.testbed == testbed
                for date, run in file.nights_and_runs()
                if date == self._until
            ]
            if through in of_date:
                last = self.nights.of(testbed, self._until, through)
                yield from (r for r in of_date if self.nights.of(testbed, self._until, r) > last)

    def parts(
        self, testbed: str, columns: Sequence[str], texts: Sequence[str], rows: int
    ) -> Iterator[pa.Table]:
        """Yield some columns of a testbed's rows: whole nights, about `rows` rows at a time.

        texts: columns that come as dictionaries.
        """
        import pyarrow as pa

        from lightrig.harness.record.dataset_reading import open_dataset

        files = {self._place.path(f.name): f for f in self._found if f.testbed == testbed}
        with reading(self._place):
            check_rows(self._place, files.values())
            try:
                root, filesystem = self._place.path("rows"), self._place.filesystem
                dataset = open_dataset(list(files), root, filesystem, texts)
                waiting: list[pa.dataset.Fragment] = []
                count, until, whole = 0, "", True
                for fragment in dataset.get_fragments():
                    file = files[fragment.path]
                    nights = [night for night in _nights(file) if self._has(night)]
                    if count >= rows and nights[0] > until:
                        yield self._table(dataset, waiting, columns, whole=whole)
                        waiting, count, whole = [], 0, True
                    whole = whole and all(self._has(*each) for each in file.nights_and_runs())
                    waiting.append(fragment)
                    count += fragment.count_rows()
                    until = max(until, nights[-1])
                yield self._table(dataset, waiting, columns, whole=whole)
            except (OSError, pa.ArrowException) as error:
                raise RecordError(f"{self._place.name}: {error}") from error

    def _table(
        self,
        dataset: pa.dataset.Dataset,
        fragments: Sequence[pa.dataset.Fragment],
        columns: Sequence[str],
        *,
        whole: bool,
    ) -> pa.Table:
        import pyarrow.dataset

        from lightrig.harness.record.dataset_reading import check_complete

        part = pyarrow.dataset.FileSystemDataset(
            fragments, dataset.schema, dataset.format, dataset.filesystem
        )
        # A condition on rows copies all that meet it, so it is made only where some do not.
        table = part.to_table(columns=list(columns), filter=None if whole else self._condition())
        check_complete(table)
        return table

    def _has(self, night: str, run: str = "") -> bool:
        """Return whether a night, or a run of it, is one to read."""
        among = night >= self._since and (not self._until or night <= self._until)
        return among and (not self._run or run in {"", self._run}) and run not in self._after

    def _condition(self) -> pa.dataset.Expression:
        from pyarrow.dataset import field

        night, run = field("night"), field("run")
        chosen = night >= datetime.date.fromisoformat(self._since or "0001-01-01")
        if self._until:
            chosen &= night <= datetime.date.fromisoformat(self._until)
        if self._after:
            chosen &= ~run.isin(sorted(self._after))
        return chosen & (run == self._run) if self._run else chosen

    def _runs(self) -> Iterator[str]:
        for file in self._found:
            yield from (run for night, run in file.nights_and_runs() if self._has(night, run))

    @contextmanager
    def connected(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection with the data set as its views `found`, and `recent` of the nights to read.

        Its columns are those of the data set and `file_row_number`, which is 0 in the first row
        of each run's rows.
        """
        import duckdb

        from lightrig.harness.record.dataset_reading import open_dataset, present_names

        with reading(self._place), duckdb.connect() as connection:
            check_rows(self._place, self._found)
            try:
                # It would write over whatever the program prints.
                connection.execute("SET enable_progress_bar = false")
                paths = [self._place.path(name) for name in self._files]
                compacted = [self._place.path(name) for name in self._compacted]
                if self._place.folder is not None and (paths or compacted):
                    # Twice as fast as what also reads from elsewhere.
                    parts = [_parquet(paths)] if paths else []
                    parts += [_compacted(compacted)] if compacted else []
                    every = " UNION ALL BY NAME ".join(f"FROM {part}" for part in parts)
                    every = present_names(f"({every})", tests=False)
                    connection.execute(f"CREATE VIEW found AS {every}")
                else:
                    paths += compacted
                    root, files = self._place.path("rows"), self._place.filesystem
                    connection.register("elsewhere", open_dataset(list(files), root, files))
                    every = present_names(_NUMBERED, tests=False)
                    connection.execute(f"CREATE VIEW found AS {every}")
                since = f"WHERE night >= '{self._since}'" if self._since else ""
                connection.execute(f"CREATE VIEW recent AS FROM found {since}")
                yield connection
            except duckdb.Error as error:
                raise RecordError(f"{self._place.name}: {error}") from error

    def descriptions(self, connection: duckdb.DuckDBPyConnection) -> Descriptions:
        """Return the testbed descriptions of the runs; none where the results are not a folder."""
        return Descriptions(self, self._headers(connection))

    def folder(self, run: str) -> Path | None:
        """The folder of a run, if it is still there."""
        if self._place.folder is None:
            return None
        folder = self._place.folder / "runs" / run
        return folder if folder.is_dir() else None

    def reported(self, run: str) -> bool:
        """Whether the report of a run is still there."""
        folder = self.folder(run)
        return folder is not None and (folder / "report.html").is_file()

    def _headers(self, connection: duckdb.DuckDBPyConnection) -> Mapping[str, Mapping[str, Any]]:
        paths = [self._place.path(name) for name in (*self._files, *self._compacted)]
        if self._place.folder is None or not paths:
            return {}
        found = connection.execute(
            "SELECT DISTINCT decode(key), decode(value) FROM parquet_kv_metadata($paths)"
            " WHERE decode(key) IN ('lightrig.header', 'lightrig.runs')",
            {"paths": paths},
        ).fetchall()
        try:
            headers = [from_json(text) for key, text in found if key == "lightrig.header"]
            for key, text in found:
                if key == "lightrig.runs":
                    headers += [run["header"] for run in from_json(text).values()]
            for header in headers:
                check_header(header)
            return {header["run"]: header for header in headers}
        except (RowError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{self._place.name}: the header of a run in the data set is damaged: {error!r}"
            ) from error


class Descriptions:
    """The descriptions of testbeds that runs kept beside their journals, by testbed and run.

    headers: of the runs, by their names.
    """

    def __init__(self, source: Source, headers: Mapping[str, Mapping[str, Any]]) -> None:
        self._source, self.headers = source, headers
        self._loaded: dict[bytes, Testbed | None] = {}

    def differ(self, testbed: str, run: str, later: str) -> bool:
        """Whether both runs kept a description, and not the same."""
        ours, theirs = self._path(testbed, run), self._path(testbed, later)
        if ours is None or theirs is None:
            return False
        return ours.read_bytes() != theirs.read_bytes()

    def load(self, testbed: str, run: str) -> Testbed | None:
        """The testbed as it was then; None if nothing was kept that this version can read."""
        path = self._path(testbed, run)
        if path is None:
            return None
        # Most nights have the same description, and a file takes a tenth of a second.
        content = path.read_bytes()
        if content not in self._loaded:
            try:
                self._loaded[content] = load(path, quantities=names_in_files())
            except (LightrigError, OSError):
                self._loaded[content] = None
        return self._loaded[content]

    def _path(self, testbed: str, run: str) -> Path | None:
        name = self.headers.get(run, {}).get("descriptions", {}).get(testbed)
        folder = self._source.folder(run) if name else None
        return folder / name if folder is not None and (folder / name).is_file() else None


def _nights(file: RowsFile) -> list[str]:
    """Return the nights of which `file` has rows."""
    return sorted(file.runs.nights) if file.runs else [file.night]


def _compacted(paths: Sequence[str]) -> str:
    types = "hive_partitioning = true, hive_types = {testbed: VARCHAR}"
    rows = f"read_parquet([{_quoted(paths)}], {types})"
    return f"(SELECT * EXCLUDE (row), row AS file_row_number FROM {rows})"  # noqa: S608


def _quoted(paths: Sequence[str]) -> str:
    return ", ".join("'" + path.replace("'", "''") + "'" for path in paths)


def _parquet(paths: Sequence[str]) -> str:
    types = "hive_partitioning = true, hive_types = {testbed: VARCHAR, night: DATE}"
    return f"read_parquet([{_quoted(paths)}], {types}, file_row_number = true)"
