"""pytest-xdist: one run of several processes, in which each testbed stays in one of them.

The main process has the run, its journal, the report and the events. Workers measure: their rows
go to journals of their own, which the main process reads as tests end; what else it has to know
of a test travels with the test's reports. Only documented hooks of pytest-xdist are used, except
that its scheduler by scope has no public method to say what a scope is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.ending import ending_unrecorded
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.record import Row, Scalar
from lightrig.harness.record.journal_reading import open_part, part_path
from lightrig.harness.run import context_of
from lightrig.harness.statistics import Verdict
from lightrig.testbeds import Limit

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench
    from lightrig.harness.plugin.observed import ObservedRun

_INPUT = "lightrig_run"
_OUTPUT = "lightrig_deselected"
_NOT_RESTORED = "lightrig_not_restored"


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one."""
    return hasattr(config, "workerinput")


class WorkerRun:
    """The run, as a worker knows it: its rows go to the worker's own journal.

    Args:
        config: of the worker.
    """

    def __init__(self, config: pytest.Config) -> None:
        given: Any = config
        folder, night = given.workerinput[_INPUT]
        self.folder = Path(folder)
        self.name = self.folder.name
        self._journal = open_part(self.folder, given.workerinput["workerid"], night)
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
        found = session.config.stash[DESELECTED]
        given.workeroutput[_OUTPUT] = {name: dict(each) for name, each in found.items()}
        given.workeroutput[_NOT_RESTORED] = self._not_restored


def show(run: ObservedRun, shown: Sequence[Mapping[str, Any]]) -> None:
    """Show what a worker kept to the run's observers."""
    for one in shown:
        if "verdict" in one:
            limit, verdict = one["verdict"]
            run.judged(one["test"], Limit(**limit), Verdict(**verdict))
        else:
            run.note(one["testbed"], one["note"], in_report=one["in_report"])


class MainProcess:
    """The side of the main process: gives workers their run, and testbeds to workers.

    Args:
        config: of the main process.
        run: to be shared.
    """

    def __init__(self, config: pytest.Config, run: ObservedRun) -> None:
        self._config = config
        self._run = run

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker the folder of the run."""
        node.workerinput[_INPUT] = (str(self._run.folder), self._run.night)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep each testbed on one worker; tests without a testbed stay with their file."""
        from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - it may be absent

        if config.getoption("dist") == "each":
            raise pytest.UsageError("--dist each would measure every testbed once on each worker")
        names = sorted((t.name for t in config.stash[TESTBEDS]), key=len, reverse=True)

        class OneWorkerForATestbed(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                file, _, test = nodeid.partition("::")
                parts = re.split(r"[\[\]/]", test)
                return next((name for name in names if name in parts), file)

        return OneWorkerForATestbed(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take over what a worker has recorded so far, before the test is noted as ended."""
        node: Any = getattr(report, "node", None)
        if node is not None:
            self._take_over(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the rest, and what the worker has deselected: all collect the same tests."""
        self._take_over(node)
        for testbed, problem in getattr(node, "workeroutput", {}).get(_NOT_RESTORED, ()):
            self._run.not_restored(testbed, problem)
        found = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if found is not None:
            reasons = {name: Counter(each) for name, each in found.items()}
            self._config.stash[DESELECTED] = reasons

    def _take_over(self, node: Any) -> None:
        with ending_unrecorded(self._config):
            self._run.taken_over(part_path(self._run.folder, node.workerinput["workerid"]))
