"""What holds for all of the project's own tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")
"""Beginnings of the reasons for which a test may be skipped in CI, one a line."""

# In CI the examples are always the same; at a desk each run looks for new ones.
hypothesis.settings.register_profile(
    "tests", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
hypothesis.settings.load_profile("tests")

_skipped: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        _skipped.append(report.longrepr[2].removeprefix("Skipped: "))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CI") and list(_forgotten()) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in _forgotten() if os.environ.get("CI") else ():
        terminalreporter.write_line(f"skip not on {ALLOWED_SKIPS.name}: {reason}", red=True)


def _forgotten() -> Iterator[str]:
    allowed = tuple(filter(None, ALLOWED_SKIPS.read_text().splitlines()))
    return (reason for reason in _skipped if not allowed or not reason.startswith(allowed))
