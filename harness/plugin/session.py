"""The run itself: what it measures, what ends it, and what is left of it."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from harness.report import RunFrame, collect, lines, sections
from harness.run import Run
from testbeds import Testbed, TestbedError, load

RUN = pytest.StashKey[Run]()
TESTBEDS = pytest.StashKey[list[Testbed]]()
FRAME = pytest.StashKey[RunFrame]()


def pytest_configure(config: pytest.Config) -> None:
    """Read the testbeds and begin the run."""
    try:
        config.stash[TESTBEDS] = [load(file) for file in config.getoption("testbed")]
    except (TestbedError, OSError) as error:
        raise pytest.UsageError(str(error)) from error
    names = [testbed.name for testbed in config.stash[TESTBEDS]]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"two testbeds have the same name: {', '.join(names)}")
    if config.option.collectonly:
        return
    run = Run(
        config.getoption("results") or config.rootpath / "results",
        {
            "seed": config.getoption("seed"),
            "instruments": config.getoption("instruments"),
            "command": shlex.join(["pytest", *config.invocation_params.args]),
            "testbeds": {t.name: str(t.path) for t in config.stash[TESTBEDS]},
        },
    )
    config.stash[RUN] = run
    if config.pluginmanager.hasplugin("html") and not config.option.htmlpath:
        config.option.htmlpath = str(run.report)
        config.option.self_contained_html = True
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminated)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    """A terminated night, or a closed terminal, puts the switches back like Ctrl-C."""
    raise KeyboardInterrupt("terminated")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Nobody's patience ends while the switches are put back."""
    ends = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ends}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_summary(prefix: list[str], session: pytest.Session) -> None:
    """Put what was measured on top of the report."""
    run = session.config.stash.get(RUN, None)
    if run is not None:
        described = {t.name: t for t in session.config.stash[TESTBEDS]}
        prefix.append(sections(run.record(), described, _collected(session.config)))


def _collected(config: pytest.Config) -> RunFrame:
    """The run's rows, read once."""
    if FRAME not in config.stash:
        config.stash[FRAME] = collect(config.stash[RUN].record())
    return config.stash[FRAME]


@pytest.hookimpl(optionalhook=True)
def pytest_html_report_title(report: Any) -> None:
    """Name the page."""
    report.title = "Lightrig"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """End the journal, before the report is made from it.

    After a Ctrl-C, and with `-x`, the fixtures still stand here: pytest takes them down in
    this hook, after us, and only then are the switches put back.
    """
    run = session.config.stash.get(RUN, None)
    if run is None:
        return (yield)
    with uninterrupted():
        try:
            run.close({"exit": int(exitstatus), "tests": session.testscollected})
        except Exception as error:  # whatever it is, the switches come next
            print(f"lightrig: the record is incomplete: {error}", file=sys.stderr)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was measured, and where the results are."""
    run = config.stash.get(RUN, None)
    if run is not None:
        terminalreporter.section("lightrig")
        for line in lines(_collected(config)):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"report   {run.report}")
        terminalreporter.write_line(f"journal  {run.folder / 'journal.jsonl'}")
