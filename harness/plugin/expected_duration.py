"""How long a run will take, stated before its first test: from its tests and earlier runs."""

import shlex
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.plugin.live import rough_duration, short
from lightrig.harness.record import RecordError
from lightrig.harness.record.run_folder import FACTS, SETTLED, RunFacts, parse_facts
from lightrig.harness.run import ObservedRun
from lightrig.testbeds.escaping import escape_control

RUNS_COUNTED = 5
"""Earlier runs of the same kind that are read, the youngest ones."""

RUNS_SEARCHED = 50
"""Earlier runs among which those are looked for."""

NEW_NAMED = 3
"""Tests without an earlier duration that are named."""

_OPTIONS = {"--samples": "samples", "--profile": "profile", "-n": "n", "--numprocesses": "n"}
"""Options on which durations depend, beside the testbeds and their instruments."""


@dataclass
class _Durations:
    """Durations of earlier tests in s, by test and by function, and of their whole runs."""

    tests: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    functions: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    around: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def add(self, facts: RunFacts) -> None:
        """Add those of one run; of repeated attempts of a test, their sum."""
        took: defaultdict[str, float] = defaultdict(float)
        for test in facts.tests or ():
            took[short(test.nodeid)] += test.duration_s
        for nodeid, seconds in took.items():
            self.tests[nodeid].append(seconds)
            self.functions[_function(nodeid)].append(seconds)
        total = sum(took.values())
        if facts.duration_s is not None and total > 0:
            self.around.append(facts.duration_s - total)
            self.ratios.append(facts.duration_s / total)

    def of(self, nodeid: str) -> float | None:
        """Return the median of a test, or of its function with other parameters, in s."""
        name = short(nodeid)
        found = self.tests.get(name) or self.functions.get(_function(name))
        return statistics.median(found) if found else None

    def of_run(self, tests: float) -> float:
        """Return the duration of a run whose tests take so many seconds in sum.

        Connecting, restoring and the page come in addition, unless tests ran side by side.
        """
        if not self.around:
            return tests
        around = statistics.median(self.around)
        return tests + around if around >= 0 else tests * statistics.median(self.ratios)


class ExpectedDuration:
    """Writes before the first test how long the run will take, or why that is not known."""

    def __init__(self, config: pytest.Config, run: ObservedRun, header: Mapping[str, Any]) -> None:
        self._config = config
        self._folder = run.folder
        self._header = header
        self._written = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write it for the tests of this process."""
        self._write([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Write it for the tests of all workers together."""
        self._write(ids)

    def _write(self, nodeids: Sequence[str]) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if self._written or not nodeids or reporter is None or self._config.get_verbosity() < 0:
            return
        self._written = True
        reporter.write_line(escape_control(expectation(nodeids, self._folder, self._header)))


def expectation(nodeids: Sequence[str], run: Path, header: Mapping[str, Any]) -> str:
    """Return how long tests will take, from runs beside the folder of the `run` that begins.

    Runs count that had the same testbeds, instruments, samples and processes. header: of the run.
    """
    durations = _Durations()
    same = list(islice(_same_kind(header, run), RUNS_COUNTED))
    for facts in same:
        durations.add(facts)
    known = [found for one in nodeids if (found := durations.of(one)) is not None]
    new = [one for one in nodeids if durations.of(one) is None]
    kind = f"of {', '.join(header['testbeds'])} with --instruments {header['instruments']}"
    same_options = "the same --profile and --samples"
    if not known:
        return (
            f"how long this takes is not known: {run.parent} has no earlier run {kind} and "
            f"{same_options}; the remaining time is shown from the first test on"
        )
    runs = "1 earlier run" if len(same) == 1 else f"{len(same)} earlier runs"
    expected = rough_duration(durations.of_run(sum(known)))
    sentence = f"expected to take {expected}, as {runs} {kind} and {same_options}"
    if not new:
        return sentence
    more = f" and {len(new) - NEW_NAMED} more" if len(new) > NEW_NAMED else ""
    named = ", ".join(map(short, new[:NEW_NAMED]))
    return f"{sentence}; not counted, since no such run has them: {named}{more}"


def _same_kind(header: Mapping[str, Any], run: Path) -> Iterator[RunFacts]:
    """Yield the ended runs of the same kind, the youngest first; skip what cannot be read."""
    wanted = _kind(header)
    folders = sorted((each for each in run.parent.iterdir() if each != run), reverse=True)
    for folder in folders[:RUNS_SEARCHED]:
        path = folder / FACTS
        try:
            facts = parse_facts(str(path), path.read_bytes())
        except (OSError, RecordError):
            continue
        if facts.state in SETTLED and facts.tests and _kind(facts.header) == wanted:
            yield facts


def _kind(header: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what runs of similar duration have in common."""
    try:
        parsed = shlex.split(str(header.get("command", "")))
    except ValueError:
        parsed = []
    stated = {}
    for index, each in enumerate(parsed):
        name, equals, value = each.partition("=")
        if name in _OPTIONS:
            stated[_OPTIONS[name]] = value if equals else "".join(parsed[index + 1 : index + 2])
    testbeds = frozenset(header.get("testbeds", {}))
    return testbeds, header.get("instruments"), header.get("soak"), frozenset(stated.items())


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]
