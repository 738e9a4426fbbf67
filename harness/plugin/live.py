"""The run on a terminal: a line a test, with progress, time left and what was measured."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from lightrig.harness.plugin.outcomes import RERUN_OUTCOME
from lightrig.harness.plugin.quantities import Quantities, in_a_line
from lightrig.harness.record import Row
from lightrig.harness.run import ObservedRun
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Limit, format_duration
from lightrig.testbeds.escaping import escape_control

REDRAWN = 200_000_000
"""Period at which the line of the running test is redrawn, in ns."""

_LONGEST = 100
"""Of the reason for which a test did not pass; the whole of it is in the summary."""

_COLOURS: dict[str, dict[str, bool]] = {
    "passed": {"green": True},
    "failed": {"red": True},
    "error": {"red": True},
}


class Live:
    """Takes the place of pytest's dots; with `-q` and `-v` pytest's own lines stay.

    Where the output is no terminal, only whole lines are written.
    """

    def __init__(self, config: pytest.Config, run: ObservedRun) -> None:
        self._config = config
        self._clock = SystemClock()
        self._reporter: Any = None
        self._dotless = False
        self._total = self._done = 0
        self._tests: dict[str, _Test] = {}
        self._left = TimeLeft()
        self._drawn = 0
        self._last_note = ""
        run.observers = (*run.observers, self._recorded)
        run.finishes = (*run.finishes, self._finished)
        run.judges = (*run.judges, self._judged)
        run.notes = (*run.notes, self._noted)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Take over where pytest would write dots."""
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or self._config.get_verbosity() != 0:
            return
        self._reporter = reporter
        reporter.showfspath = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what lies ahead."""
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Count what lies ahead of all workers together: each has collected the same."""
        if not self._total:
            self._expect(ids)

    def _expect(self, nodeids: Sequence[str]) -> None:
        self._total = len(nodeids)
        self._left.expect(nodeids)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Leave out the dot while a test is reported; the summary needs the words."""
        status = yield
        return (status[0], "", "") if self._dotless and status is not None else status

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin a test."""
        self._tests[nodeid] = _Test(self._clock.now())
        self._draw()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self) -> Generator[None]:
        """Within, a test is reported."""
        self._dotless = self._reporter is not None
        try:
            yield
        finally:
            self._dotless = False

    def _finished(self, nodeid: str, outcome: str, took: float, why: str) -> None:
        """Write the line of a test that has ended."""
        test = self._tests.pop(nodeid, None)
        if test is None:
            return  # a file that cannot be collected, which pytest reports
        self._last_note = ""
        if outcome != RERUN_OUTCOME:
            self._done += 1
            self._left.ended(nodeid, took)
        if self._reporter is None:
            return
        parts = [short(nodeid), in_a_line(test.quantities.few()), _cut(why.partition("\n")[0])]
        parts += [f"marginal: {limit}" for limit in test.marginal]
        self._erase()
        colour = _COLOURS.get(outcome, {"yellow": True})
        marked = self._config.get_terminal_writer().markup(f"{outcome:<13}", **colour)
        parts += [format_duration(took * 1e9), self._left.remaining_text()]
        # One write: where output is not buffered, each is a call of the system.
        line = "  ".join(filter(None, parts))
        self._reporter.write(f"{self._counted()}  {marked}{escape_control(line)}\n")

    def _recorded(self, test: str, simulated: bool, rows: Sequence[Row]) -> None:
        if (running := self._tests.get(test)) is not None:
            running.quantities.add(simulated, rows)
        if self._clock.now() - self._drawn >= REDRAWN:
            self._draw()

    def _judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        if verdict.outcome == "marginal" and (running := self._tests.get(test)) is not None:
            running.marginal.append(str(limit))

    def _noted(self, testbed: str, note: str) -> None:
        """Write a note, but not again for each repetition within a test."""
        line = f"{testbed}: {note}"
        if line == self._last_note:
            return
        self._last_note = line
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            with self._visible():
                self._erase()
                reporter.write_line(escape_control(line))

    # ------------------------------------------------------------------------ the last line

    def _counted(self) -> str:
        return f"{self._done:>{len(str(self._total))}}/{self._total}"

    def _draw(self) -> None:
        """Show the running test on the last line of a terminal."""
        self._drawn = self._clock.now()
        if self._reporter is None or not self._reporter.isatty or not self._tests:
            return
        nodeid, test = next(reversed(self._tests.items()))
        seconds = (self._drawn - test.began) // 1_000_000_000
        so_far = f"{seconds} s" if seconds else ""
        parts = [self._counted(), short(nodeid), in_a_line(test.quantities.few())]
        line = "  ".join(filter(None, [*parts, so_far, self._left.remaining_text()]))
        with self._visible():
            width = self._config.get_terminal_writer().fullwidth - 1
            self._reporter.rewrite(line[:width], erase=True)
            self._reporter.flush()

    def _erase(self) -> None:
        if self._reporter is not None and self._reporter.isatty:
            self._reporter.rewrite("", erase=True)
            self._reporter.rewrite("")

    @contextmanager
    def _visible(self) -> Iterator[None]:
        """Within, what is written is seen although a test runs."""
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            yield
            return
        with capture.global_and_fixture_disabled():
            yield


@dataclass(slots=True)
class _Test:
    """A test that runs: with pytest-xdist there are several.

    began: when, in ns. marginal: limits kept, but not at the level that warns.
    """

    began: int
    quantities: Quantities = field(default_factory=Quantities)
    marginal: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Function:
    ahead: int = 0
    ended: int = 0
    took: float = 0.0


class TimeLeft:
    """Estimate of the remaining duration from the tests that have run.

    A test is expected to take the mean duration of its function so far, or, if that has not run,
    the mean of all tests.
    """

    def __init__(self) -> None:
        self._functions: defaultdict[str, _Function] = defaultdict(_Function)

    def expect(self, nodeids: Iterable[str]) -> None:
        """Count tests that are to be run."""
        for nodeid in nodeids:
            self._functions[_function(nodeid)].ahead += 1

    def ended(self, nodeid: str, seconds: float) -> None:
        """Learn from a test that has ended."""
        function = self._functions[_function(nodeid)]
        function.ahead -= 1
        function.ended += 1
        function.took += seconds

    def seconds(self) -> float | None:
        """The expectation; None where nothing is known, or nothing left."""
        functions = self._functions.values()
        ended = sum(function.ended for function in functions)
        if not ended or not any(function.ahead > 0 for function in functions):
            return None
        mean = sum(function.took for function in functions) / ended
        return sum(
            function.ahead * (function.took / function.ended if function.ended else mean)
            for function in functions
        )

    def remaining_text(self) -> str:
        """Format the estimate; an empty string where there is none."""
        seconds = self.seconds()
        if seconds is None:
            return ""
        return f"{rough_duration(seconds)} left"


def rough_duration(seconds: float) -> str:
    """Format an expected duration for a person: "about 12 min"."""
    if seconds < 1:
        return "less than a second"
    if seconds < 100:
        return f"about {seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 100:
        return f"about {minutes:.0f} min"
    return f"about {minutes / 60:.1f} h"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def short(nodeid: str) -> str:
    """A test with the name of its file, without the file's folders."""
    file, colons, test = nodeid.partition("::")
    return f"{file.rpartition('/')[2]}{colons}{test}"
