"""What became of each test: why it failed, what was on the wires then, how to repeat it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from harness.bench import Bench
from harness.plugin.keys import BENCHES, RUN
from harness.plugin.repeating import Repeats
from harness.report.document import added
from instruments.errors import InstrumentError
from testbeds import LightrigError, Testbed

MOST_LINES = 400
"""Of all wires of one failed test, shared by its instruments."""

MOST_TEXT = 20_000
"""Characters of a failure that the journal keeps: its end says most."""


class Outcomes:
    """Follows tests to their ends, and tells the run of each.

    `added` is what the report's page needs beside what pytest-html knows; see
    `harness.report.document.Results`. `running` is the test that has begun and not ended.
    """

    def __init__(self, config: pytest.Config, repeats: Repeats) -> None:
        self._config = config
        self._repeats = repeats
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._details: dict[str, dict[str, Any]] = {}
        self.added: dict[str, dict[str, Any]] = {}
        self.running: str | None = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember what runs."""
        self.running = nodeid

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Keep why a test did not pass, and the wires as they are now."""
        report: Any = yield
        details = self._details.get(item.nodeid)
        if details is None:
            details = self._details[item.nodeid] = {"command": self._repeats.command(item)}
        if call.excinfo is not None:
            details.setdefault("why", why(call.excinfo.value))
            if report.failed:
                benches = self._config.stash[BENCHES]
                wires = details.setdefault("wire", {})
                for name, lines in wires_of(item, benches, call.excinfo.value).items():
                    wires.setdefault(name, lines)
        return report  # type: ignore[no-any-return]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the end of a test."""
        reports = self._reports.setdefault(report.nodeid, [])
        reports.append(report)
        if report.when != "teardown" or report.outcome == "rerun":  # type: ignore[comparison-overlap]
            return
        del self._reports[report.nodeid]
        details = self._details.pop(report.nodeid, {})
        if not details.get("wire"):
            details.pop("wire", None)
        self.running = None
        self._finished(
            report.nodeid,
            outcome_of(reports),
            sum(r.duration for r in reports),
            {**details, **_failure(reports)},
        )

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
        self._config.stash[RUN].test_finished(nodeid, outcome, duration, details)
        self.added[nodeid] = added(outcome, details)


def why(error: BaseException) -> str:
    """Why a test did not pass, in the error's own words; the trace of a wire is kept apart."""
    if isinstance(error, pytest.skip.Exception | pytest.fail.Exception | pytest.xfail.Exception):
        return str(error.msg)
    words = str(error)
    if isinstance(error, InstrumentError):
        words = words.partition("\n  last on the wire")[0]
    kind = "" if isinstance(error, LightrigError) else f"{type(error).__name__}: "
    return f"{kind}{words}".strip()[:MOST_TEXT].removesuffix(":")


def wires_of(
    item: pytest.Item, benches: Mapping[str, Bench], error: BaseException
) -> dict[str, list[str]]:
    """The last lines of the wires of a failed test's bench, and of the error's own instrument."""
    callspec = getattr(item, "callspec", None)
    testbed = callspec.params.get("testbed") if callspec else None
    bench = benches.get(testbed.name) if isinstance(testbed, Testbed) else None
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
            name = cause.instrument.partition(" ")[0]
            found.setdefault(name, list(cause.trace))
        cause = cause.__cause__ or cause.__context__
    return found


def outcome_of(reports: Sequence[pytest.TestReport]) -> str:
    """How a test ended, in one of pytest's words."""
    if any(report.failed and report.when == "call" for report in reports):
        return "failed"
    if any(report.failed for report in reports):
        return "error"
    for report in reports:
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "xpassed"
    return next((report.outcome for report in reports if not report.passed), "passed")


def _failure(reports: Sequence[pytest.TestReport]) -> dict[str, str]:
    """The text of a failure with what was captured, for a page made without pytest-html."""
    if not any(report.failed for report in reports):
        return {}
    parts = [report.longreprtext for report in reports if report.failed]
    parts += [f"--- {title} ---\n{content}" for title, content in reports[-1].sections]
    return {"log": "\n".join(parts)[-MOST_TEXT:]}
