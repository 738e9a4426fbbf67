"""One testbed on the page of a run: its verdicts, instruments, wiring, and all sections."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import NamedTuple

from markupsafe import Markup

from lightrig.harness.record import Instrument
from lightrig.harness.report.answers_section import Answer, answers, is_answer
from lightrig.harness.report.bit_error_section import BIT_ERRORS
from lightrig.harness.report.estimates import Estimate, estimates_of
from lightrig.harness.report.frames import TestbedFrame
from lightrig.harness.report.harness_section import CLOSURE, HARNESS
from lightrig.harness.report.insertion_loss_section import INSERTION_LOSS
from lightrig.harness.report.markup import outcome_counts
from lightrig.harness.report.quantity_section import undeclared_sections, with_unlisted
from lightrig.harness.report.reconfiguration_section import OUTAGE, RECONFIGURATION
from lightrig.harness.report.relock_section import RELOCK
from lightrig.harness.report.sections import Limits, Section, render, section_id, sentence
from lightrig.harness.report.signed_report import lines
from lightrig.harness.report.soak_section import SOAK
from lightrig.harness.report.templates import render_macro
from lightrig.harness.report.transceiver_section import PATH_CHANGES, PORT_COUNTERS, TRANSCEIVERS
from lightrig.harness.report.wiring import wiring_section
from lightrig.harness.system_registry import System, installed_systems
from lightrig.packs import load_all
from lightrig.testbeds import Limit, ServerSpec, Testbed

_GENERIC = (INSERTION_LOSS, BIT_ERRORS, PATH_CHANGES, TRANSCEIVERS, PORT_COUNTERS)
_LAST = (CLOSURE, HARNESS)


@cache
def _declared() -> tuple[Section, ...]:
    """Return all declared sections in the order of the page."""
    of_packs = chain.from_iterable(sections for _, sections in load_all("sections"))
    of_systems = chain.from_iterable(map(_of_system, installed_systems().values()))
    return (SOAK, RELOCK, RECONFIGURATION, OUTAGE, *_GENERIC, *of_packs, *of_systems)


def _of_system(system: System) -> Iterator[Section]:
    """Yield the sections of a system; they show what it declares, unless they say otherwise."""
    declared = frozenset(one.name for one in system.load("quantities") or ())
    for section in system.load("sections") or ():
        yield section if section.shows else replace(section, shows=declared.__contains__)


def render_testbed(
    frame: TestbedFrame,
    testbed: Testbed | None,
    prefix: str,
    notes: Sequence[str] | None = None,
    started: str = "",
) -> tuple[Markup, list[Answer], Markup]:
    """Return one testbed as a part of the page, its answers, and its entry of the contents.

    Args:
        frame: its tests with their rows.
        testbed: its description; without one its limits are unknown and nothing is judged.
        prefix: the start of all its ids.
        notes: sentences on the conditions of the run.
        started: date and time at which the run began.
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
    estimates = [one for each in data for one in each.all()]
    estimates += _of_rows(frame, limits, {one.quantity for one in estimates})
    counts, missed = _verdicts(estimates, limits)
    card = render_macro(
        "testbed",
        "testbed",
        frame=frame,
        described=testbed,
        anchor=prefix,
        notes_of_tests=notes or (),
        counts=counts,
        missed=missed,
        found=_instruments(frame, testbed),
        wiring=wiring_section(testbed, prefix) if testbed else "",
        stated=[*lines(frame, testbed, started)] if testbed else [],
        sections=Markup().join(rendered.values()),
    )
    entry = render_macro("testbed", "contents", frame.name, prefix, [*rendered])
    return card, list(answers(frame.name, prefix, estimates, limits)), entry


def _of_rows(frame: TestbedFrame, limits: Limits, known: Collection[str]) -> Iterator[Estimate]:
    """Estimate what was recorded and has a limit or an answer, and no section estimates."""
    recorded = {name: series.unit for test in frame.tests for name, series in test.series.items()}
    wanted = [
        name
        for name, unit in recorded.items()
        if name not in known and (name in limits or is_answer(name, unit))
    ]
    return chain.from_iterable(estimates_of(frame, wanted, limits).values())


def _verdicts(
    estimates: Iterable[Estimate], limits: Limits
) -> tuple[Mapping[str, int], Sequence[Limit]]:
    """Return the number of verdicts by outcome, and the limits that nothing was measured for."""
    shown, judged = list[str](), set()
    for one in estimates:
        if one.verdict:
            shown.append(one.verdict.shown)
            judged.add(one.quantity)
    return outcome_counts(shown), [
        limit for quantity, limit in limits.items() if quantity not in judged
    ]


# ---------------------------------------------------------------------------- instruments


class _Instrument(NamedTuple):
    """An instrument as the description has it, and its identities, each simulated or not."""

    name: str
    description: str
    address: str | None
    answers: Sequence[tuple[str, bool]]

    @property
    def simulated(self) -> bool:
        """Whether any of its identities is of a simulated device."""
        return any(of_simulation for _, of_simulation in self.answers)


def _instruments(frame: TestbedFrame, testbed: Testbed | None) -> list[_Instrument]:
    answers = _answers(frame)
    specs: list[tuple[str, str, str | None]] = []
    if testbed is not None:
        specs += (
            (s.name, f"{s.kind} switch {s.model}", s.address) for s in testbed.switches.values()
        )
        specs += ((s.name, _server(s), s.address) for s in testbed.servers.values())
        specs += (
            (s.name, f"{sentence(s.kind)} {s.model}", s.address)
            for s in testbed.instruments.values()
        )
    described = [_Instrument(*spec, answers.pop(spec[0], [])) for spec in specs]
    return described + [_Instrument(name, "", "", found) for name, found in answers.items()]


def _server(spec: ServerSpec) -> str:
    parts = [f"{len(spec.nics)} NICs" if len(spec.nics) > 1 else "NIC"] if spec.nics else []
    models = {nic.model for nic in spec.nics.values() if nic.model}
    if models:
        parts[-1] += f" {', '.join(sorted(models))}"
    if spec.gpus.count:
        parts.append(f"{spec.gpus.count} GPUs {spec.gpus.model}")
    return "server" + (f": {', '.join(parts)}" if parts else "")


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
