"""A pytest plugin that writes the outcomes of tests marked with claims; `make claims` loads it.

    pytest -p lightrig.harness.claims.record_tests -m claim

Each system whose claims the session tested gets its file of outcomes beside its published values.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from lightrig.harness.claims.published import published_files
from lightrig.harness.claims.tested import TestOutcome, write_outcomes
from lightrig.harness.system_registry import installed_systems
from lightrig.instruments.clock import wall_time

_LONGEST = 300
"""Characters of a reason."""


class _Recorder:
    """Collects the outcomes of a session's tests by claim."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[str, ...]] = {}
        self._found: dict[str, dict[str, list[TestOutcome]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.written: list[Path] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            names = [name for mark in item.iter_markers("claim") for name in mark.args]
            for name in names:
                system, _, claim = name.partition(":")
                if system not in installed_systems() or not claim:
                    known = ", ".join(installed_systems())
                    raise pytest.UsageError(
                        f"{item.nodeid}: found claim({name!r}), expected SYSTEM:CLAIM of {known}"
                    )
            self._claims[item.nodeid] = tuple(names)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known_exception = getattr(report, "wasxfail", None)
        if report.when != "call" and not report.failed:
            return
        if report.skipped and known_exception is None:
            return
        reason = known_exception
        if report.failed:
            reason = str(getattr(report.longrepr, "reprcrash", report.longrepr))
        case = report.nodeid.rpartition("::")[2]
        outcome = TestOutcome(case, reason is None, (reason or "")[:_LONGEST])
        for name in self._claims.get(report.nodeid, ()):
            system, _, claim = name.partition(":")
            self._found[system][claim].append(outcome)

    def pytest_sessionfinish(self) -> None:
        day = f"{wall_time():%Y-%m-%d}"
        for name, claims in sorted(self._found.items()):
            path = published_files()[name]
            self.written.append(write_outcomes(path, installed_systems()[name], day, claims))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for path in self.written:
            terminalreporter.write_line(f"claims  {path}")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the outcomes of this session."""
    config.pluginmanager.register(_Recorder())
