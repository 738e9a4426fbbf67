"""All that is said of one testbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.report.described import described
from harness.report.distributions import Curve, panel
from harness.report.estimates import Estimate
from harness.report.frames import TestbedFrame
from harness.report.markup import SIGNS, chip, heading, mark, text
from harness.report.other import other_estimates, other_section
from harness.report.own import OWN
from harness.report.stages import MEANING
from harness.report.tables import (
    closure_section,
    cost_section,
    legend,
    stage_estimates,
    time_table,
)
from harness.report.timeline import middle_event, timeline
from harness.statistics import Quantile
from testbeds import Limit, Testbed


def card(
    frame: TestbedFrame, testbed: Testbed | None, prefix: str, notes: Sequence[str] | None = None
) -> str:
    """One testbed as a section of the page; `prefix` begins all its ids.

    notes: what a person should know of how it was run, one sentence each.
    """
    limits = testbed.limits if testbed else {}
    found = stage_estimates(frame, limits)
    own = [each.estimates(frame, limits) for each in OWN]
    rest = other_estimates(frame, limits)
    parts = [
        f'<h2 class="lr-h2">{text(frame.name)} {mark(frame.simulated)}</h2>',
        f"<p>{text(testbed.about)}</p>" if testbed and testbed.about else "",
        *(f'<p class="lr-note">{text(note)}</p>' for note in notes or ()),
        _verdicts({**found, **{q: e for each in own for q, e in each.items()}, **rest}, limits),
        described(frame, testbed, prefix),
        _measured(
            frame,
            found,
            "".join(one.section(frame, each) for one, each in zip(OWN, own, strict=True)),
            other_section(frame, rest, limits),
        )
        if frame.tests
        else "<p>No rows in this run.</p>",
    ]
    return f'<section class="lr-card" id="{prefix}">{"".join(parts)}</section>'


def _verdicts(found: Mapping[str, list[Estimate]], limits: Mapping[str, Limit]) -> str:
    counts: Counter[str] = Counter(
        e.verdict.outcome for each in found.values() for e in each if e.verdict
    )
    unknown = [outcome for outcome in counts if outcome not in SIGNS]
    chips = " ".join(
        chip(outcome, counts[outcome]) for outcome in [*unknown, *SIGNS] if counts[outcome]
    )
    judged = {quantity for quantity, each in found.items() if any(e.verdict for e in each)}
    left = [str(limit) for quantity, limit in limits.items() if quantity not in judged]
    missed = (
        f"Limits stated, and nothing measured to judge by them: {'; '.join(left)}" if left else ""
    )
    return (f"<p>Verdicts: {chips}</p>" if chips else "") + (
        f'<p class="lr-about">{text(missed)}</p>' if missed else ""
    )


def _measured(frame: TestbedFrame, found: Mapping[str, list[Estimate]], own: str, rest: str) -> str:
    stages = {q: each for q, each in found.items() if q.startswith("reconfiguration.")}
    outages = {q: each for q, each in found.items() if q.startswith("outage.")}
    parts = []
    if stages:
        about = (
            "Times after the command, one sample an event. Where several ports take part, what "
            "comes up counts when the last has it, what goes down when the first has lost it. "
            "“Known to” is the mean width of what the observers could tell."
        )
        title = "Stages of a reconfiguration"
        parts += [
            f'<h3 class="lr-h3">Reconfiguration {mark(frame.simulated)}</h3>',
            legend(frame.tests),
            heading(title, frame.simulated, about),
            time_table(frame, stages, title),
            _timeline(frame),
            heading(
                "Distributions",
                frame.simulated,
                "Share of events done by a time after the command. The truth lies in the band, "
                "between the curve of the earliest and that of the latest moments; below, in the "
                "legend's order, the 95 % intervals of the medians.",
            ),
            _panels(frame, stages),
        ]
    if outages:
        about = "How long one port was without: the worst port of each event, one sample an event."
        parts += [
            f'<h3 class="lr-h3">Outage {mark(frame.simulated)}</h3>',
            "" if stages else legend(frame.tests),
            heading("Outage of the worst port", frame.simulated, about),
            time_table(frame, outages, "Outages"),
            _panels(frame, outages),
        ]
    parts.append(own)
    if rest:
        parts += [f'<h3 class="lr-h3">Other quantities {mark(frame.simulated)}</h3>', rest]
    check = closure_section(frame) + cost_section(frame)
    if check:
        parts += [f'<h3 class="lr-h3">The harness itself {mark(frame.simulated)}</h3>', check]
    return "".join(parts)


def _timeline(frame: TestbedFrame) -> str:
    index, test = max(enumerate(frame.tests), key=lambda pair: (len(pair[1].stages()), -pair[0]))
    event = middle_event(test)
    if event is None:
        return ""
    about = (
        f"Event {event} of {test.label}. Each bar is one port, from the earliest to the latest "
        "moment that it can have been; logarithmic after the first mark."
    )
    drawn = timeline(test, event, index)
    return (
        heading("One event", test.simulated, about)
        + f'<div class="lr-scroll" tabindex="0" role="region" aria-label="One event">{drawn}</div>'
    )


def _panels(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    index = {id(test): place for place, test in enumerate(frame.tests)}
    figures = []
    for quantity, each in found.items():
        stage = quantity.removeprefix("reconfiguration.")
        # A curve of less than has a median is no distribution, and crosses all the others.
        many = [one for one in each if isinstance(one.median, Quantile)] or each
        curves = [Curve(index[id(one.test)], *one.test.series[quantity].samples()) for one in many]
        simulated = any(one.test.simulated for one in each)
        meaning = MEANING.get(stage, "")
        drawn = panel(curves, each[0].limit, f"Distribution of {quantity}")
        figures.append(
            f"<figure><figcaption><b>{text(stage)}</b> {mark(simulated)} {text(meaning)}"
            f"</figcaption>{drawn}</figure>"
        )
    return f'<div class="lr-panels">{"".join(figures)}</div>'
