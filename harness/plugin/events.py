"""Events for other tools, one JSON object a line; `docs/events.md` is their description."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Self

import pytest

from harness.plugin.keys import ENDED, TESTBEDS
from harness.plugin.observed import ObservedRun
from harness.plugin.quantities import Figure, Quantities
from harness.record import Row
from harness.statistics import Verdict
from instruments.clock import SystemClock, wall_time
from testbeds import Limit

VERSION = 1
EVERY = 1_000_000_000
"""How long a test goes on, in ns, before its quantities are told of again."""


class Events:
    """Writes an event for all that happens in a run, as it happens."""

    def __init__(self, config: pytest.Config, run: ObservedRun, target: str) -> None:
        self._config = config
        self._run = run
        self._clock = SystemClock()
        self._to_stdout = target == "-"
        # While tests run, descriptor 1 leads elsewhere.
        file = os.dup(sys.stdout.fileno()) if self._to_stdout else target
        self._file: IO[str] | None = open(file, "w", encoding="utf-8")  # noqa: SIM115
        self._quantities = Quantities()
        self._told_at = 0
        self._count = 0
        run.observers = (*run.observers, self._recorded)
        run.finishes = (*run.finishes, self._finished)
        run.judges = (*run.judges, self._judged)
        run.notes = (*run.notes, self._noted)

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
            print(f"lightrig: no more events: {error}", file=sys.stderr)
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()

    # ---------------------------------------------------------------------------- the run

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Begin; where events take standard output, people read standard error."""
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if self._to_stdout and reporter is not None:
            from _pytest.config import create_terminal_writer  # noqa: PLC0415

            reporter._tw = create_terminal_writer(self._config, sys.stderr)  # noqa: SLF001
        self._write(
            "run_started",
            version=VERSION,
            run=self._run.name,
            testbeds={t.name: str(t.path) for t in self._config.stash[TESTBEDS]},
            instruments=self._config.getoption("instruments"),
            seed=self._config.getoption("seed"),
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """How many tests there are."""
        self._write("tests_collected", tests=len(session.items))

    def finished(self, exitstatus: int, report: Path | None) -> None:
        """The run has ended, and its report is there."""
        self._write(
            "run_finished",
            exit=exitstatus,
            ended=self._config.stash.get(ENDED, None),
            report=str(report) if report else None,
            journal=str(self._run.folder / "journal.jsonl"),
        )
        if self._file is not None:
            self._file.close()

    # -------------------------------------------------------------------------- its tests

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._quantities = Quantities()
        self._count += 1
        self._told_at = self._clock.now()
        self._write("test_started", test=nodeid, number=self._count)

    def _finished(self, test: str, outcome: str, duration: float, why: str) -> None:
        for figure in self._quantities.figures():
            self._figure(test, figure, final=True)
        self._quantities = Quantities()
        fields = {"outcome": outcome, "duration_s": round(duration, 6), "why": why or None}
        self._write("test_finished", test=test, **fields)

    def _recorded(self, test: str, simulated: bool, rows: Sequence[Row]) -> None:
        self._quantities.add(simulated, rows)
        if self._clock.now() - self._told_at >= EVERY:
            for figure in self._quantities.figures():
                self._figure(test, figure, final=False)
            self._told_at = self._clock.now()

    def _figure(self, test: str, figure: Figure, *, final: bool) -> None:
        self._write("quantity", test=test, **asdict(figure), final=final)

    def _judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        self._write(
            "verdict",
            test=test,
            quantity=limit.quantity,
            limit=str(limit),
            outcome=verdict.outcome,
            n=verdict.n,
            needed=verdict.needed,
            reason=verdict.reason,
        )

    def _noted(self, testbed: str, note: str) -> None:
        self._write("note", testbed=testbed, note=note)
