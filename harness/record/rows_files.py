"""Files that have the rows of the data set: one a run and testbed, or compacted ones.

`rows/compacted.json` names the compacted files and the runs in each; what it does not name are the
files of single runs. `harness.record.compaction` writes it. Runs by hand have theirs in a folder of
their own, `by_hand/`, never compacted: what reads nights does not read that.
"""

import contextlib
import datetime
import fcntl
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from lightrig.harness.record.digests import checked_digests, with_digest, without_digest
from lightrig.harness.record.places import Place
from lightrig.harness.record.row import RecordError
from lightrig.testbeds.regular_files import open_to_append

MANIFEST = "rows/compacted.json"
READERS = "rows/.readers"
"""The file whose lock readers share: nothing that they may read is removed meanwhile."""

_SCHEMA = 1
ROWS, BY_HAND = "rows", "by_hand"
"""The folders of rows: of runs that belong to a night, and of those by hand."""

_PLAIN = re.compile(r"(?:rows|by_hand)/testbed=([^/]+)/night=([^/]+)/([^/]+)[.]parquet")
_COMPACTED = re.compile(r"rows/testbed=[^/]+/[^/.][^/]*[.]parquet")


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compacted file, named from the results on, and the rows of each of its runs by night.

    digest: its SHA-256 digest; empty for one of an earlier version.
    Raises `ValueError` for what no compacted file can be.
    """

    name: str
    nights: Mapping[str, Mapping[str, int]]
    digest: str = ""

    def __post_init__(self) -> None:
        if not _COMPACTED.fullmatch(self.name):
            raise ValueError(f"{self.name!r} can be no compacted file")
        if not self.nights:
            raise ValueError(f"{self.name} has no nights")
        for night, runs in self.nights.items():
            if datetime.date.fromisoformat(night).isoformat() != night:
                raise ValueError(f"{self.name}: {night!r} is no night")
            if not all(type(rows) is int and rows >= 0 for rows in runs.values()):
                raise ValueError(f"{self.name}, {night}: numbers of rows are none")

    @property
    def testbed(self) -> str:
        """The testbed whose rows it has."""
        return unquote(self.name.split("/")[1].removeprefix("testbed="))

    @property
    def names(self) -> frozenset[str]:
        """The runs in it."""
        return frozenset(run for runs in self.nights.values() for run in runs)

    def rows_file(self) -> "RowsFile":
        """Return it as one of the files that have the rows."""
        return RowsFile(self.name, self.testbed, min(self.nights), "", self)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The compacted files of results."""

    files: tuple[Compacted, ...] = ()

    def text(self) -> str:
        """Return the manifest as JSON."""
        files = {file.name: file.nights for file in self.files}
        digests = {file.name: file.digest for file in self.files if file.digest}
        return with_digest({"schema": _SCHEMA, "files": files, "digests": digests})


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A file with rows of `testbed`; of one `run` of one `night`, or, compacted, of `runs`."""

    name: str
    testbed: str
    night: str
    run: str
    runs: Compacted | None = None

    @property
    def by_hand(self) -> bool:
        """Whether it is of a run by hand."""
        return self.name.startswith(f"{BY_HAND}/")

    def nights_and_runs(self) -> Iterator[tuple[str, str]]:
        """Yield night and name of each run in it."""
        if self.runs is None:
            yield self.night, self.run
        else:
            yield from ((night, run) for night, runs in self.runs.nights.items() for run in runs)


def folder_of(testbed: str, *, by_hand: bool = False) -> PurePosixPath:
    """Return the name, from the results on, of the folder of a testbed's rows."""
    return PurePosixPath(BY_HAND if by_hand else ROWS, f"testbed={quote(testbed, safe='')}")


def plain_file(testbed: str, night: str, run: str, *, by_hand: bool = False) -> PurePosixPath:
    """Return the name, from the results on, of the file of one run on one testbed."""
    return folder_of(testbed, by_hand=by_hand) / f"night={night}" / f"{run}.parquet"


def read_manifest(place: Place) -> Manifest:
    """Return the compacted files of the results; raises `RecordError` for a damaged list."""
    return parse_manifest(place.name, place.read_if_there(MANIFEST))


def parse_manifest(name: str, text: bytes | None) -> Manifest:
    """Return the manifest that `text` is; raises `RecordError` with `name` if it is none."""
    if text is None:
        return Manifest()
    try:
        document = without_digest(text)
        if document["schema"] != _SCHEMA:
            raise RecordError(
                f"{name}: found {MANIFEST} of schema {document['schema']}, expected {_SCHEMA}; "
                "read it with the version of Lightrig that wrote it"
            )
        digests = checked_digests(document.get("digests", {}))
        files = tuple(
            Compacted(file, nights, digests.get(file, ""))
            for file, nights in document["files"].items()
        )
        parts = [(file.testbed, run) for file in files for run in file.names]
        if len(set(parts)) < len(parts):
            raise ValueError("two of its files have rows of the same run")
        return Manifest(files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{name}: {MANIFEST} is damaged: {error!r}; bring it back from a copy of the results: "
            "it alone tells which runs the compacted files have"
        ) from error


def stored_rows(place: Place, below: str = ROWS, *, by_hand: bool = False) -> list[RowsFile]:
    """Return the files that have the rows now, of all testbeds or of those `below` a folder.

    by_hand: those of runs by hand too.

    The manifest is read after the list of files: what is compacted in between is then read from
    the compacted file, and was not listed twice.
    """
    names = [*place.files(below)]
    if by_hand:
        names += place.files(below.replace(ROWS, BY_HAND, 1))
    matches = [match for name in names if (match := _PLAIN.fullmatch(name))]
    manifest = read_manifest(place)
    compacted = {
        (testbed, night, run)
        for file in manifest.files
        for testbed in (file.testbed,)
        for night, runs in file.nights.items()
        for run in runs
    }
    found = [
        RowsFile(match[0], unquote(match[1]), _night(place, match), unquote(match[3]))
        for match in matches
    ]
    found = [file for file in found if (file.testbed, file.night, file.run) not in compacted]
    found += [
        file.rows_file()
        for file in manifest.files
        if file.name.startswith(f"{'/'.join(below.split('/')[:2])}/")
    ]
    return sorted(found, key=lambda file: (file.testbed, file.night, file.run))


def _night(place: Place, match: re.Match[str]) -> str:
    night = unquote(match[2])
    try:
        if datetime.date.fromisoformat(night).isoformat() == night:
            return night
    except ValueError:
        pass
    raise RecordError(
        f"{place.name}: {match[0]} is of no night, YYYY-MM-DD; move it out of the results"
    )


@contextlib.contextmanager
def reading(place: Place) -> Iterator[None]:
    """Keep files that are replaced meanwhile, where the results are a folder with locks."""
    with contextlib.ExitStack() as stack:
        if place.folder is not None:
            with contextlib.suppress(OSError):
                file = stack.enter_context(open_to_append(place.folder, READERS))
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
