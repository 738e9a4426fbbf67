"""The run on a terminal: a line a test, with progress, time left and what was measured."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from harness.plugin.observed import ObservedRun
from harness.plugin.quantities import Quantities, in_a_line
from harness.record import Row
from harness.statistics import Verdict
from instruments.clock import SystemClock
from testbeds import Limit, format_duration

REDRAWN = 200_000_000
"""How often the line of the running test is drawn again, in ns."""

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
        self._quantities = Quantities()
        self._marginal: list[str] = []
        self._left = TimeLeft()
        self._test = ""
        self._began = self._drawn = 0
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
        reporter._show_progress_info = False  # noqa: SLF001 - dots and percents go together

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what lies ahead."""
        self._total = len(session.items)
        self._left.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Leave out the dot while a test is reported; the summary needs the words."""
        status = yield
        return (status[0], "", "") if self._dotless and status is not None else status

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin a test."""
        self._test, self._quantities, self._marginal = nodeid, Quantities(), []
        self._began = self._drawn = self._clock.now()
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
        if nodeid != self._test:
            return  # a file that cannot be collected, of which pytest tells
        self._done += 1
        self._left.ended(nodeid, took)
        if self._reporter is None:
            return
        said = [in_a_line(self._quantities.few()), _cut(why.partition("\n")[0])]
        said += [f"marginal: {limit}" for limit in self._marginal]
        self._erase()
        self._reporter.write(f"{self._counted()}  ")
        self._reporter.write(f"{outcome:<9}", **_COLOURS.get(outcome, {"yellow": True}))
        parts = [short(nodeid), *filter(None, said), format_duration(took * 1e9)]
        self._reporter.write_line("  ".join([*parts, self._left.words()]).rstrip())

    def _recorded(self, _test: str, simulated: bool, rows: Sequence[Row]) -> None:
        self._quantities.add(simulated, rows)
        if self._clock.now() - self._drawn >= REDRAWN:
            self._draw()

    def _judged(self, _test: str, limit: Limit, verdict: Verdict) -> None:
        if verdict.outcome == "marginal":
            self._marginal.append(str(limit))

    def _noted(self, testbed: str, note: str) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            with self._visible():
                self._erase()
                reporter.write_line(f"{testbed}: {note}")

    # ------------------------------------------------------------------------ the last line

    def _counted(self) -> str:
        return f"{self._done:>{len(str(self._total))}}/{self._total}"

    def _draw(self) -> None:
        """Show the running test on the last line of a terminal."""
        self._drawn = self._clock.now()
        if self._reporter is None or not self._reporter.isatty:
            return
        seconds = (self._drawn - self._began) // 1_000_000_000
        so_far = f"{seconds} s" if seconds else ""
        parts = [self._counted(), short(self._test), in_a_line(self._quantities.few())]
        line = "  ".join(filter(None, [*parts, so_far, self._left.words()]))
        with self._visible():
            width = self._reporter._tw.fullwidth - 1  # noqa: SLF001 - as pytest's own lines do
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
class _Function:
    ahead: int = 0
    ended: int = 0
    took: float = 0.0


class TimeLeft:
    """How long the tests that have not run will take, judged by those that have.

    Each is expected to take what its function took on average so far, or, where that has not
    run, what a test took on average.
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

    def words(self) -> str:
        """The expectation for people; nothing where there is none."""
        seconds = self.seconds()
        if seconds is None:
            return ""
        if seconds < 1:
            return "less than a second left"
        if seconds < 100:
            return f"about {seconds:.0f} s left"
        minutes = seconds / 60
        if minutes < 100:
            return f"about {minutes:.0f} min left"
        return f"about {minutes / 60:.1f} h left"


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def short(nodeid: str) -> str:
    """A test without its file."""
    return nodeid.rpartition("::")[2] if "[" not in nodeid else _last(nodeid)


def _last(nodeid: str) -> str:
    name, bracket, rest = nodeid.partition("[")
    return name.rpartition("::")[2] + bracket + rest
