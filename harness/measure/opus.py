"""What a run of Opus has shown, as rows: rewirings, waits of operations, incidents."""

from collections.abc import Iterator, Mapping

from harness.bench.opus import Journal
from harness.fabrics.opus.auditor import Confirmed, Rewiring
from harness.record import Row, Scalar


def rows(journal: Journal) -> Iterator[Row]:
    """The run as rows.

    `opus.rewiring`: from the word to a switch until it was read back, of each change.
    `opus.wait`: how long each operation of each rank waited for its topology; an operation that
    had it already waited 0 ns, and is there as well.
    `opus.incident`: 1 for each thing that went wrong, with what and why.
    """
    told: dict[tuple[str, str], Rewiring] = {}
    for happening in journal.happenings:
        match happening:
            case Rewiring():
                told[happening.switch, happening.change] = happening
            case Confirmed():
                change = told[happening.switch, happening.change]
                length = happening.at - change.at
                moved = {"moved": len(change.add), "fallback": change.fallback}
                yield _time(happening.switch, "opus.rewiring", length, change.at, moved)
    # Ranks are side by side: at one moment, who came first is not part of what was measured.
    for wait in sorted(journal.waits, key=lambda wait: (wait.at, wait.rank, wait.operation)):
        about = {"operation": wait.operation}
        yield _time(f"rank {wait.rank}", "opus.wait", wait.length, wait.at, about)
    for incident in sorted(journal.incidents, key=lambda one: (one.at, one.rail, one.what)):
        why = {"what": incident.what, "why": incident.why}
        yield Row(f"rail {incident.rail}", "opus.incident", 1, 1, 1, "1", incident.at, why)


def _time(subject: str, quantity: str, length: int, at: int, about: Mapping[str, Scalar]) -> Row:
    return Row(subject, quantity, length, length, length, "ns", at, about)
