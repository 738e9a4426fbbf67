"""Events for other tools, one JSON object a line; docs/appendix/events.md describes them."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Self

import pytest

from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.keys import ENDED, LAB, OF_LAB, TESTBEDS
from lightrig.harness.plugin.parts import PORTS
from lightrig.harness.plugin.quantities import MedianFigure, Quantities
from lightrig.harness.record import Row
from lightrig.harness.run import ObservedRun
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.clock import SystemClock, wall_time
from lightrig.testbeds import Limit
from lightrig.testbeds.escaping import escape_control

VERSION = 1
EVERY = 1_000_000_000
"""Period, in ns, at which a running test's quantities are reported again."""


class Events:
    """Write an event for each step of a run as it happens."""

    def __init__(self, config: pytest.Config, run: ObservedRun, target: str) -> None:
        self._config = config
        self._run = run
        self._clock = SystemClock()
        self._to_stdout = target == "-"
        self._on_stderr: pytest.TerminalReporter | None = None
        # While tests run, descriptor 1 leads elsewhere.
        file = os.dup(sys.stdout.fileno()) if self._to_stdout else target
        self._file: IO[str] | None = open(file, "w", encoding="utf-8")  # noqa: SIM115
        self._quantities: dict[str, Quantities] = {}
        self._of_lab: set[str] = set()
        self._ports: dict[str, str] = {}
        self._written_at = 0
        self._count = 0
        self._any_collected = False
        run.observers = (*run.observers, self._recorded)
        run.finishes = (*run.finishes, self._finished)
        run.finders = (*run.finders, self._found)
        run.judges = (*run.judges, self._judged)
        run.notes = (*run.notes, self._noted)
        run.failed_restores = (*run.failed_restores, self._not_restored)

    @classmethod
    def wanted(cls, config: pytest.Config, run: ObservedRun) -> Self | None:
        """The writer that `--json` asks for, if it does; `UsageError` for a file that cannot be."""
        target: str | None = config.getoption("lightrig_json")
        if target is None:
            return None
        try:
            return cls(config, run, target)
        except OSError as error:
            raise pytest.UsageError(f"--json {target}: {error.strerror}") from error

    def _write(self, event: str, **fields: Any) -> None:
        if self._file is None:
            return
        record = {"event": event, "time": wall_time().isoformat(timespec="milliseconds"), **fields}
        try:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        except OSError as error:
            # Whoever listened has gone, or the disk is full; the run goes on.
            print(escape_control(f"lightrig: no more events: {error}"), file=sys.stderr)
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()

    # ---------------------------------------------------------------------------- the run

    def pytest_plugin_registered(
        self, plugin: object, plugin_name: str, manager: pytest.PytestPluginManager
    ) -> None:
        """Move the terminal to standard error where events take standard output."""
        if self._to_stdout and plugin_name == "terminalreporter" and plugin is not self._on_stderr:
            manager.unregister(plugin)
            self._on_stderr = pytest.TerminalReporter(self._config, sys.stderr)
            manager.register(self._on_stderr, plugin_name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Begin."""
        self._write(
            "run_started",
            version=VERSION,
            run=self._run.name,
            testbeds={t.name: str(t.path) for t in self._config.stash[TESTBEDS]},
            instruments=self._config.option.instruments,
            seed=self._config.getoption("seed"),
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report the number of collected tests."""
        self._collected(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Report it once the first worker has collected; all workers collect the same tests."""
        if not self._any_collected:
            self._collected(len(ids))

    def _collected(self, tests: int) -> None:
        self._any_collected = True
        self._write("tests_collected", tests=tests)

    def deselected(self) -> None:
        """Report the tests that each testbed cannot run, with reasons, when workers end."""
        for testbed, reasons in self._config.stash[DESELECTED].items():
            fields = {"tests": sum(reasons.values()), "reasons": dict(reasons)}
            self._write("tests_deselected", testbed=testbed, **fields)

    def finished(self, exitstatus: int, report: Path | None) -> None:
        """Report that the run has ended and its report is written."""
        self.deselected()
        journal = self._run.folder / "journal.jsonl"
        self._write(
            "run_finished",
            exit=exitstatus,
            ended=self._config.stash.get(ENDED, None),
            **({"cause": LAB} if self._config.stash.get(OF_LAB, False) else {}),
            report=str(report) if report else None,
            journal=str(journal) if journal.exists() else None,
        )
        if self._file is not None:
            self._file.close()

    # -------------------------------------------------------------------------- its tests

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._quantities[nodeid] = Quantities()
        self._count += 1
        self._written_at = self._clock.now()
        self._write("test_started", test=nodeid, number=self._count)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep that a test failed by trouble of the lab, or was not over all ports."""
        if ports := getattr(report, "lightrig", {}).get(PORTS):
            self._ports[report.nodeid] = ports
        if getattr(report, "lightrig", {}).get("cause") == LAB:
            self._of_lab.add(report.nodeid)

    def _finished(self, test: str, outcome: str, duration: float, why: str) -> None:
        for figure in self._quantities.pop(test, Quantities()).figures():
            self._figure(test, figure, final=True)
        cause = {"cause": LAB} if test in self._of_lab else {}
        self._of_lab.discard(test)
        ports = {"ports": self._ports.pop(test)} if test in self._ports else {}
        fields = {
            **cause,
            **ports,
            "outcome": outcome,
            "duration_s": round(duration, 6),
            "why": why or None,
        }
        self._write("test_finished", test=test, **fields)

    def _found(self, test: str, finding: Mapping[str, Any]) -> None:
        self._write("finding", test=test, **finding)

    def _recorded(self, test: str, simulated: bool, rows: Sequence[Row]) -> None:
        quantities = self._quantities.setdefault(test, Quantities())
        quantities.add(simulated, rows)
        if self._clock.now() - self._written_at >= EVERY:
            for figure in quantities.figures():
                self._figure(test, figure, final=False)
            self._written_at = self._clock.now()

    def _figure(self, test: str, figure: MedianFigure, *, final: bool) -> None:
        self._write("quantity", test=test, **asdict(figure), final=final)

    def _judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        self._write(
            "verdict",
            test=test,
            quantity=limit.quantity,
            limit=str(limit),
            outcome=verdict.shown,
            n=verdict.n,
            needed=verdict.needed,
            reason=verdict.reason,
        )

    def _noted(self, testbed: str, note: str) -> None:
        self._write("note", testbed=testbed, note=note)

    def _not_restored(self, testbed: str, problem: str) -> None:
        self._write("not_restored", testbed=testbed, problem=problem)
