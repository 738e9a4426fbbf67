"""Outcome of each test: reason of a failure, wire traces, command to repeat it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lightrig.harness.bench import Bench, LabUnavailableError
from lightrig.harness.bench.lease import LeaseConflictError, LeaseLostError
from lightrig.harness.components import Components
from lightrig.harness.findings import CLOSURE, FAILED, Finding, findings_of
from lightrig.harness.host_limits import roce_moves
from lightrig.harness.measure.links import LinksDownError
from lightrig.harness.measure.recording import NotEnoughDataError
from lightrig.harness.plugin.collection import testbed_of
from lightrig.harness.plugin.ending import LAB_ERROR, ending_unrecorded
from lightrig.harness.plugin.keys import (
    BENCHES,
    CAUSE,
    FINDING,
    FOUND,
    INCONCLUSIVE,
    LAB,
    MEANWHILE,
    MEASURED,
    RUN,
)
from lightrig.harness.plugin.parts import (
    PORTS,
    add_ports,
    coverage_of,
    failed_by_parts,
    undecided_by_parts,
)
from lightrig.harness.plugin.repeating import Repeats
from lightrig.harness.plugin.worker_run import WorkerRun, show
from lightrig.harness.report.run_page import added
from lightrig.harness.run import ObservedRun
from lightrig.instruments.core.errors import (
    DisconnectedError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.testbeds import LightrigError
from lightrig.testbeds.secret_masking import mask_document

INCONCLUSIVE_OUTCOME = "inconclusive"
"""Of a test that has measured, and whose samples do not decide a limit."""

RERUN_OUTCOME = "rerun"
"""Of an attempt that pytest-rerunfailures lets another one follow."""

MOST_NOT_CLOSED = 5
"""Findings of closure that a test keeps, and that the reason of its failure names."""

MOST_LINES = 400
"""Of all wires of one failed test, shared by its instruments."""

MOST_TEXT = 20_000
"""Characters of a failure that the journal keeps: its end says most."""


class Undecided:
    """Makes a test inconclusive of whose limits one is not decided.

    Its report is that of a skipped test with the reason, since plugins that know pytest's outcomes
    alone take any other for passed; `report.inconclusive` is the reason, for those that know more.
    """

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Change the report before any other plugin sees it."""
        report: Any = yield
        error = call.excinfo.value if call.excinfo is not None else None
        undecided = item.stash.get(INCONCLUSIVE, [])
        if isinstance(error, NotEnoughDataError):
            undecided = [*undecided, str(error)]
        elif not (report.when == "call" and report.passed):
            undecided = []
        else:
            undecided = [*undecided, *undecided_by_parts(item)]
        if undecided:
            report.inconclusive = " ".join(undecided)
            try:  # allure takes the reason from here
                pytest.skip(report.inconclusive)
            except pytest.skip.Exception as skipped:
                call.excinfo = pytest.ExceptionInfo.from_exception(skipped)
            path, line, _ = item.reportinfo()
            report.outcome = "skipped"
            report.longrepr = (str(path), (line or 0) + 1, report.inconclusive)
            # Reaches JUnit XML with the report of the tear-down, which copies the list.
            for name, value in (("outcome", INCONCLUSIVE_OUTCOME), ("reason", report.inconclusive)):
                item.user_properties.append((name, value))
        return report  # type: ignore[no-any-return]


class Reports:
    """Writes into a test's reports why it did not pass, and what was on the wires then.

    In the process that runs the tests. `report.lightrig` holds plain values, so that pytest-xdist
    can send it: `command`, `why`, `wire`, `findings`, `kernel` and, from a worker, what it has to
    show.
    """

    def __init__(self, config: pytest.Config, repeats: Repeats) -> None:
        self._config = config
        self._repeats = repeats

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Take off what an earlier attempt of the test has left among its properties."""
        ours = {CAUSE, FINDING}
        item.user_properties[:] = [each for each in item.user_properties if each[0] not in ours]
        if (bench := self._bench(item)) is not None:
            item.stash[MEANWHILE] = bench.clock.now(), bench.kernel.counts()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Add what is known now; closure that fails makes a test fail."""
        report: Any = yield
        error = call.excinfo.value if call.excinfo is not None else None
        measured = item.stash.get(FOUND, []) if report.when == "call" else []
        down = failed_by_parts(item) if report.when == "call" else ""
        if down:
            coverage = coverage_of(item)
            measured = [*measured, *(coverage.failures if coverage else ())]
        not_closed = [one for one in measured if one.kind == CLOSURE]
        found = [one for one in measured if one.kind != CLOSURE] + not_closed[:MOST_NOT_CLOSED]
        found += self._roce_moves(item) if report.when == "call" else []
        details: dict[str, Any] = {}
        if report.when == "setup":  # the first report of every test
            details["command"] = self._repeats.command(item)
        if not_closed and not report.failed:
            report.outcome, report.longrepr = "failed", _wrong_beside_truth(not_closed)
            report.inconclusive = None
            details["why"] = report.longrepr
        elif down and not report.failed:
            report.outcome, report.longrepr = "failed", down
            report.inconclusive = None
            details["why"] = down
        elif (undecided := _undecided(report)) is not None:
            details["why"] = undecided
        elif error is not None:
            details["why"] = why(error)
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None:
                # In pytest's summary, without the name of the error's module.
                ours = isinstance(error, LightrigError | pytest.fail.Exception)
                text = details["why"] if ours else crash.message
                crash.message = text.partition("\n")[0]
        kernel = self._kernel_messages(item, failed=report.failed, last=report.when == "teardown")
        if kernel:
            details["kernel"] = kernel
            if report.failed:
                report.sections.append(("kernel messages", "\n".join(kernel)))
        if report.failed and error is not None:
            sentence = details["why"].partition("\n")[0].removeprefix("AssertionError: ")
            found = [*found, *findings_of(error)] or [Finding(FAILED, sentence)]
        if report.when == "call":
            add_ports(item, details)
        if found:
            if report.failed:
                found[0] = replace(found[0], meanwhile=tuple(kernel))
            self._findings(item, report, details, found)
        if report.failed and error is not None:
            benches = self._config.stash[BENCHES]
            details["wire"] = wires_of(item, benches, error)
            if _is_of_lab(item, report.when, error):
                details["cause"] = LAB
                item.user_properties.append((CAUSE, LAB))
        run = self._config.stash[RUN]
        if isinstance(run, WorkerRun):
            details["shown"] = run.shown()
        report.lightrig = details
        return report  # type: ignore[no-any-return]

    def _bench(self, item: pytest.Item) -> Bench | None:
        testbed = testbed_of(item)
        return self._config.stash[BENCHES].get(testbed.name) if testbed else None

    def _roce_moves(self, item: pytest.Item) -> list[Finding]:
        """Return the RoCE addresses that have moved while a test ran; none in simulated time."""
        bench = self._bench(item)
        if bench is None or bench.clock.virtual:
            return []
        return roce_moves(bench.roce_indices.moved())

    def _kernel_messages(self, item: pytest.Item, *, failed: bool, last: bool) -> list[str]:
        """Return the kernel messages from the time of a test.

        Simulated time passes while servers answer, so that a test that passes is left alone.
        """
        bench = self._bench(item)
        if bench is None or not (failed or (last and not bench.clock.virtual)):
            return []
        bench.kernel.read()
        origin, before = item.stash.get(MEANWHILE, (bench.kernel.began, Counter()))
        return bench.kernel.since(origin, before).sentences()

    @staticmethod
    def _findings(
        item: pytest.Item, report: Any, details: dict[str, Any], found: Sequence[Finding]
    ) -> None:
        """Keep findings for the journal, and show those that are located."""
        components = Components(testbed_of(item))
        found = [one.located(components) for one in found]
        details["findings"] = [one.document() for one in found]
        shown = ["\n".join(one.lines()) for one in found if one.components]
        if shown:
            report.sections.append(("found wrong", "\n".join(shown)))
        # Reach JUnit XML as those of an inconclusive test.
        item.user_properties += [(FINDING, lines) for lines in shown]


def _is_of_lab(item: pytest.Item, when: str, error: BaseException) -> bool:
    """Whether a test failed by what another try may find mended, before it measured anything.

    when: its phase. An instrument that answers no more, or links that are down, are so while the
    test is prepared alone: in its own calls that may be what it measures.
    """
    if when == "teardown" or item.stash.get(MEASURED, lambda: False)():
        return False
    if isinstance(error, UnreachableError | LeaseConflictError | LeaseLostError):
        return True
    if isinstance(error, DisconnectedError | NoReplyError):
        return when == "setup" or error.in_preparation
    return isinstance(error, LinksDownError) and error.in_preparation


def was_ended_by_lab(ended: BaseException) -> bool:
    """Whether a run was ended since instruments did not answer or are in use: by `bench`."""
    return getattr(ended, "returncode", None) == LAB_ERROR and isinstance(
        ended.__context__, LabUnavailableError | LeaseConflictError
    )


def _wrong_beside_truth(not_closed: Sequence[Finding]) -> str:
    more = len(not_closed) - MOST_NOT_CLOSED
    shown = [*map(str, not_closed[:MOST_NOT_CLOSED]), *([f"{more:,} more"] if more > 0 else [])]
    return (
        "the harness measured a simulated world wrong, so its figures cannot be trusted on "
        f"hardware either: {'; '.join(shown)}"
    )


class Outcomes:
    """Follows tests to their ends, and notes each in the run's journal.

    In the process that has the run. `added` is what the report's page needs beside what
    pytest-html knows; see `harness.report.run_page.Results`. `running` is the test that has begun
    last and not ended. `inconclusive` has the reasons by node id. `reruns` has the reasons
    of attempts that others have followed, by node id.
    """

    def __init__(self, config: pytest.Config, run: ObservedRun) -> None:
        self._config = config
        self._run = run
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._running: dict[str, None] = {}
        self.added: dict[str, dict[str, Any]] = {}
        self.inconclusive: dict[str, str] = {}
        self.reruns: dict[str, list[str]] = {}

    @property
    def running(self) -> str | None:
        """The test that began last of those that have not ended."""
        return next(reversed(self._running), None)

    @property
    def has_begun(self) -> bool:
        """Whether a test has begun, or a file could not be collected."""
        return bool(self._running or self.added)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember what runs."""
        self._running[nodeid] = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, Any] | None:
        """Name the outcome that pytest does not know."""
        if _undecided(report) is None:
            ports = getattr(report, "lightrig", {}).get(PORTS, "").partition(";")[0]
            return ("passed", ".", f"PASSED, {ports}") if ports and report.passed else None
        word = INCONCLUSIVE_OUTCOME.upper(), {"yellow": True}
        return INCONCLUSIVE_OUTCOME, "I", word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the end of a test."""
        reports = self._reports.setdefault(report.nodeid, [])
        reports.append(report)
        details = getattr(report, "lightrig", {})
        if _outcome(report) == RERUN_OUTCOME:
            self.reruns.setdefault(report.nodeid, []).append(str(details.get("why", "")))
        show(self._run, details.pop("shown", ()))
        crashed = report.when not in {"setup", "call", "teardown"}  # a worker, and its test with it
        if not crashed and report.when != "teardown":
            return
        del self._reports[report.nodeid]
        self._running.pop(report.nodeid, None)
        found: dict[str, Any] = {}
        for each in reports:
            for name, value in getattr(each, "lightrig", {}).items():
                if name == "wire":
                    found["wire"] = {**value, **found.get("wire", {})}
                elif name == "findings":
                    found["findings"] = [*found.get("findings", ()), *value]
                else:
                    found.setdefault(name, value)
        if not found.get("wire"):
            found.pop("wire", None)
        outcome = outcome_of(reports)
        if outcome == INCONCLUSIVE_OUTCOME:
            self.inconclusive[report.nodeid] = str(found.get("why", ""))
        duration = sum(each.duration for each in reports)
        self._finished(report.nodeid, outcome, duration, {**found, **_failure(reports)})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            text = report.longreprtext
            lines = [line for line in text.splitlines() if line.startswith("E ")]
            cause = (lines or text.splitlines() or ["cannot be collected"])[-1]
            details = {"why": cause.removeprefix("E").strip(), "log": text[-MOST_TEXT:]}
            self._finished(report.nodeid, "error", 0.0, details)

    def _finished(
        self, nodeid: str, outcome: str, duration: float, details: Mapping[str, Any]
    ) -> None:
        details = mask_document(details)
        self.added[nodeid] = added(outcome, details)
        with ending_unrecorded(self._config):
            self._run.test_finished(nodeid, outcome, duration, details)


def why(error: BaseException) -> str:
    """Return why a test did not pass: the error's message without its wire trace."""
    if isinstance(error, pytest.skip.Exception | pytest.fail.Exception | pytest.xfail.Exception):
        return str(error.msg)
    text = str(error)
    if isinstance(error, AssertionError):
        # pytest appends the values of the expression to the message of the test's author.
        text = text.partition("\nassert ")[0]
    if isinstance(error, InstrumentError):
        text = text.partition("\n  last on the wire")[0]
    kind = "" if isinstance(error, LightrigError) else f"{type(error).__name__}: "
    return f"{kind}{text}".strip()[:MOST_TEXT].removesuffix(":")


def wires_of(
    item: pytest.Item, benches: Mapping[str, Bench], error: BaseException
) -> dict[str, list[str]]:
    """The last lines of the wires of a failed test's bench, and of the error's own instrument."""
    testbed = testbed_of(item)
    bench = benches.get(testbed.name) if testbed else None
    found: dict[str, list[str]] = {}
    if bench is not None:
        instruments = {**bench.switches, **bench.servers, **bench.instruments}
        most = max(6, MOST_LINES // max(len(instruments), 1))
        for name, instrument in instruments.items():
            try:
                lines = list(instrument.wire())[-most:]
            except Exception as problem:  # whatever it is, the failure itself matters more
                lines = [f"! its wire cannot be told: {problem}"]
            if lines:
                found[name] = lines
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, InstrumentError) and cause.trace:
            found.setdefault(cause.subjects[0], list(cause.trace))
        cause = cause.__cause__ or cause.__context__
    return found


def outcome_of(reports: Sequence[pytest.TestReport]) -> str:
    """Return a test's outcome: one of pytest's or "inconclusive"."""
    if any(report.failed and report.when == "call" for report in reports):
        return "failed"
    if any(report.failed for report in reports):
        return "error"
    for report in reports:
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "xpassed"
    return next((_outcome(report) for report in reports if not report.passed), "passed")


def _outcome(report: pytest.TestReport) -> str:
    """The outcome, which plugins extend beyond what pytest's type knows."""
    return report.outcome if _undecided(report) is None else INCONCLUSIVE_OUTCOME


def _undecided(report: pytest.TestReport) -> str | None:
    """The reason for which a test is inconclusive, if it is."""
    return getattr(report, "inconclusive", None)


def _failure(reports: Sequence[pytest.TestReport]) -> dict[str, str]:
    """The text of a failure with what was captured, for a page made without pytest-html."""
    if not any(report.failed for report in reports):
        return {}
    parts = [report.longreprtext for report in reports if report.failed]
    parts += [f"--- {title} ---\n{content}" for title, content in reports[-1].sections]
    return {"log": "\n".join(parts)[-MOST_TEXT:]}
