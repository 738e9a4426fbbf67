"""The page of one run: measurements of each testbed, then every test; one file, no network.

The tests are embedded as pytest-html serialises them, compressed, and the page's script draws
those in view: five thousand tests with their logs open in the time of a hundred. A run that was
killed before pytest-html wrote its page gets one from its journal alone (`write_page`).
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from lightrig.harness.record import RunRecord, TestOutcome
from lightrig.harness.report.answers_section import render_answers
from lightrig.harness.report.causes import found_at_begin, parts_of_plans, run_causes
from lightrig.harness.report.escaping import text
from lightrig.harness.report.frames import RunFrame, TestbedFrame, collect
from lightrig.harness.report.markup import number_of
from lightrig.harness.report.relock_runs import with_earlier_relocks
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_macro, render_page
from lightrig.harness.report.testbed_section import render_testbed
from lightrig.testbeds import Testbed, format_duration

TITLE = "Lightrig"
"""Title of a page of no testbed, and until the testbeds of a run are known."""

_ORDER = ("error", "failed", "rerun", "xpassed", "inconclusive", "xfailed", "skipped", "passed")
_LEVEL = 4
_COUNTS = re.compile(r"\b[\d,]+ of [\d,]+ samples\b")


@dataclass(frozen=True, slots=True)
class Results:
    """The tests of a page.

    outcomes: how many tests ended how, by pytest-html's words: "passed", "failed", "error", ...
    data: JSON as pytest-html keeps it: `tests` by node id, `environment`.
    added: by node id, what Lightrig knows of a test: `command` repeats it, `why` says in a
        sentence why it did not pass, `wire` holds the last lines of each instrument's wire,
        `kernel` lines of the servers' kernels, `ports` over how many of them it was, if not over
        all, `card` is the id of what it measured on this page, `attempts` is their number where it
        was tried again. Each may be absent.
    """

    outcomes: Mapping[str, int]
    data: str
    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def document(
    title: str, about: str, body: str, results: Results, css: str = "", causes: str = ""
) -> str:
    """The page.

    about: a line below the title. body: markup, such as `sections`. css: of the
    person who asked for the page; it comes last. causes: cards that come first.
    """
    return render_page(
        "run_page",
        title=title,
        about=about,
        style=page_style(css),
        causes=causes,
        counts=_counted(results),
        wrong=_not_passed(results, "wrong"),
        undecided=_not_passed(results, "undecided"),
        body=body,
        data=_packed(results),
        script=_script(),
    )


def of_run(run: str, testbeds: Iterable[str]) -> str:
    """Return a run's name and testbeds as the beginning of the line below the title."""
    names = ", ".join(testbeds)
    return f"Run {run}{' of ' if names else ''}{names}"


def title_of(run: str, testbeds: Iterable[str]) -> str:
    """Return a page's title: the testbeds and the date with which the name of a run begins."""
    names = ", ".join(testbeds)
    date = re.match(r"(\d{4})(\d\d)(\d\d)-", run)
    return ", ".join([names or TITLE, *(["-".join(date.groups())] if date else [])])


def added(outcome: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additions to the log of a test, from the `details` in the journal."""
    found = {
        name: details[name]
        for name in ("command", "why", "wire", "kernel", "ports")
        if details.get(name)
    }
    if details.get("cause"):
        first, end, rest = str(found.get("why", "")).partition("\n")
        found["why"] = f"{first} (lightrig.cause = {details['cause']}){end}{rest}"
    if outcome in {"failed", "error"}:
        found["wrong"] = True
    if outcome == "inconclusive":
        found["undecided"] = True
    return found


def _not_passed(
    results: Results, name: Literal["wrong", "undecided"]
) -> list[list[tuple[str, str]]]:
    """Return failed or inconclusive tests and their reasons; those of one limit are one group.

    The reasons of a group differ in the counts of samples alone.
    """
    alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for test, added in results.added.items():
        if added.get(name):
            reason = str(added.get("why", "")).partition("\n")[0]
            if attempts := added.get("attempts"):
                reason = f"{reason} (attempt {attempts} of {attempts})"
            testbed = re.split(r"[]/-]", test.partition("[")[2])[0]
            alike.setdefault((testbed, _COUNTS.sub("", reason)), []).append((test, reason))
    return [*alike.values()]


def _counted(results: Results) -> list[tuple[str, int]]:
    known = {outcome: place for place, outcome in enumerate(_ORDER)}
    found = [(outcome, count) for outcome, count in results.outcomes.items() if count]
    return sorted(found, key=lambda pair: known.get(pair[0], -1))


def _packed(results: Results) -> str:
    added = json.dumps(results.added, separators=(",", ":"))
    data = f'{{"html":{results.data},"added":{added}}}'.encode()
    # Without a time, so that equal runs make equal pages.
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode()


@functools.cache
def _script() -> str:
    return (
        resources.files("lightrig.harness.report").joinpath("page.js").read_text(encoding="utf-8")
    )


# --------------------------------------------------------------- what was measured


def sections(
    record: RunRecord, testbeds: Mapping[str, Testbed], run: RunFrame | None = None
) -> Markup:
    """Return everything that `record` says, for all its testbeds, as one HTML fragment.

    testbeds: the descriptions, by the name that the record uses; one without rows is shown
    too. run: the record's rows, if they were collected before. The fragment brings its own
    style, needs no script and nothing from the network. A record that is torn, damaged or
    has no end is shown as far as it goes, with a warning.
    """
    run = run or collect(record)
    measured = {frame.name: frame for frame in run.testbeds}
    notes = (record.summary or {}).get("notes", {})
    cards, found, contents = [], [], []
    for name, prefix in _prefixes(testbeds, run).items():
        frame = with_earlier_relocks(record, measured.get(name, TestbedFrame(name, ())))
        card, answers, entry = render_testbed(
            frame,
            testbeds.get(name),
            prefix,
            notes.get(name),
            str(record.header.get("started", "")),
        )
        cards.append(card)
        contents.append(entry)
        found += answers
    plans = max((len(testbed.plans) for testbed in testbeds.values()), default=0)
    return render_macro(
        "measured",
        "measured",
        style(plans),
        _warnings(record, run),
        render_answers(found),
        Markup().join(contents),
        _facts(record, run),
        record.header.get("command"),
        _deselected(record),
        any(frame.simulated for frame in run.testbeds),
        Markup().join(cards),
    )


def card_ids(testbeds: Mapping[str, Testbed], run: RunFrame) -> dict[str, str]:
    """Return the id of the section that shows a test's measurements, by the test's name."""
    prefixes = _prefixes(testbeds, run)
    return {test.name: prefixes[frame.name] for frame in run.testbeds for test in frame.tests}


def _prefixes(testbeds: Mapping[str, Testbed], run: RunFrame) -> dict[str, str]:
    names = dict.fromkeys([*testbeds, *(frame.name for frame in run.testbeds)])
    return {name: f"lr-{index}" for index, name in enumerate(names)}


def _facts(record: RunRecord, run: RunFrame) -> list[tuple[str, object]]:
    header = record.header
    size = f"{number_of(run.rows, 'row')} of {number_of(len(run.testbeds), 'testbed')}"
    named = ("run", "night", "instruments", "seed")
    return [*((name, header.get(name)) for name in named), ("record", size)]


def _deselected(record: RunRecord) -> tuple[int, Sequence[str]] | None:
    """Return the number of tests that a testbed can never run, and a line for each testbed."""
    found: Mapping[str, Mapping[str, int]] = (record.summary or {}).get("deselected", {})
    if not found:
        return None
    total = sum(sum(reasons.values()) for reasons in found.values())
    return total, [not_applicable(*each) for each in found.items()]


def not_applicable(testbed: str, reasons: Mapping[str, int]) -> str:
    """Return the number of tests that a testbed cannot run, with the reasons, in one line."""
    total = sum(reasons.values())
    most_first = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    why = "; ".join(f"{reason} ({count})" for reason, count in most_first)
    return f"{testbed}: {number_of(total, 'test')} not applicable: {why}"


def _warnings(record: RunRecord, run: RunFrame) -> list[str]:
    found = []
    if record.torn:
        found.append(
            "The journal is torn: its last line was cut short and is left out. The process was "
            "killed while it wrote."
        )
    if not record.complete:
        found.append(
            "The record is incomplete: the run did not end by itself, and what it would have "
            "measured after this is missing."
        )
    summary = record.summary or {}
    if summary.get("ended"):
        cause = f" (lightrig.cause = {summary['cause']})" if summary.get("cause") else ""
        first, end, rest = str(summary["ended"]).partition("\n")
        found.append(f"The run ended before its tests did: {first}{cause}{end}{rest}")
    collected, ended = summary.get("tests"), len(record.tests)
    if isinstance(collected, int) and 0 < ended < collected:
        found.append(f"{collected - ended:,} of {collected:,} tests were not run.")
    if record.damage:
        found.append(
            f"The journal is damaged: {len(record.damage):,} lines are not what was written and "
            f"are left out: {'; '.join(record.damage[:5])}"
        )
    if run.damage is not None:
        found.append(f"The journal is damaged, rows after this are missing: {run.damage}")
    return found


# ------------------------------------------------------------------- from a journal alone


def banner(not_restored: Sequence[str]) -> Markup:
    """Return the part of a page that says which instruments are not as they were found."""
    return render_macro("markup", "warnings", not_restored)


def write_page(
    record: RunRecord,
    testbeds: Mapping[str, Testbed],
    path: Path,
    not_restored: Sequence[str] | None = None,
) -> None:
    """Write the page of `record` to `path`: what was measured, and every test that has ended.

    testbeds: the descriptions, by the names that the record uses; one that is missing is said
    on the page. not_restored: what is not as it was found, by default as the record's summary
    says. The file appears whole or not at all. Raises `OSError` if it cannot be written.
    """
    run = collect(record)
    cards = card_ids(testbeds, run)
    tests: dict[str, list[dict[str, object]]] = {}
    more = {}
    for test in record.tests:
        tests.setdefault(test.nodeid, []).append(_as_pytest_html(test))
        more[test.nodeid] = added(test.outcome, test.details)
        if test.nodeid in cards:
            more[test.nodeid]["card"] = cards[test.nodeid]
    counts = Counter(test.outcome for test in record.tests)
    results = Results(counts, json.dumps({"tests": tests, "environment": {}}), more)
    about = f"{of_run(str(record.header.get('run', '?')), testbeds)}, made from its journal"
    if not_restored is None:
        not_restored = (record.summary or {}).get("not_restored", ())
    body = banner(not_restored) + sections(record, testbeds, run)
    title = title_of(str(record.header.get("run", "")), testbeds)
    found, parts = found_at_begin(record.path.parent, testbeds), parts_of_plans(record.header)
    causes = run_causes(record.tests, testbeds, run, found, parts)
    page = document(title, about, body, results, "", causes)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(page, encoding="utf-8", errors="replace")
    draft.replace(path)


def _as_pytest_html(test: TestOutcome) -> dict[str, object]:
    log = test.details.get("log", "")
    return {
        "result": test.outcome.capitalize(),
        "testId": test.nodeid,
        "duration": format_duration(test.duration_s * 1e9),
        "ms": test.duration_s * 1e3,
        "log": text(log) if isinstance(log, str) else "",
        "extras": [],
    }
