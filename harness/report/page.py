"""A run as one fragment of HTML, to be put into the page that pytest-html writes."""

from __future__ import annotations

from collections.abc import Mapping

from harness.record import RunRecord
from harness.report.card import card
from harness.report.frames import RunFrame, TestbedFrame, collect
from harness.report.markup import LEGEND, SIMULATED, text
from harness.report.style import style
from testbeds import Testbed


def sections(
    record: RunRecord, testbeds: Mapping[str, Testbed], run: RunFrame | None = None
) -> str:
    """Return everything that `record` says, for all its testbeds, as one HTML fragment.

    testbeds: the descriptions, by the name that the record uses; one without rows is shown
    too. run: the record's rows, if they were collected before. The fragment brings its own
    style, needs no script and nothing from the network. A record that is torn, damaged or
    has no end is shown as far as it goes, with a warning.
    """
    run = run or collect(record)
    measured = {frame.name: frame for frame in run.testbeds}
    notes = (record.summary or {}).get("notes", {})
    cards = []
    for name, prefix in _prefixes(testbeds, run).items():
        frame = measured.get(name, TestbedFrame(name, ()))
        cards.append(card(frame, testbeds.get(name), prefix, notes.get(name)))
    plans = max((len(testbed.plans) for testbed in testbeds.values()), default=0)
    head = _head(record, run)
    return f'{style(plans)}<div class="lr-report">{head}{"".join(cards)}</div>'


def card_ids(testbeds: Mapping[str, Testbed], run: RunFrame) -> dict[str, str]:
    """Where on the page is what a test measured: the id of a section, by the test's name."""
    prefixes = _prefixes(testbeds, run)
    return {test.name: prefixes[frame.name] for frame in run.testbeds for test in frame.tests}


def _prefixes(testbeds: Mapping[str, Testbed], run: RunFrame) -> dict[str, str]:
    names = dict.fromkeys([*testbeds, *(frame.name for frame in run.testbeds)])
    return {name: f"lr-{index}" for index, name in enumerate(names)}


def _head(record: RunRecord, run: RunFrame) -> str:
    header = record.header
    facts = [("run", header.get("run")), ("night", header.get("night"))]
    facts += [("instruments", header.get("instruments")), ("seed", header.get("seed"))]
    tests = sum(len(frame.tests) for frame in run.testbeds)
    counts = ((run.rows, "row"), (tests, "test"), (len(run.testbeds), "testbed"))
    record_size = ", ".join(f"{count:,} {one}{'s' * (count != 1)}" for count, one in counts)
    facts.append(("record", record_size))
    lines = [
        f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts if value is not None
    ]
    if header.get("command"):
        command = text(header["command"])
        lines.append(f'<dt>command</dt><dd class="lr-mono">{command}</dd>')
    simulated = any(frame.simulated for frame in run.testbeds)
    legend = f"<p>{SIMULATED}: {LEGEND}</p>" if simulated else ""
    return (
        f'<section class="lr-head"><h2 class="lr-h2">What was measured</h2>{_warnings(record, run)}'
        f'<dl class="lr-facts">{"".join(lines)}</dl>{legend}</section>'
    )


def _warnings(record: RunRecord, run: RunFrame) -> str:
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
        found.append(f"The run ended before its tests did: {summary['ended']}")
    collected, ended = summary.get("tests"), len(record.tests)
    if isinstance(collected, int) and 0 < ended < collected:
        found.append(f"{collected - ended:,} of {collected:,} tests were not run.")
    if run.damage is not None:
        found.append(f"The journal is damaged, rows after this are missing: {run.damage}")
    return "".join(f'<p class="lr-warn" role="alert">{text(one)}</p>' for one in found)
