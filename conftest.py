"""A checkout: the testbed of `pytest suites` where none is named, skips, lists of tests."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lightrig.instruments.namespaces.namespaces import OBSTACLE

ROOT = Path(__file__).parent

FEW = 5
"""How many failures `--write-failed` lists: more are no chance."""

# Reasons of skips by the test's id, or that of a file which is skipped whole.
_skipped: dict[str, str] = {}
# Ids of tests of which a part has failed, and of files that could not be collected.
_failed: set[str] = set()


def pytest_lightrig_testbeds(config: pytest.Config) -> Sequence[Path] | None:
    """The published Opus testbed, for the suites alone: the project's own tests measure nothing."""
    asked = (config.invocation_params.dir / name.partition("::")[0] for name in config.args)
    if any(path.resolve().is_relative_to(ROOT / "suites") for path in asked):
        return [ROOT / "testbeds" / "opus.yaml"]
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allowed-skips",
        type=Path,
        metavar="FILE",
        help="fail where a test is skipped for a reason that begins with no line of FILE",
    )
    parser.addoption(
        "--write-skipped",
        type=Path,
        metavar="FILE",
        help="write the ids of skipped tests; `pytest @FILE` runs them, on another machine",
    )
    parser.addoption(
        "--write-failed",
        type=Path,
        metavar="FILE",
        help=f"write the ids of failed tests, where that is all that failed and at most {FEW}; "
        "`pytest @FILE` runs them once more",
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)
    # An inconclusive test has run; it is skipped for plugins that know pytest's outcomes alone.
    undecided = getattr(report, "inconclusive", None) is not None
    if report.skipped and not undecided and isinstance(report.longrepr, tuple):
        _skipped[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # Loaded with suites that `--pyargs` names, this file comes too late for options of its own.
    file = session.config.getoption("--write-skipped", None)
    if file is not None and not hasattr(session.config, "workerinput"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{each}\n" for each in sorted(_skipped)))
    forbidden = list(_forbidden(session.config))
    file = session.config.getoption("--write-failed", None)
    if file is not None and not hasattr(session.config, "workerinput"):
        alone = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not forbidden
        listed = sorted(_failed) if alone and len(_failed) <= FEW else []
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{each}\n" for each in listed))
    if forbidden and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Iterator[None]:
    yield
    # After pytest's own list, which has many lines where a machine makes no namespaces.
    obstacles = [OBSTACLE + reason.partition(OBSTACLE)[2] for reason in _skipped.values()]
    for obstacle, count in Counter(obstacles).items():
        if obstacle != OBSTACLE:
            tests = "test was" if count == 1 else "tests were"
            terminalreporter.write_line(f"{count} {tests} left out: {obstacle}", yellow=True)
    for reason in _forbidden(config):
        terminalreporter.write_line(f"skip that is not permitted: {reason}", red=True)


def _forbidden(config: pytest.Config) -> Iterator[str]:
    """Return the reasons of skips that the file of `--allowed-skips` does not list."""
    file = config.getoption("--allowed-skips", None)
    if file is None:
        return iter(())
    allowed = tuple(filter(None, file.read_text().splitlines()))
    reasons = _skipped.values()
    return (reason for reason in reasons if not allowed or not reason.startswith(allowed))
