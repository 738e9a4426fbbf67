"""The last night at the top of the nights page: how its tests ended, and what is new in that."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from lightrig.harness.findings import Finding
from lightrig.harness.night.outcomes import not_run
from lightrig.harness.record import RecordError, Results, RunFacts, TestOutcome, read_journal
from lightrig.harness.record.nights import Night, nights_of, start_of
from lightrig.harness.record.run_folder import load_findings
from lightrig.harness.report.causes import (
    CERTAIN,
    parts_of_plans,
    recorded_findings,
    stored_findings,
)

FAILED = frozenset(("failed", "error", "xpassed"))
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of a test in the last run of a night that has it.

    reason: the failure, or what is missing for a verdict; empty where the run keeps none. findings:
    what a failed test found wrong.
    """

    nodeid: str
    outcome: str
    reason: str
    run: str
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something is wrong, rather than undecided."""
        return self.outcome in FAILED


@dataclass(frozen=True, slots=True)
class Noticed:
    """What a run found wrong without a test that failed for it.

    since: the first night that found it. nights: of those that looked, in a row, until the last.
    looked: that last night that looked, where later nights did not; else empty.
    """

    finding: Finding
    run: str
    since: str
    nights: int
    looked: str = ""


@dataclass(frozen=True, slots=True)
class LastNight:
    """The newest night of a testbed.

    Attributes:
        counts: tests by outcome.
        problems: failed tests first, then inconclusive ones.
        known: node ids of those that failed or were inconclusive the night before, and which; None
            if there was no night before.
        mended: those of them that passed now.
        unfinished: state of each run that did not end by itself, by name.
        reported: the runs whose report can be linked.
        simulated: whether anything simulated took part.
        since: of each failed test, the first night and the number of nights in a row.
        commands: that repeat each test of the night.
        noticed: what was wrong before the first test, or in tests that did not fail for it.
        parts: of plans of which ports were out of service, how many took part.
        not_run: night and reason, where a night over several hosts did not measure it since.
    """

    testbed: str
    night: str
    counts: Mapping[str, int]
    problems: tuple[Ended, ...]
    known: Mapping[str, str] | None
    mended: tuple[str, ...]
    unfinished: Mapping[str, str]
    reported: frozenset[str]
    simulated: bool
    not_run: tuple[str, str] | None = None
    since: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    noticed: tuple[Noticed, ...] = ()
    parts: tuple[str, ...] = ()


def last_nights(results: str | Path, runs: Sequence[RunFacts] | None = None) -> list[LastNight]:
    """Return the newest night of every testbed, those with failures first.

    Runs that left no row, since every test failed, are among them. runs: all of the results, where
    they are known. Raises `RecordError` for results that cannot be read.
    """
    by_testbed: dict[str, list[RunFacts]] = {}
    for facts in Results(results).runs() if runs is None else runs:
        for testbed in () if facts.by_hand else facts.testbeds:
            by_testbed.setdefault(testbed, []).append(facts)
    missed = not_run(results)
    found = [_last_night(Path(results), name, _by_night(of)) for name, of in by_testbed.items()]
    found = [replace(one, not_run=missed.pop(one.testbed, None)) for one in found]
    found += [
        LastNight(name, missed[name][0], {}, (), None, (), {}, frozenset(), False, missed[name])
        for name in missed
    ]
    return sorted(found, key=lambda one: (-sum(e.failed for e in one.problems), one.testbed))


def _by_night(runs: Sequence[RunFacts]) -> dict[Night, list[RunFacts]]:
    """Return the runs of one testbed by night."""
    nights = nights_of({facts.run: start_of(facts.header) for facts in runs})
    found: dict[Night, list[RunFacts]] = {}
    for facts in runs:
        found.setdefault(nights[facts.run], []).append(facts)
    return found


def _last_night(
    results: Path, testbed: str, nights: Mapping[Night, Sequence[RunFacts]]
) -> LastNight:
    last, *before = sorted(nights, reverse=True)
    runs = nights[last]
    now = _ended(testbed, runs)
    earlier = _ended(testbed, nights[before[0]]) if before else None
    details = {facts.run: _details(results, facts.run) for facts in runs}
    problems = [
        _problem(run, details[run].get(nodeid) or TestOutcome(nodeid, outcome, 0.0), outcome)
        for nodeid, (outcome, run) in now.items()
        if _is_problem(outcome)
    ]
    known = None
    if earlier is not None:
        known = {test: outcome for test, (outcome, _) in earlier.items() if _is_problem(outcome)}
    return LastNight(
        testbed,
        str(last),
        Counter(outcome for outcome, _ in now.values()),
        tuple(sorted(problems, key=lambda one: (not one.failed, one.nodeid))),
        known,
        tuple(nodeid for nodeid in known or () if now.get(nodeid, ("",))[0] == "passed"),
        {facts.run: facts.state for facts in runs if facts.state not in {"complete", "recovered"}},
        frozenset(f.run for f in runs if (results / "runs" / f.run / "report.html").is_file()),
        any(measured.simulated for facts in runs if (measured := facts.testbeds[testbed])),
        since=_since(testbed, nights, [one.nodeid for one in problems if one.failed]),
        noticed=(
            *_noticed(nights, lambda runs: _findings_at_begin(results, testbed, runs)),
            *_noticed(nights, lambda runs: _findings_of_tests(results, testbed, runs)),
        ),
        parts=tuple(
            dict.fromkeys(
                part for facts in runs for part in parts_of_plans(facts.header).get(testbed, ())
            )
        ),
        commands={
            test: str(ended.details.get("command", ""))
            for test, (_, run) in now.items()
            if (ended := details[run].get(test)) is not None
        },
    )


def _since(
    testbed: str, nights: Mapping[Night, Sequence[RunFacts]], failed: Sequence[str]
) -> dict[str, tuple[str, int]]:
    """Return since which night each test fails, and for how many of the nights that have it."""
    found = dict.fromkeys(failed, ("", 0))
    left = set(failed)
    for night in sorted(nights, reverse=True):
        ended = _ended(testbed, nights[night]) if left else {}
        for test in [one for one in left if one in ended]:
            if ended[test][0] in FAILED:
                found[test] = str(night), found[test][1] + 1
            else:
                left.remove(test)
    return found


_Found: TypeAlias = dict[Hashable, tuple[Finding, str]]
"""Findings and their runs, by kind, place and cause."""


def _noticed(
    nights: Mapping[Night, Sequence[RunFacts]],
    findings: Callable[[Sequence[RunFacts]], _Found | None],
) -> Iterator[Noticed]:
    """Yield what `findings` has of the last night; of a night in which no run looked it has None.

    Then the last night that looked takes its place. Earlier nights are asked only as long as
    something of that one is among them.
    """
    newest, *before = sorted(nights, reverse=True)
    latest, looked = newest, findings(nights[newest])
    while looked is None and before:
        latest, *before = before
        looked = findings(nights[latest])
    now = looked or {}
    since = dict.fromkeys(now, (str(latest), 1))
    left = set(now)
    for night in before:
        found = findings(nights[night]) if left else {}
        if found is not None:
            left &= found.keys()
            since |= {key: (str(night), since[key][1] + 1) for key in left}
    for key, (finding, run) in now.items():
        yield Noticed(finding, run, *since[key], "" if latest == newest else str(latest))


def _findings_at_begin(results: Path, testbed: str, runs: Sequence[RunFacts]) -> _Found | None:
    """Return what runs found wrong before their first tests; None if none looked."""
    found: _Found | None = None
    for facts in runs:
        documents = load_findings(results / "runs" / facts.run, testbed)
        if documents is not None:
            found = (found or {}) | _by_key(map(Finding.of_document, documents), facts.run)
    return found


def _findings_of_tests(results: Path, testbed: str, runs: Sequence[RunFacts]) -> _Found:
    """Return what tests that did not fail have found of kinds that need no second look."""
    found: _Found = {}
    ended = _ended(testbed, runs)
    for facts in runs:
        for test in _details(results, facts.run).values():
            if ended.get(test.nodeid, ("failed",))[0] not in FAILED:
                certain = [one for one in stored_findings(test) if one.kind in CERTAIN]
                found |= _by_key(certain, facts.run)
    return found


def _by_key(findings: Iterable[Finding], run: str) -> _Found:
    return {(one.kind, one.subjects, one.components): (one, run) for one in findings}


def _is_problem(outcome: str) -> bool:
    return outcome in FAILED or outcome == INCONCLUSIVE


def _ended(testbed: str, runs: Sequence[RunFacts]) -> dict[str, tuple[str, str]]:
    """Return outcome and run of each test of a testbed, from the last run that has it."""
    return {
        test.nodeid: (test.outcome, facts.run)
        for facts in runs
        for test in facts.tests or ()
        if len(facts.testbeds) == 1 or _is_of(testbed, test.nodeid, facts.testbeds)
    }


def _is_of(testbed: str, nodeid: str, testbeds: Mapping[str, object]) -> bool:
    """Return whether a test ran on `testbed`: the first of its parameters, or none of any."""
    first = nodeid.partition("[")[2].rstrip("]").partition("/")[0]
    return first == testbed or first not in testbeds


def _problem(run: str, test: TestOutcome, outcome: str) -> Ended:
    findings = recorded_findings(test) if outcome in FAILED else ()
    return Ended(test.nodeid, outcome, str(test.details.get("why", "")), run, tuple(findings))


def _details(results: Path, run: str) -> Mapping[str, TestOutcome]:
    """Return a run's tests by node id, the last attempt of each; nothing without its journal."""
    try:
        record = read_journal(results / "runs" / run / "journal.jsonl")
    except (RecordError, OSError):
        return {}
    return {test.nodeid: test for test in record.tests}
