"""Bringing a run to its end: by itself, or later where its own process could not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from lightrig.harness.record.digests import digest_of
from lightrig.harness.record.journal import is_written, locked
from lightrig.harness.record.journal_reading import RunRecord, absorb, read_journal
from lightrig.harness.record.places import left_by_the_killed
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

JOURNAL = "journal.jsonl"
REPORT = "report.html"
_NIGHTS = "testbed=*/night=*"

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
    """
    from lightrig.harness.record.dataset import write_dataset  # noqa: PLC0415 - loads pyarrow

    journal, report = folder / JOURNAL, folder / REPORT
    results = folder.parent.parent
    record = read_journal(journal, salvage=salvage)
    facts = facts_of(record, state_of(record.summary))
    digests = _digests_before(folder)
    by_hand = facts.by_hand
    rows = {
        name: results / plain_file(name, facts.night, facts.run, by_hand=by_hand)
        for name in facts.testbeds
    }
    if any(path.exists() for path in rows.values()):
        # Rows that are written again may have other digests: the run has not ended meanwhile.
        (folder / FACTS).unlink(missing_ok=True)
    files = write_dataset(record, results / (BY_HAND if by_hand else ROWS))
    if write_page is not None and (record.damage or not (record.complete and report.exists())):
        try:
            write_page(record, load_descriptions(record), report)
        except OSError as error:
            raise RecordError(f"{report}: {error.strerror}") from error
    try:
        digests |= {name: digest_of(path) for name, path in rows.items() if path.exists()}
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from error
    facts = replace(facts, digests=digests, files=file_digests(folder))
    write_facts(facts, folder)
    return Recovered(record, facts, files, report if report.exists() else None)


def _digests_before(folder: Path) -> dict[str, str]:
    """Return the digests of a run that has ended before: those of compacted rows stay."""
    try:
        return dict(parse_facts(str(folder / FACTS), (folder / FACTS).read_bytes()).digests)
    except (FileNotFoundError, RecordError):
        return {}


def recover(folder: Path, write_page: WritePage | None = None) -> Recovered:
    """Bring a run to its end whose process was killed: data set, report, and publication.

    `folder` is the run's, with its journal. Nothing that had been acknowledged is missing, and
    half-written files are removed. A run that ended by itself is settled again.

    Raises `JournalInUseError` for a run that still goes on, `JournalEmptyError` for one that was
    killed before it could record anything, and `RecordError` for what cannot be reached or
    written. Lines that are not what was written are left out, and named in `RunFacts.damage`.
    """
    with locked(folder / JOURNAL):
        results = folder.parent.parent
        nights = (each for rows in (ROWS, BY_HAND) for each in (results / rows).glob(_NIGHTS))
        for place in (folder, *nights):
            for name in (FACTS, REPORT, f"{folder.name}.parquet"):
                for left in left_by_the_killed(place, name):
                    left.unlink(missing_ok=True)
        absorb(folder, folder / JOURNAL)
        recovered = settle(folder, write_page, salvage=True)
        if location := recovered.record.header.get("publish"):
            publish(folder, location)
    return recovered


def to_recover(results: Path) -> Iterator[Path]:
    """The folders of runs that were killed, or could not be published, below `results`."""
    for journal in sorted(results.glob(f"runs/*/{JOURNAL}")):
        folder = journal.parent
        try:
            facts = parse_facts(str(folder / FACTS), (folder / FACTS).read_bytes())
        except (FileNotFoundError, RecordError):
            done = False
        else:
            done = not facts.header.get("publish") or is_published(folder)
        if not done and not is_written(journal):
            yield folder
