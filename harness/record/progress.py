"""A run while it goes on, read from its journal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrig.harness.record.journal import is_written
from lightrig.harness.record.journal_reading import parts_of, read_journal
from lightrig.harness.record.recovery import JOURNAL
from lightrig.harness.record.row import RecordError, TestOutcome

_WRONG = frozenset(("failed", "error", "xpassed"))


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a run so far.

    Attributes:
        run: its name.
        goes_on: whether a process still writes the journal.
        outcomes: number of ended tests by outcome.
        problems: tests that failed or are inconclusive, the latest last.
        latest: the test that ended last; None before the first.
        rows: rows in the journal, by testbed.
    """

    run: str
    goes_on: bool
    outcomes: Mapping[str, int]
    problems: Sequence[TestOutcome]
    latest: TestOutcome | None
    rows: Mapping[str, int]

    @property
    def is_wrong(self) -> bool:
        """Whether any test has failed so far."""
        return any(self.outcomes.get(outcome) for outcome in _WRONG)


def newest_journal(results: Path) -> Path:
    """Return the journal of the run that began last; raises `RecordError` if there is none."""
    journals = sorted(results.glob(f"runs/*/{JOURNAL}"))
    if not journals:
        raise RecordError(f"{results}: no run has a journal here")
    return max(journals, key=lambda journal: (is_written(journal), journal.parent.name))


def read_progress(journal: Path) -> Progress:
    """Return how far the run of a journal is; raises `RecordError` for one that is none.

    Of a run with several processes, rows count from when their test has ended.
    """
    goes_on = is_written(journal) or any(map(is_written, parts_of(journal.parent)))
    record = read_journal(journal)
    rows: Counter[str] = Counter()
    for number, context in record.contexts.items():
        rows[context.testbed] += record.counts[number]
    last = {test.nodeid: test for test in record.tests}
    problems = [
        test for test in last.values() if test.outcome in _WRONG or test.outcome == "inconclusive"
    ]
    return Progress(
        str(record.header["run"]),
        goes_on,
        Counter(test.outcome for test in last.values()),
        problems,
        record.tests[-1] if record.tests else None,
        rows,
    )
