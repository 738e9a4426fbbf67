"""The run itself: what begins it, what ends it, and what is left of it however it ends."""

import gc
import shlex
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from harness.plugin.events import Events
from harness.plugin.keys import BENCHES, ENDED, NOTES, RUN, TESTBEDS
from harness.plugin.live import Live
from harness.plugin.observed import ObservedRun
from harness.plugin.outcomes import Outcomes
from harness.plugin.page import Page
from harness.plugin.patience import uninterrupted
from harness.plugin.repeating import Repeats
from harness.record import RecordError
from harness.report import lines
from testbeds import TestbedError, load

PAGE = pytest.StashKey[Page]()
EVENTS = pytest.StashKey[Events | None]()
TOLD = pytest.StashKey[bool]()
"""Whether the terminal has been told where the results are."""


def pytest_configure(config: pytest.Config) -> None:
    """Read the testbeds and begin the run."""
    given: list[str] = config.getoption("testbed")
    try:
        testbeds = config.stash[TESTBEDS] = [load(file) for file in given]
    except (TestbedError, OSError) as error:
        raise pytest.UsageError(str(error)) from error
    names = [testbed.name for testbed in testbeds]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"two testbeds have the same name: {', '.join(names)}")
    if config.option.collectonly:
        return
    try:
        run = ObservedRun(
            config.getoption("results") or config.rootpath / "results",
            {
                "seed": config.getoption("seed"),
                "instruments": config.getoption("instruments"),
                "command": shlex.join(["pytest", *config.invocation_params.args]),
                "testbeds": {t.name: str(t.path) for t in testbeds},
            },
            config.getoption("publish"),
        )
    except RecordError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[RUN] = run
    config.stash[BENCHES], config.stash[NOTES] = {}, {}
    outcomes = Outcomes(config, Repeats(config, dict(zip(names, given, strict=True))))
    config.stash[PAGE] = Page(config, run, outcomes)
    config.stash[EVENTS] = events = Events.wanted(config, run)
    for name, part in {
        "outcomes": outcomes,
        "page": config.stash[PAGE],
        "ends": _Ends(config, outcomes),
        "live": Live(config, run),
        **({"events": events} if events else {}),
    }.items():
        config.pluginmanager.register(part, f"lightrig-{name}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminated)


def _terminated(number: int, _frame: FrameType | None) -> None:
    """A terminated night, or a closed terminal, puts the switches back like Ctrl-C."""
    raise KeyboardInterrupt(f"terminated by {signal.Signals(number).name}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep what is loaded and collected out of garbage collections until the tests have run.

    Going through it again and again takes a seventh of a run of 5,000 short tests.
    """
    gc.freeze()


class _Ends:
    """Learns why a run ended before its tests did."""

    def __init__(self, config: pytest.Config, outcomes: Outcomes) -> None:
        self._config = config
        self._outcomes = outcomes

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep why somebody, or the lab, ended the run."""
        error = excinfo.value
        if isinstance(error, pytest.exit.Exception):
            self._ended(error.msg)
        else:
            self._ended(f"interrupted: {error}" if str(error) else "interrupted")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep what broke the run."""
        self._ended(f"internal error: {excinfo.exconly()}")

    def _ended(self, reason: str) -> None:
        running = self._outcomes.running
        self._config.stash[ENDED] = f"{reason}\nwhile {running} ran" if running else reason


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """End the journal, before the report is made from it; make one if nobody else did.

    After a Ctrl-C, and with `-x`, the fixtures still stand here: pytest takes them down in
    this hook, after us, and only then are the switches put back.
    """
    gc.unfreeze()
    run = session.config.stash.get(RUN, None)
    if run is None:
        return (yield)
    with uninterrupted():
        try:
            run.close(_summary(session, exitstatus))
        except Exception as error:  # whatever it is, the switches come next
            print(f"lightrig: the record is incomplete: {error}", file=sys.stderr)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        try:
            return (yield)
        finally:
            _leave(session.config, int(session.exitstatus))


def _summary(session: pytest.Session, exitstatus: int) -> dict[str, Any]:
    stash = session.config.stash
    summary: dict[str, Any] = {"exit": int(exitstatus), "tests": session.testscollected}
    if ENDED in stash:
        summary["ended"] = stash[ENDED]
    if notes := {name: each for name, each in stash[NOTES].items() if each}:
        summary["notes"] = notes
    return summary


def _leave(config: pytest.Config, exitstatus: int) -> None:
    """Whatever has happened: a report, the run where it was to be published, a last event."""
    page, events = config.stash[PAGE], config.stash[EVENTS]
    try:
        page.ensure()
        config.stash[RUN].publish()
    except (RecordError, OSError) as error:
        print(f"lightrig: {error}", file=sys.stderr)
    if events is not None:
        events.finished(exitstatus, page.path)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was measured, and where the results are."""
    _tell(config, terminalreporter)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say it after an end of which pytest tells no summary: the lab's, or an error inside."""
    _tell(config, config.pluginmanager.getplugin("terminalreporter"))


def _tell(config: pytest.Config, reporter: Any) -> None:
    run = config.stash.get(RUN, None)
    if run is None or reporter is None or TOLD in config.stash:
        return
    config.stash[TOLD] = True
    page = config.stash[PAGE]
    reporter.section("lightrig")
    try:
        for line in lines(page.frame):
            reporter.write_line(line)
    except RecordError as error:
        reporter.write_line(f"the record cannot be read: {error}", red=True)
    if page.path is not None:
        reporter.write_line(f"report   {page.path}")
    reporter.write_line(f"journal  {run.folder / 'journal.jsonl'}")
