"""What stands in the lab: instruments, wiring and plans, from a testbed's description."""

from __future__ import annotations

import re
from pathlib import Path

from harness.record import Instrument
from harness.report.drawing import tone
from harness.report.frames import TestbedFrame
from harness.report.links import link_diagram
from harness.report.markup import heading, mark, row, table, text
from harness.report.style import page_style, style
from harness.report.wiring import wiring
from testbeds import ServerSpec, Testbed


def described(frame: TestbedFrame, testbed: Testbed | None, prefix: str) -> str:
    """The instruments that took part, and the wiring and plans of `testbed`."""
    if testbed is None:
        return (
            '<p class="lr-warn">No description of this testbed was given: its limits and its '
            "wiring are unknown, and nothing is judged.</p>" + _instruments(frame, None)
        )
    return _instruments(frame, testbed) + _wiring(testbed, prefix)


def write_wiring(testbed: Testbed, path: Path) -> None:
    """Write the wiring and plans of `testbed` as a page; raises `OSError`."""
    title = text(testbed.name)
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title>{style(len(testbed.plans))}{page_style()}</head>"
        f'<body class="lr-page"><header class="lr-title"><h1>{title}</h1>'
        f'<p>{text(testbed.about)}</p></header><main class="lr-report">'
        f'<section class="lr-card">{_wiring(testbed, "testbed")}</section></main></body></html>\n',
        encoding="utf-8",
    )


def _instruments(frame: TestbedFrame, testbed: Testbed | None) -> str:
    answers = _answers(frame)
    rows = []
    if testbed is not None:
        specs: list[tuple[str, str, str | None]] = [
            *((s.name, f"{s.kind} switch {s.model}", s.address) for s in testbed.switches.values()),
            *((s.name, _server(s), s.address) for s in testbed.servers.values()),
            *((s.name, f"{s.kind} {s.model}", s.address) for s in testbed.instruments.values()),
        ]
        for name, what, address in specs:
            rows.append(_instrument(name, what, address or "", answers.pop(name, [])))
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


def _instrument(name: str, what: str, address: str, found: list[tuple[str, bool]]) -> str:
    identities = "".join(f'<span class="lr-id">{text(identity)}</span>' for identity, _ in found)
    simulated = any(made_up for _, made_up in found)
    state = mark(simulated) or ("not simulated" if found else "")
    shown = f'<span class="lr-mono">{text(address)}</span>' if address else "none"
    return row((f"<b>{text(name)}</b>", text(what), shown, identities or "took no part", state))


def _answers(frame: TestbedFrame) -> dict[str, list[tuple[str, bool]]]:
    """What each participant said of itself, by name, and whether it is simulated."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for test in frame.tests:
        for context in test.contexts:
            for instrument in context.instruments:
                name, identity = _identity(instrument)
                # A simulated peer declares itself by its serial.
                made_up = re.search(r"\bserial:? SIM", identity, re.IGNORECASE) is not None
                if (identity, made_up) not in found.setdefault(name, []):
                    found[name].append((identity, made_up))
    return found


def _identity(instrument: Instrument) -> tuple[str, str]:
    if isinstance(instrument, str):
        name, found, identity = instrument.partition(": ")
        return (name, identity) if found else (instrument, instrument)
    fields = dict(instrument)
    name = str(fields.pop("name", fields.get("serial", fields.get("model", "?"))))
    return name, ", ".join(f"{key} {value}" for key, value in fields.items())


def _wiring(testbed: Testbed, prefix: str) -> str:
    picks, cards = [], []
    for index, (name, plan) in enumerate(testbed.plans.items()):
        links = len(testbed.links(plan))
        checked = " checked" if index == 0 else ""
        drawn = link_diagram(testbed, name, f"lr-link {tone(index)}")
        picks.append(
            f'<input class="lr-pick lr-pick{index}" type="radio" name="{prefix}-plan" '
            f'id="{prefix}-plan{index}" aria-label="Show plan {text(name)}"{checked}>'
        )
        cards.append(
            f'<label class="lr-l{index}" for="{prefix}-plan{index}"><b>{text(name)}</b> '
            f'<span class="lr-with">{links} links, {len(plan)} circuits</span>'
            f"{drawn}</label>"
        )
    fibers = len(testbed.fibers)
    about = (
        f"{fibers} fibers, light from left to right. Pick a plan to see its circuits inside the "
        "switch."
        if cards
        else f"{fibers} fibers, light from left to right."
    )
    return (
        heading("Wiring and plans", False, about)
        + f'<div class="lr-wiring">{"".join(picks)}<div class="lr-plans">{"".join(cards)}</div>'
        '<div class="lr-scroll" tabindex="0" role="region" aria-label="Wiring">'
        f"{wiring(testbed)}</div></div>"
    )
