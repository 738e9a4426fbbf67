"""A run that lets others look on while it is recorded."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from lightrig.harness.bench import Bench
from lightrig.harness.record import Row, Scalar
from lightrig.harness.run import Run
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.testbeds import Limit

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
    ) -> None:
        super().__init__(results, header, location, name)
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
