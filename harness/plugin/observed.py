"""A run that lets others look on while it is recorded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from harness.bench import Bench
from harness.record import Row, Scalar
from harness.run import Run
from harness.statistics import Verdict
from testbeds import Limit

Observer: TypeAlias = Callable[[str, bool, Sequence[Row]], None]
"""Is told of rows that were recorded: their test, whether anything was simulated, the rows."""

Judge: TypeAlias = Callable[[str, Limit, Verdict], None]
"""Is told of a verdict: the test that asked for it, the limit, the verdict."""

Finish: TypeAlias = Callable[[str, str, float, str], None]
"""Is told how a test ended: its node id, pytest's word, seconds, why it did not pass or ""."""

Note: TypeAlias = Callable[[str, str], None]
"""Is told what a person should know of a testbed: its name, and a sentence."""


class ObservedRun(Run):
    """A run that tells `observers` of all rows, once the journal has them.

    `finishes` are told of tests that have ended, `judges` of verdicts, `notes` of what a person
    should know.
    """

    observers: tuple[Observer, ...] = ()
    finishes: tuple[Finish, ...] = ()
    judges: tuple[Judge, ...] = ()
    notes: tuple[Note, ...] = ()

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
        """Keep how a test has ended, and tell of it."""
        super().test_finished(nodeid, outcome, duration_s, details)
        for finish in self.finishes:
            finish(nodeid, outcome, duration_s, details.get("why", ""))

    def judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        """Tell of a verdict."""
        for judge in self.judges:
            judge(test, limit, verdict)

    def note(self, testbed: str, sentence: str) -> None:
        """Tell what a person should know."""
        for note in self.notes:
            note(testbed, sentence)
