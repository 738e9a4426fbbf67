"""The tables of a testbed: stages with verdicts, outages, closure, the harness's own cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from harness.report.captions import key
from harness.report.estimates import CONFIDENCE, Estimate, estimates_of
from harness.report.frames import TestbedFrame, TestFrame
from harness.report.markup import (
    duration,
    figure,
    heading,
    mark,
    median_figure,
    p99_figure,
    row,
    share_interval,
    table,
    test_link,
    text,
    verdict_mark,
)
from harness.report.stages import MEANING, ordered
from harness.statistics import quantile
from harness.statistics.binomial import clopper_pearson
from testbeds import Limit, format_share

_HEAD = ("test", "events", "median", "p99", "known to", "verdict")

_COSTS = {
    "harness.carrier_stamp": "from the kernel's change of a carrier to the harness's stamp of it",
    "harness.netlink_delay": "netlink's news of a carrier, after the fast path's",
    "harness.outage_error": "an outage by datagrams, off that of the true links or carriers",
}


def legend(tests: Iterable[TestFrame]) -> str:
    """Which colour is which test."""
    items = "".join(
        f'<li title="{text(test.name)}">{key(index)} <span>{text(test.label)} '
        f"{mark(test.simulated)}</span></li>"
        for index, test in enumerate(tests)
    )
    return f'<ul class="lr-legend">{items}</ul>'


def stage_estimates(frame: TestbedFrame, limits: Mapping[str, Limit]) -> dict[str, list[Estimate]]:
    """The estimates of each stage of whole events, and of outages, by quantity."""
    stages = ordered(q.partition(".")[2] for q in frame.quantities("reconfiguration"))
    names = [f"reconfiguration.{stage}" for stage in stages]
    names += sorted(frame.quantities("outage"))
    return estimates_of(frame, names, limits)


def time_table(frame: TestbedFrame, found: Mapping[str, list[Estimate]], title: str) -> str:
    """Median, p99 and verdict of each quantity and test, grouped by quantity."""
    return table(_HEAD, _time_rows(frame, found), title)


def _time_rows(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> Iterator[str]:
    index = {id(test): place for place, test in enumerate(frame.tests)}
    for quantity, each in found.items():
        stage = quantity.removeprefix("reconfiguration.")
        meaning = MEANING.get(stage, "")
        limit = each[0].limit
        claim = f" · limit <b>{text(str(limit).partition(' ')[2])}</b>" if limit else ""
        yield (
            f'<tr class="lr-group"><td colspan="{len(_HEAD)}"><b>{text(stage)}</b> '
            f'<span class="lr-with">{text(meaning)}</span>{claim}</td></tr>'
        )
        for one in each:
            yield row(
                (
                    named(one.test, index[id(one.test)]),
                    _events(one),
                    median_figure(one.median, one.test.simulated),
                    p99_figure(one.p99, one.test.simulated),
                    text(duration(one.width)),
                    verdict_mark(one.verdict) if one.verdict else "",
                )
            )


def named(test: TestFrame, index: int) -> str:
    """A test by colour, label and whether it was simulated."""
    return (
        f'<span class="lr-what" title="{text(test.name)}">{key(index)} '
        f'<a href="{test_link(test.name)}">{text(test.label)}</a></span>'
        f"<br>{mark(test.simulated) or 'hardware'}"
    )


def _events(one: Estimate) -> str:
    if one.n == one.events:
        return f"{one.n:,}"
    return f'<b class="lr-missing">{one.n:,} of {one.events:,}</b>'


def closure_section(frame: TestbedFrame) -> str:
    """Closure of each stage over all simulated tests; empty where there is none."""
    names = frame.quantities("closure")
    if not names:
        return ""
    rows = [_closure_row(frame, stage) for stage in ordered(n.partition(".")[2] for n in names)]
    head = (
        "stage",
        "verdict",
        "intervals that hold the truth",
        "events, all intervals",
        "width",
        "",
    )
    return heading(
        "Closure",
        frame.simulated,
        "closure: measured against the truth put in. An interval closes where it holds the moment "
        "that really was; a wide one closes easily, so its width stands beside. The interval of "
        "the share counts events, since the ports of one event move together.",
    ) + table(head, rows, "Closure")


def _closure_row(frame: TestbedFrame, stage: str) -> str:
    inside = total = whole = events = 0
    widths: list[float] = []
    missed: list[str] = []
    tests = frame.having(f"closure.{stage}")
    for test in tests:
        series = test.series[f"closure.{stage}"]
        held = np.rint(series.value * series.count)
        inside += int(held.sum())
        total += int(series.count.sum())
        whole += int((held == series.count).sum())
        events += held.size
        if (held < series.count).any():
            missed.append(test.label)
        seen = test.series.get(stage)
        if seen is not None:
            widths += (seen.upper - seen.lower).tolist()
    closed = inside == total
    verdict = (
        '<span class="lr-verdict lr-pass">✓ closed</span>'
        if closed
        else '<span class="lr-verdict lr-fail">✗ not closed</span> '
        f'<span class="lr-with">{total - inside:,} missed in {text("; ".join(missed))}</span>'
    )
    low, high = clopper_pearson(whole, events, CONFIDENCE)
    simulated = any(test.simulated for test in tests)
    return row(
        (
            f"<b>{text(stage)}</b>",
            verdict,
            f"{inside:,} of {total:,} "
            f'<span class="lr-with">({text(format_share(_cut(inside / max(total, 1))))})</span>',
            share_interval(f"{whole:,} of {events:,}", low, high),
            figure(duration(float(np.mean(widths))), (f"mean of {len(widths):,}",))
            if widths
            else "",
            mark(simulated),
        )
    )


def _cut(share: float) -> float:
    # Rounded down, so that only all of them are 100 %.
    return float(np.floor(share * 1e4) / 1e4)


def cost_section(frame: TestbedFrame) -> str:
    """What the harness itself adds to a time; empty where it was not measured."""
    names = frame.quantities("harness")
    if not names:
        return ""
    head = ("quantity", "of", "median", "p99", "")
    rows: list[str] = []
    for name in names:
        rows += _cost_rows(frame, name)
    return heading(
        "The harness's own cost",
        frame.simulated,
        "How long after the fact the harness stamps what it sees: a resolution that no "
        "measurement of this run can be better than. The upper bound of each stamp's delay is "
        "counted, from the request that caused the change. Stamps of one event are not "
        "independent, so each event's worst is judged too.",
    ) + table(head, rows, "The harness's own cost")


def _cost_rows(frame: TestbedFrame, name: str) -> Iterator[str]:
    tests = [test for test in frame.having(name) if test.series[name].unit == "ns"]
    if not tests:
        return
    simulated = any(test.simulated for test in tests)
    each = np.concatenate([test.series[name].upper for test in tests])
    worst = np.concatenate([test.series[name].each_event()[1] for test in tests])
    meaning = _COSTS.get(name, "")
    for samples, what in ((each, "each stamp"), (worst, "worst of each event")):
        # A stamp without an upper bound is left in: it counts as never.
        low = np.minimum(samples, float(2**63))
        yield row(
            (
                f"<b>{text(name.partition('.')[2])}</b> "
                f'<span class="lr-with">{text(meaning)}</span>',
                f"{what} ({samples.size:,})",
                median_figure(quantile(low, samples, 0.5, CONFIDENCE), simulated),
                p99_figure(quantile(low, samples, 0.99, CONFIDENCE, "upper"), simulated),
                mark(simulated),
            )
        )
