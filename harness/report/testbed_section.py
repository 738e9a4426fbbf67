"""One testbed on the page of a run: its verdicts, instruments, wiring, and all sections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from lightrig.harness.quantities import quantity_of
from lightrig.harness.record import Instrument
from lightrig.harness.report.answers_section import Answer, answers
from lightrig.harness.report.bit_error_section import BIT_ERRORS
from lightrig.harness.report.escaping import text
from lightrig.harness.report.estimates import Estimate, estimates_of
from lightrig.harness.report.frames import TestbedFrame
from lightrig.harness.report.harness_section import CLOSURE, HARNESS
from lightrig.harness.report.insertion_loss_section import INSERTION_LOSS
from lightrig.harness.report.markup import SIGNS, chip, heading, mark, row, table
from lightrig.harness.report.quantity_section import undeclared_sections, with_unlisted
from lightrig.harness.report.reconfiguration_section import OUTAGE, RECONFIGURATION
from lightrig.harness.report.sections import Limits, Section, render, section_id, sentence
from lightrig.harness.report.traffic_section import COLLECTIVES, RECOVERY
from lightrig.harness.report.transceiver_section import PATH_CHANGES, TRANSCEIVERS
from lightrig.harness.report.wiring import wiring_section
from lightrig.harness.system_registry import System, installed_systems
from lightrig.testbeds import ServerSpec, Testbed

_GENERIC = (INSERTION_LOSS, BIT_ERRORS, PATH_CHANGES, TRANSCEIVERS, COLLECTIVES, RECOVERY)
_LAST = (CLOSURE, HARNESS)
_MOST_NOTES = 3


@cache
def _declared() -> tuple[Section, ...]:
    """Return all declared sections in the order of the page."""
    of_systems = chain.from_iterable(map(_of_system, installed_systems().values()))
    return (RECONFIGURATION, OUTAGE, *_GENERIC, *of_systems)


def _of_system(system: System) -> Iterator[Section]:
    """Yield the sections of a system; they show what it declares, unless they say otherwise."""
    declared = frozenset(one.name for one in system.load("quantities") or ())
    for section in system.load("sections") or ():
        yield section if section.shows else replace(section, shows=declared.__contains__)


def render_testbed(
    frame: TestbedFrame, testbed: Testbed | None, prefix: str, notes: Sequence[str] | None = None
) -> tuple[str, list[Answer], str]:
    """Return one testbed as a part of the page, its answers, and its entry of the contents.

    Args:
        frame: its tests with their rows.
        testbed: its description; without one its limits are unknown and nothing is judged.
        prefix: the start of all its ids.
        notes: sentences on the conditions of the run.
    """
    limits = testbed.limits if testbed else {}
    titles = frozenset(section.title for section in (*_declared(), *_LAST))
    known = (with_unlisted(section, frame) for section in _declared())
    last = (with_unlisted(section, frame) for section in _LAST)
    shown = (*known, *undeclared_sections(frame, titles), *last)
    data = [section.data(frame, limits) for section in shown]
    rendered = {
        (section.title, section_id(prefix, section)): markup
        for section, each in zip(shown, data, strict=True)
        if (markup := render(section, each, section_id(prefix, section)))
    }
    sections = "".join(rendered.values())
    estimates = [one for each in data for one in each.all()]
    estimates += _of_rows(frame, limits, {one.quantity for one in estimates})
    undescribed = (
        '<p class="lr-warn">No description of this testbed was given: its limits and its '
        "wiring are unknown, and nothing is judged.</p>"
    )
    parts = [
        f'<h2 class="lr-h2">{text(frame.name)} {mark(frame.simulated)}</h2>',
        f"<p>{text(testbed.about)}</p>" if testbed and testbed.about else "",
        _notes(notes or ()),
        _verdicts(estimates, limits),
        undescribed if testbed is None else "",
        _instruments(frame, testbed),
        wiring_section(testbed, prefix) if testbed else "",
        sections if frame.tests else "<p>No rows in this run.</p>",
    ]
    card = f'<section class="lr-card" id="{prefix}">{"".join(parts)}</section>'
    links = ((text(title), anchor) for title, anchor in rendered)
    entry = _contents(frame.name, prefix, links)
    return card, list(answers(frame.name, prefix, estimates, limits)), entry


def _of_rows(frame: TestbedFrame, limits: Limits, known: Collection[str]) -> Iterator[Estimate]:
    """Estimate what was recorded and has a limit or is a headline, and no section estimates."""
    recorded = {name: series.unit for test in frame.tests for name, series in test.series.items()}
    wanted = [
        name
        for name, unit in recorded.items()
        if name not in known and (name in limits or quantity_of(name, unit).terminal == "headline")
    ]
    return chain.from_iterable(estimates_of(frame, wanted, limits).values())


def _contents(name: str, prefix: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a testbed's entry of the contents: links to it and to its sections."""
    links = " · ".join(f'<a href="#{anchor}">{title}</a>' for title, anchor in sections)
    return f'<li><a href="#{prefix}"><b>{text(name)}</b></a> {links}</li>'


def _notes(notes: Sequence[str]) -> str:
    """Return the notes of tests, folded where they would hide the answers below them."""
    lines = "".join(f'<p class="lr-note">{text(note)}</p>' for note in notes)
    if len(notes) <= _MOST_NOTES:
        return lines
    return f"<details><summary>{len(notes):,} notes of tests</summary>{lines}</details>"


def _verdicts(estimates: Iterable[Estimate], limits: Limits) -> str:
    """Return the number of verdicts by outcome, and the limits that nothing was measured for."""
    counts: Counter[str] = Counter()
    judged = set()
    for one in estimates:
        if one.verdict:
            counts[one.verdict.outcome] += 1
            judged.add(one.quantity)
    unknown = [outcome for outcome in counts if outcome not in SIGNS]
    chips = " ".join(
        chip(outcome, counts[outcome]) for outcome in [*unknown, *SIGNS] if counts[outcome]
    )
    left = [str(limit) for quantity, limit in limits.items() if quantity not in judged]
    missed = f"Limits without a measurement: {'; '.join(left)}" if left else ""
    return (f"<p>Verdicts: {chips}</p>" if chips else "") + (
        f'<p class="lr-about">{text(missed)}</p>' if missed else ""
    )


# ---------------------------------------------------------------------------- instruments


def _instruments(frame: TestbedFrame, testbed: Testbed | None) -> str:
    answers = _answers(frame)
    rows = []
    if testbed is not None:
        specs: list[tuple[str, str, str | None]] = [
            *((s.name, f"{s.kind} switch {s.model}", s.address) for s in testbed.switches.values()),
            *((s.name, _server(s), s.address) for s in testbed.servers.values()),
            *(
                (s.name, f"{sentence(s.kind)} {s.model}", s.address)
                for s in testbed.instruments.values()
            ),
        ]
        for name, description, address in specs:
            rows.append(_instrument(name, description, address or "", answers.pop(name, [])))
    rows += [_instrument(name, "", "", found) for name, found in answers.items()]
    if not rows:
        return ""
    head = ("name", "described as", "address", "answered as", "")
    return heading("Instruments", False) + table(head, rows, "Instruments")


def _server(spec: ServerSpec) -> str:
    parts = [f"{len(spec.nics)} NICs" if len(spec.nics) > 1 else "NIC"] if spec.nics else []
    models = {nic.model for nic in spec.nics.values() if nic.model}
    if models:
        parts[-1] += f" {', '.join(sorted(models))}"
    if spec.gpus.count:
        parts.append(f"{spec.gpus.count} GPUs {spec.gpus.model}")
    return "server" + (f": {', '.join(parts)}" if parts else "")


def _instrument(
    name: str, description: str, address: str, found: Sequence[tuple[str, bool]]
) -> str:
    identities = "".join(f'<span class="lr-id">{text(identity)}</span>' for identity, _ in found)
    simulated = any(of_simulation for _, of_simulation in found)
    state = mark(simulated) or ("not simulated" if found else "")
    shown = f'<span class="lr-mono">{text(address)}</span>' if address else "none"
    return row(
        (f"<b>{text(name)}</b>", text(description), shown, identities or "took no part", state)
    )


def _answers(frame: TestbedFrame) -> dict[str, list[tuple[str, bool]]]:
    """Return the identities of each participant by name, and whether each is simulated."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for test in frame.tests:
        for context in test.contexts:
            for instrument in context.instruments:
                name, identity = _identity(instrument)
                # A simulated device declares itself by its serial number.
                of_simulation = re.search(r"\bserial:? SIM", identity, re.IGNORECASE) is not None
                if (identity, of_simulation) not in found.setdefault(name, []):
                    found[name].append((identity, of_simulation))
    return found


def _identity(instrument: Instrument) -> tuple[str, str]:
    if isinstance(instrument, str):
        name, found, identity = instrument.partition(": ")
        return (name, identity) if found else (instrument, instrument)
    fields = dict(instrument)
    name = str(fields.pop("name", fields.get("serial", fields.get("model", "?"))))
    return name, ", ".join(f"{key} {value}" for key, value in fields.items())
