"""Plugin: list the tests that passed without any assertion of theirs having passed.

`make test-asserted` runs it every night. An assertion under an `if`, or in a loop over nothing, may
never run. Only assertions of test files and conftest are seen; tests that expect an error, a
warning or a state of a page in their own body count as tests that assert.
"""

from collections.abc import Iterator

import pytest

EXPECTING = frozenset({"raises", "warns", "expect", "fail"})


class PassedAssertions:
    """Notes which tests pass an assertion; in workers of pytest-xdist by a field of the report."""

    def __init__(self) -> None:
        self._asserted: set[str] = set()
        self.without: list[str] = []

    def pytest_assertion_pass(self, item: pytest.Item) -> None:
        self._asserted.add(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Iterator[None]:  # a generator that returns the report
        report = yield
        code = getattr(getattr(item, "function", None), "__code__", None)
        expects = code is not None and not EXPECTING.isdisjoint(code.co_names)
        report.asserted = expects or item.nodeid in self._asserted
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and not report.asserted:
            self.without.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        number = len(self.without)
        terminalreporter.section(f"{number} tests passed without a passed assertion")
        for nodeid in sorted(self.without):
            terminalreporter.write_line(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getini("enable_assertion_pass_hook"):
        raise pytest.UsageError("add -o enable_assertion_pass_hook=true")
    config.pluginmanager.register(PassedAssertions(), "passed-assertions")
