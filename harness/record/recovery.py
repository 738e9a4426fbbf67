"""Bringing a run to its end: by itself, or later where its own process could not."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from lightrig.harness.record.digests import digest_of
from lightrig.harness.record.journal import is_written, locked
from lightrig.harness.record.journal_reading import RunRecord, absorb, read_journal
from lightrig.harness.record.places import Place, appearing
from lightrig.harness.record.row import RecordError
from lightrig.harness.record.rows_files import BY_HAND, ROWS, plain_file
from lightrig.harness.record.run_folder import (
    FACTS,
    RunFacts,
    facts_of,
    file_digests,
    is_published,
    load_descriptions,
    parse_facts,
    publish,
    state_of,
    write_facts,
)
from lightrig.testbeds import Testbed
from lightrig.testbeds.regular_files import folder_below, read_regular

JOURNAL = "journal.jsonl"
REPORT = "report.html"

WritePage: TypeAlias = Callable[[RunRecord, Mapping[str, Testbed], Path], None]
"""Writes a run's report to a path, whole: of its record and its testbeds, as described then."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A run that is whole again, as far as it went.

    files: its part of the data set. report: its HTML report, if there is one.
    """

    record: RunRecord
    facts: RunFacts
    files: tuple[Path, ...]
    report: Path | None


def settle(
    folder: Path, write_page: WritePage | None = None, *, salvage: bool = False
) -> Recovered:
    """Bring what the journal in `folder` says to the data set, and note that in `run.json`.

    With `write_page` the report is made too, if there is none or it was made before the run
    had ended. Doing it again does the same again. salvage: leave damaged lines out, and note them.
    No link below the results is followed.
    """
    from lightrig.harness.record.dataset import write_dataset  # noqa: PLC0415 - loads pyarrow

    journal, report = folder / JOURNAL, folder / REPORT
    results = folder.parent.parent
    record = read_journal(journal, salvage=salvage, below=results)
    facts = facts_of(record, state_of(record.summary))
    earlier = _facts_before(folder)
    digests = dict(earlier.digests) if earlier is not None else {}
    by_hand = facts.by_hand
    rows = {
        name: results / plain_file(name, facts.night, facts.run, by_hand=by_hand)
        for name in facts.testbeds
    }
    if any(path.exists() for path in rows.values()):
        # Rows that are written again may have other digests: the run has not ended meanwhile.
        _forget(folder)
    files = write_dataset(record, results / (BY_HAND if by_hand else ROWS))
    if write_page is not None and (record.damage or not (record.complete and report.exists())):
        try:
            with tempfile.TemporaryDirectory() as draft, appearing(report, results) as hidden:
                write_page(record, load_descriptions(record), Path(draft, REPORT))
                shutil.copyfile(Path(draft, REPORT), hidden)
        except OSError as error:
            raise RecordError(f"{report}: {error.strerror}") from error
    try:
        digests |= {
            name: digest_of(path.relative_to(results), results)
            for name, path in rows.items()
            if path.exists()
        }
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from error
    facts = replace(facts, digests=digests, files=file_digests(folder))
    write_facts(facts, folder)
    return Recovered(record, facts, files, report if report.exists() else None)


def _facts_before(folder: Path) -> RunFacts | None:
    """Return what a run that has ended before states: its digests of compacted rows stay.

    None where there is nothing of it, or nothing that can be read.
    """
    path, results = folder / FACTS, folder.parent.parent
    try:
        return parse_facts(str(path), read_regular(path.relative_to(results), None, results))
    except (OSError, RecordError):
        return None


def _forget(folder: Path) -> None:
    try:
        with folder_below(folder.parent.parent, Path(*folder.parts[-2:])) as opened:
            (opened / FACTS).unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from error


def recover(folder: Path, write_page: WritePage | None = None) -> Recovered:
    """Bring a run to its end whose process was killed: data set, report, and publication.

    `folder` is the run's, with its journal. Nothing that had been acknowledged is missing, and
    half-written files are removed. A run that ended by itself is settled again.

    Raises `JournalInUseError` for a run that still goes on, `JournalEmptyError` for one that was
    killed before it could record anything, and `RecordError` for what cannot be reached or
    written. Lines that are not what was written are left out, and named in `RunFacts.damage`.
    Results in which the run's folder has a link are left as they are.
    """
    results = folder.parent.parent
    place = Place(results)
    within = f"runs/{folder.name}"
    for name in place.files(within):
        if os.path.islink(place.path(name)):
            raise RecordError(f"{place.path(name)} is a link, and none is followed here")
    with locked(folder / JOURNAL, results):
        for below in (within, *_nights(place)):
            for name in (FACTS, REPORT, f"{folder.name}.parquet"):
                place.remove_drafts(below, name)
        absorb(folder, folder / JOURNAL, results)
        recovered = settle(folder, write_page, salvage=True)
        if location := recovered.record.header.get("publish"):
            publish(folder, location)
    return recovered


def _nights(place: Place) -> Iterator[str]:
    """Yield the folders of rows of single runs."""
    for rows in (ROWS, BY_HAND):
        for testbed in place.folders(rows):
            yield from (f"{rows}/{testbed}/{night}" for night in place.folders(f"{rows}/{testbed}"))


def to_recover(results: Path) -> Iterator[Path]:
    """The folders of runs that were killed, or could not be published, below `results`."""
    for journal in sorted(results.glob(f"runs/*/{JOURNAL}")):
        folder = journal.parent
        facts = _facts_before(folder)
        done = facts is not None and (not facts.header.get("publish") or is_published(folder))
        if not done and not is_written(journal):
            yield folder
