"""Rows of a run of Opus: rewirings, waits of operations, incidents."""

from collections.abc import Iterator, Mapping

from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.opus.planning.run_events import Confirmed, Rewiring
from lightrig.harness.systems.opus.runtime.rails import Journal


def rows(journal: Journal) -> Iterator[Row]:
    """The run as rows.

    `opus.rewiring`: from the word to a switch until it was read back, of each change.
    `opus.wait`: how long each operation of each rank waited for its topology; an operation that
    had it already waited 0 ns, and is there as well.
    `opus.incident`: 1 for each thing that went wrong, with what and why.
    """
    changes_by_number: dict[tuple[str, str], Rewiring] = {}
    for event in journal.events:
        match event:
            case Rewiring():
                changes_by_number[event.switch, event.change] = event
            case Confirmed():
                change = changes_by_number[event.switch, event.change]
                length = event.at - change.at
                moved = {"moved": len(change.add), "fallback": change.fallback}
                yield _time(event.switch, "opus.rewiring", length, change.at, moved)
    # Ranks are side by side: at one moment, who came first is not part of what was measured.
    for wait in sorted(journal.waits, key=lambda wait: (wait.at, wait.rank, wait.operation)):
        about = {"operation": wait.operation}
        yield _time(f"rank {wait.rank}", "opus.wait", wait.length, wait.at, about)
    for incident in sorted(journal.incidents, key=lambda one: (one.at, one.rail, one.what)):
        why = {"what": incident.what, "why": incident.why}
        yield Row(f"rail {incident.rail}", "opus.incident", 1, 1, 1, "1", incident.at, why)


def _time(subject: str, quantity: str, length: int, at: int, about: Mapping[str, Scalar]) -> Row:
    return Row(subject, quantity, length, length, length, "ns", at, about)
