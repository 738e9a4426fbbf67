"""A pytest plugin that writes the outcomes of tests marked with claims; `make claims` loads it.

    pytest -p lightrig.harness.claims.record_tests -m claim

Each system whose claims the session tested gets its file of outcomes beside its published values.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from lightrig.harness.claims.covered_code import SystemCode, imported_names
from lightrig.harness.claims.published import published_files
from lightrig.harness.claims.tested import TestedClaim, TestOutcome, write_outcomes
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
        self._files: dict[str, dict[str, set[Path]]] = defaultdict(lambda: defaultdict(set))
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
                self._files[system][claim].add(item.path)
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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        day = f"{wall_time():%Y-%m-%d}"
        root = session.config.rootpath
        for name, claims in sorted(self._found.items()):
            system = installed_systems()[name]
            code = SystemCode(system)
            tested = {
                claim: TestedClaim(
                    frozenset(
                        module
                        for path in self._files[name][claim]
                        for source in (path, *_helpers(path, root))
                        for module in code.imported_by(source)
                    ),
                    tuple(outcomes),
                )
                for claim, outcomes in claims.items()
            }
            self.written.append(write_outcomes(published_files()[name], system, day, tested))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for path in self.written:
            terminalreporter.write_line(f"claims  {path}")


def _helpers(test: Path, root: Path) -> set[Path]:
    """Return the modules of tests below `root` that a file of tests imports, also by each other."""
    package = __name__.partition(".")[0]
    found = set[Path]()
    waiting = {test}
    while waiting:
        tree = ast.parse(waiting.pop().read_text(encoding="utf-8"))
        for name in imported_names(tree):
            for candidate in (name, name.rpartition(".")[0]):
                file = getattr(sys.modules.get(candidate), "__file__", None)
                path = Path(file or "/").resolve()
                of_tests = candidate.partition(".")[0] != package and root in path.parents
                if of_tests and "site-packages" not in path.parts and path not in found:
                    found.add(path)
                    waiting.add(path)
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Collect the outcomes of this session."""
    config.pluginmanager.register(_Recorder())
