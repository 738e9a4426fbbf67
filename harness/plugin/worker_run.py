"""The run as a worker of pytest-xdist knows it, and what it keeps for the main process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lightrig.harness.record import Row, Scalar
from lightrig.harness.record.journal_reading import open_part
from lightrig.harness.run import context_of
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.testbeds import Limit

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench
    from lightrig.harness.run import ObservedRun

INPUT = "lightrig_run"
OUTPUT = "lightrig_deselected"
NOT_RESTORED = "lightrig_not_restored"


class WorkerRun:
    """The run, as a worker knows it: its rows go to the worker's own journal.

    Args:
        config: of the worker.
        deselected: returns how many tests were deselected, by testbed and reason.
    """

    def __init__(
        self, config: pytest.Config, deselected: Callable[[], Mapping[str, Mapping[str, int]]]
    ) -> None:
        given: Any = config
        folder, self.night = given.workerinput[INPUT]
        self.folder = Path(folder)
        self.name = self.folder.name
        self._journal = open_part(self.folder, given.workerinput["workerid"], self.night)
        self._deselected = deselected
        self._shown: list[dict[str, Any]] = []
        self._not_restored: list[tuple[str, str]] = []

    def recorder(
        self, bench: Bench, test: str, conditions: Mapping[str, Scalar]
    ) -> Callable[[Sequence[Row]], None]:
        """A function that appends rows of `test`."""
        context = context_of(bench, test, conditions)
        return lambda rows: self._journal.append_many(context, rows)

    def judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        """Keep a verdict for the test's next report."""
        plain = json.dumps([asdict(limit), asdict(verdict)], default=int)  # no numbers of numpy
        self._shown.append({"test": test, "verdict": json.loads(plain)})

    def note(self, testbed: str, sentence: str, *, in_report: bool = False) -> None:
        """Keep a sentence for the test's next report."""
        self._shown.append({"testbed": testbed, "note": sentence, "in_report": in_report})

    def not_restored(self, testbed: str, problem: str) -> None:
        """Keep what is not as it was found for the end of the worker."""
        self._not_restored.append((testbed, problem))

    def shown(self) -> list[dict[str, Any]]:
        """Verdicts and sentences since the last call, as plain values."""
        found, self._shown = self._shown, []
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what was deselected, and what was not restored, to the main process.

        Last: pytest's own hook may still take fixtures down, which restores.
        """
        given: Any = session.config
        found = self._deselected()
        given.workeroutput[OUTPUT] = {name: dict(each) for name, each in found.items()}
        given.workeroutput[NOT_RESTORED] = self._not_restored


def show(run: ObservedRun, shown: Sequence[Mapping[str, Any]]) -> None:
    """Show what a worker kept to the run's observers."""
    for one in shown:
        if "verdict" in one:
            limit, verdict = one["verdict"]
            run.judged(one["test"], Limit(**limit), Verdict(**verdict))
        else:
            run.note(one["testbed"], one["note"], in_report=one["in_report"])
