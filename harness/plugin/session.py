"""The run itself: what begins it, what ends it, and what is left of it however it ends."""

import atexit
import shlex
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

import pytest

from lightrig.harness.bench.lab_folder import LabFolderError, make_stated_folder
from lightrig.harness.bench.restoring import NOT_AS_FOUND
from lightrig.harness.garbage import exclude_present, paused, spare_last_collection
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.ending import EndShield
from lightrig.harness.plugin.events import Events
from lightrig.harness.plugin.expected_duration import ExpectedDuration
from lightrig.harness.plugin.faults import Faults
from lightrig.harness.plugin.junit import add_outcomes
from lightrig.harness.plugin.keys import (
    BENCHES,
    ENDED,
    FILES,
    LAB,
    OF_LAB,
    OPENED,
    RUN,
    TESTBEDS,
    UNRECORDED,
)
from lightrig.harness.plugin.live import Live
from lightrig.harness.plugin.outcomes import Outcomes, Reports, Undecided, was_ended_by_lab
from lightrig.harness.plugin.page import Page
from lightrig.harness.plugin.parts import Parts
from lightrig.harness.plugin.relocks import is_by_hand
from lightrig.harness.plugin.repeating import Repeats
from lightrig.harness.plugin.soaks import prepare_soak
from lightrig.harness.plugin.timeouts import Timeouts
from lightrig.harness.plugin.traces import TRAFFIC, Traces
from lightrig.harness.plugin.worker_run import WorkerRun
from lightrig.harness.plugin.workers import MainProcess, described, is_worker
from lightrig.harness.record import RecordError, store_quantities
from lightrig.harness.record.run_folder import TRACES
from lightrig.harness.report import summary_lines
from lightrig.harness.report.run_page import not_applicable
from lightrig.harness.run import ObservedRun
from lightrig.testbeds import Testbed, TestbedError
from lightrig.testbeds.escaping import escape_control
from lightrig.testbeds.exceptions import ExceptionsError
from lightrig.testbeds.out_of_service import plan_sentences
from lightrig.testbeds.timezones import ZoneError, common_zone

PAGE = pytest.StashKey[Page]()
EVENTS = pytest.StashKey[Events | None]()
OUTCOMES = pytest.StashKey[Outcomes]()
FINISHED = pytest.StashKey[bool]()
"""Present once the session is being finished, which closes the journal."""
EMPTY = pytest.StashKey[bool]()
"""Present where no test has begun, so that the session leaves no run."""
SHIELD = pytest.StashKey[EndShield]()
SHOWN = pytest.StashKey[bool]()
"""Whether the terminal shows already where the results are."""
INCLUDE_AGAIN = pytest.StashKey[Callable[[], None]]()

WHOLE_REASONS = 2
"""Verbosity from which on pytest's summary has whole lines."""

_HYPOTHESIS = "_hypothesis_pytestplugin"
"""Module of Hypothesis's plugin."""


def pytest_configure(config: pytest.Config) -> None:
    """Read the testbeds and begin the run."""
    # Clean-ups run in reverse order, so this one comes after pytest's last collections.
    config.add_cleanup(partial(_include_again, config))
    if config.option.collectonly:
        atexit.register(spare_last_collection)
    given = config.stash[FILES]
    try:
        testbeds = config.stash[TESTBEDS] = [described(config, file) for file in given]
    except (TestbedError, ExceptionsError, OSError) as error:
        raise pytest.UsageError(str(error)) from error
    names = [testbed.name for testbed in testbeds]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"two testbeds have the same name: {', '.join(names)}")
    for testbed in testbeds:
        if testbed.out and testbed.nic_ports and not testbed.working_ports:
            raise pytest.UsageError(
                f"every port of {testbed.name} is out of service: {testbed.out}\n"
                f"  try       `lightrig in {testbed.path} PORT`"
            )
    if config.option.collectonly:
        return
    config.stash[BENCHES] = {}
    config.stash[OPENED] = {}
    config.stash[SHIELD] = EndShield()
    repeats = Repeats(config, dict(zip(names, given, strict=True)))
    config.pluginmanager.register(Parts(config), "lightrig-parts")
    config.pluginmanager.register(Undecided(), "lightrig-undecided")
    config.pluginmanager.register(Reports(config, repeats), "lightrig-reports")
    config.pluginmanager.register(Faults(config), "lightrig-faults")
    config.stash[TRAFFIC] = Traces(config)
    config.pluginmanager.register(config.stash[TRAFFIC], "lightrig-traces")
    config.pluginmanager.register(Timeouts(config), "lightrig-timeouts")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            config.stash[SHIELD].handle(number, _terminated)
    if is_worker(config):
        config.stash[RUN] = worker = WorkerRun(
            config, partial(config.stash.__getitem__, DESELECTED)
        )
        config.pluginmanager.register(worker, "lightrig-worker")
        return
    try:
        make_stated_folder()
        results = config.getoption("results") or config.rootpath / "results"
        soak = prepare_soak(config, testbeds, results)
        header = {
            "seed": config.getoption("seed"),
            "instruments": config.option.instruments,
            "command": shlex.join(["pytest", *config.invocation_params.args]),
            "testbeds": {t.name: str(t.path) for t in testbeds},
            "testbed_order": [t.name for t in testbeds],
            **soak,
            **({"out": out} if (out := _out_of_service(testbeds)) else {}),
            **({"by_hand": True} if is_by_hand(config) else {}),
            **({"relock": True} if config.getoption("relock") else {}),
        }
        run = ObservedRun(
            results,
            header,
            config.getoption("publish"),
            config.getoption("run_name"),
            common_zone((testbed.name, testbed.timezone) for testbed in testbeds),
        )
    except (RecordError, LabFolderError, ZoneError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[RUN] = run
    outcomes = config.stash[OUTCOMES] = Outcomes(config, run)
    config.stash[PAGE] = Page(config, run, outcomes)
    try:
        config.stash[EVENTS] = events = Events.wanted(config, run)
    except pytest.UsageError:
        run.discard()  # pytest does not end a plugin whose beginning it has refused
        raise
    for name, part in {
        "outcomes": outcomes,
        "page": config.stash[PAGE],
        "ends": Ends(config, outcomes),
        "main": MainProcess(config, run),
        "live": Live(config, run),
        "expected-duration": ExpectedDuration(config, run, header),
        **({"events": events} if events else {}),
    }.items():
        config.pluginmanager.register(part, f"lightrig-{name}")


def _out_of_service(testbeds: Sequence[Testbed]) -> dict[str, dict[str, list[str]]]:
    """Return which ports are out, and how many are left of plans, by the testbed's name."""
    return {
        testbed.name: {
            "ports": sorted(map(str, testbed.out.ports)),
            "plans": plan_sentences(testbed),
        }
        for testbed in testbeds
        if testbed.out
    }


def _include_again(config: pytest.Config) -> None:
    config.stash.get(INCLUDE_AGAIN, lambda: None)()


def _terminated(number: int, _frame: FrameType | None) -> None:
    """A terminated night, or a closed terminal, puts the switches back like Ctrl-C."""
    raise KeyboardInterrupt(f"terminated by {signal.Signals(number).name}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Shield the end of an interrupted run; pytest itself would take further signals first."""
    try:
        return (yield)
    except KeyboardInterrupt:
        if (shield := session.config.stash.get(SHIELD, None)) is not None:
            shield.begin()
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests, and no garbage meanwhile: what is made lives as long as the session."""
    with paused():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Store what conftests have declared, and keep what is loaded out of garbage collections.

    Going through it again and again takes a seventh of a run of 5,000 short tests, and pytest
    does it five times more at its end.
    """
    if (run := session.config.stash.get(RUN, None)) is not None:
        store_quantities(run.folder)
    session.config.stash[INCLUDE_AGAIN] = exclude_present()


class Ends:
    """Records why a run ended before its tests did."""

    def __init__(self, config: pytest.Config, outcomes: Outcomes) -> None:
        self._config = config
        self._outcomes = outcomes

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_keyboard_interrupt(
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> Iterator[None]:
        """Store why the user or the lab ended the run."""
        self._config.stash[SHIELD].begin()
        error = excinfo.value
        if isinstance(error, pytest.exit.Exception):
            self._ended(error.msg)
            self._config.stash[OF_LAB] = was_ended_by_lab(error)
        else:
            self._ended(f"interrupted: {error}" if str(error) else "interrupted")
        try:
            yield
        except MemoryError:  # of what pytest writes about it, which parses whole source files
            sys.stderr.write(f"lightrig: {self._config.stash[ENDED]}\n")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep what broke the run, and report a limit of the machine by a sentence."""
        self._ended(f"internal error: {excinfo.exconly()}")
        _report_limit(excinfo.value)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self) -> Iterator[None]:
        """Return to the verbosity that the summary has changed."""
        verbose = self._config.option.verbose
        try:
            yield
        finally:
            self._config.option.verbose = verbose

    def _ended(self, reason: str) -> None:
        running = self._outcomes.running
        self._config.stash[ENDED] = f"{reason}\nwhile {running} ran" if running else reason


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """Restore the laboratory, end the journal, then let the report be made from it.

    After a Ctrl-C, and with `-x`, the fixtures still stand here. Pytest would take them down in
    this hook too, but after the data set is written: seconds on a busy machine, in which whoever
    terminated the run may kill it, with the switches not yet put back.
    """
    run = session.config.stash.get(RUN, None)
    if not isinstance(run, ObservedRun):
        return (yield)
    session.config.stash[SHIELD].begin()
    session.config.stash[FINISHED] = True
    failure = _take_down(session)
    _fail_inconclusive(session)
    try:
        if _is_empty(session.config, run):
            session.config.stash[EMPTY] = True
            session.config.stash[PAGE].withdraw()
        else:
            run.close(_summary(session, run))
    except RecordError as error:
        if UNRECORDED not in session.config.stash:
            print(escape_control(f"lightrig: the record is incomplete: {error}"), file=sys.stderr)
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    except Exception as error:  # whatever it is, the report comes next
        print(escape_control(f"lightrig: the record is incomplete: {error!r}"), file=sys.stderr)
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    _leave_out_hypothesis(session.config)
    try:
        # As where pytest takes them down itself: no other plugin's end follows, and the report is
        # made from the journal, which knows what was not run.
        if failure is not None:
            raise failure
        return (yield)
    except MemoryError as error:  # of the page, or of another plugin's report
        _report_limit(error)
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        return None
    finally:
        if run.failures_to_restore:
            session.exitstatus = NOT_AS_FOUND
        _leave(session.config, run, int(session.exitstatus))


def _report_limit(error: BaseException) -> None:
    """Report on standard error which limit of the machine an error means, if any."""
    from lightrig.instruments.machine_limits import refused_by_machine  # noqa: PLC0415 - seldom

    if (refused := refused_by_machine(error)) is not None:
        print(escape_control(f"lightrig: {refused}"), file=sys.stderr)


def _is_empty(config: pytest.Config, run: ObservedRun) -> bool:
    """Whether no test has begun, and nothing else has happened that a run would record.

    So it is where options select no test, where they are wrong, and where pytest only lists what
    there is. As a run without rows it would be the last one in `lightrig results` and in metrics.
    """
    begun = OUTCOMES in config.stash and config.stash[OUTCOMES].has_begun
    return not (begun or ENDED in config.stash or run.failures_to_restore)


def _take_down(session: pytest.Session) -> BaseException | None:
    """Take down what fixtures still stand; return what failed."""
    try:
        session._setupstate.teardown_exact(None)  # noqa: SLF001 - what pytest does next, earlier
    except BaseException as error:  # raised later: the record comes first
        return error
    return None


def _leave_out_hypothesis(config: pytest.Config) -> None:
    """Unregister Hypothesis's plugin from a run that has not used it.

    Its summary would import all of Hypothesis: most of what a terminated run does after the
    signal, a minute on a machine that is busy.
    """
    if "hypothesis" in sys.modules:
        return
    for plugin in config.pluginmanager.get_plugins():
        if getattr(plugin, "__name__", "") == _HYPOTHESIS:
            config.pluginmanager.unregister(plugin)


def _fail_inconclusive(session: pytest.Session) -> None:
    """With `--fail-inconclusive`, end like a run in which a test failed."""
    outcomes = session.config.stash[OUTCOMES]
    wanted = session.config.getoption("fail_inconclusive")
    if wanted and outcomes.inconclusive and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _summary(session: pytest.Session, run: ObservedRun) -> dict[str, Any]:
    stash = session.config.stash
    summary: dict[str, Any] = {"exit": int(session.exitstatus), "tests": session.testscollected}
    if ENDED in stash:
        summary["ended"] = stash[ENDED]
    if stash.get(OF_LAB, False):
        summary["cause"] = LAB
    if run.failures_to_restore:
        summary["not_restored"] = run.failures_to_restore
    if run.report_notes:
        summary["notes"] = run.report_notes
    if stash[DESELECTED]:
        summary["deselected"] = {name: dict(each) for name, each in stash[DESELECTED].items()}
    return summary


def _leave(config: pytest.Config, run: ObservedRun, exitstatus: int) -> None:
    """Write the report, publish the run and end the events, whatever has happened."""
    page, events = config.stash[PAGE], config.stash[EVENTS]
    try:
        if EMPTY in config.stash:
            run.discard()
        else:
            page.finish()
            run.publish()
    except (RecordError, OSError) as error:
        if UNRECORDED not in config.stash:
            print(escape_control(f"lightrig: {error}"), file=sys.stderr)
    except MemoryError as error:
        _report_limit(error)
    cause = LAB if config.stash.get(OF_LAB, False) else None
    add_outcomes(config, config.stash[OUTCOMES].reruns, cause)
    if events is not None:
        events.finished(exitstatus, page.path)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show what was measured, and where the results are."""
    _show(config, terminalreporter)
    if isinstance(config.stash.get(RUN, None), ObservedRun):
        # In the summary that follows pytest cuts reasons to the terminal, unless it is verbose.
        config.option.verbose = max(config.option.verbose, WHOLE_REASONS)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Show it after an end without pytest's summary: the lab's, or an internal error."""
    run = config.stash.get(RUN, None)
    if isinstance(run, ObservedRun) and FINISHED not in config.stash:
        # Ended by wrong options, or while pytest-xdist started its workers: pytest finishes no
        # such session.
        try:
            if _is_empty(config, run):
                config.stash[EMPTY] = config.stash[SHOWN] = True
                run.discard()
            else:
                ended = config.stash.get(ENDED, "ended before the session had begun")
                run.close({"exit": int(pytest.ExitCode.INTERRUPTED), "tests": 0, "ended": ended})
        except (RecordError, OSError) as error:
            print(escape_control(f"lightrig: the record is incomplete: {error}"), file=sys.stderr)
    _show(config, config.pluginmanager.getplugin("terminalreporter"))
    if (shield := config.stash.get(SHIELD, None)) is not None:
        shield.end()


def _show(config: pytest.Config, reporter: Any) -> None:
    run = config.stash.get(RUN, None)
    if not isinstance(run, ObservedRun) or reporter is None or SHOWN in config.stash:
        return
    config.stash[SHOWN] = True
    page = config.stash[PAGE]
    reporter.section("lightrig")
    empty = EMPTY in config.stash
    try:
        for line in () if empty else summary_lines(page.frame):
            reporter.write_line(escape_control(line))
    except RecordError as error:
        reporter.write_line(escape_control(f"the record cannot be read: {error}"), red=True)
    for testbed, reasons in config.stash[DESELECTED].items():
        reporter.write_line(escape_control(not_applicable(testbed, reasons)))
    if empty:
        reporter.write_line(escape_control("no test has begun, so there is no run"))
        return
    for test, why in config.stash[OUTCOMES].inconclusive.items():
        reporter.write_line(escape_control(f"INCONCLUSIVE {test} - {why}"), yellow=True)
    for problem in run.failures_to_restore:
        reporter.write_line(escape_control(problem), red=True, bold=True)
    if page.path is not None and page.is_to_come:
        reporter.write_line(escape_control(f"report   {page.path}"))
    reporter.write_line(escape_control(f"journal  {run.folder / 'journal.jsonl'}"))
    if (traces := run.folder / TRACES).is_dir():
        reporter.write_line(escape_control(f"traces   {traces}"))
