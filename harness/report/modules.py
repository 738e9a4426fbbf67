"""Modules that switch: what they draw, and how warm they are."""

from __future__ import annotations

from collections.abc import Mapping

from harness.report.captions import captioned, key
from harness.report.estimates import Estimate, estimates_of
from harness.report.figures import Line, curve
from harness.report.frames import TestbedFrame
from harness.report.markup import figure, heading, mark, row, table, text, verdict_mark
from harness.report.tables import named
from harness.report.units import plain, shown
from testbeds import Limit

FAMILIES = frozenset(("module_power", "module_temperature"))
"""The quantities of this section."""

_NAMES = {
    "module_power.core": "power of the switching core",
    "module_power.total": "power of the whole module",
    "module_temperature": "temperature inside",
}


def module_estimates(frame: TestbedFrame, limits: Mapping[str, Limit]) -> dict[str, list[Estimate]]:
    """Each quantity of each test: the greatest of its modules speaks."""
    return estimates_of(frame, _NAMES, limits)


def module_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """What the modules say of themselves; empty where none was asked."""
    if not found:
        return ""
    index = {id(test): place for place, test in enumerate(frame.tests)}
    rows = []
    for name, each in found.items():
        limit = each[0].limit
        claim = f" · limit <b>{text(str(limit).partition(' ')[2])}</b>" if limit else ""
        rows.append(f'<tr class="lr-group"><td colspan="3"><b>{_NAMES[name]}</b>{claim}</td></tr>')
        for one in each:
            verdict = verdict_mark(one.verdict) if one.verdict else ""
            rows.append(row((named(one.test, index[id(one.test)]), _greatest(one), verdict)))
    simulated = frame.simulated
    head = ("test", "greatest of all modules", "verdict")
    return (
        f'<h3 class="lr-h3">Modules {mark(simulated)}</h3>'
        + heading("What they say of themselves", simulated, "By their own registers.")
        + table(head, rows, "Modules")
        + f'<div class="lr-figures">{_over_temperature(frame, found)}</div>'
    )


def _greatest(one: Estimate) -> str:
    series = one.test.series[one.quantity]
    at = int(series.value.argmax())
    value = shown(float(series.value[at]), one.unit)
    half = plain(float(series.upper[at] - series.lower[at]) / 2)
    modules = len(set(series.subject))
    company = (
        f"{series.subject[at]}, of {modules} modules",
        f"± {half} {one.unit}: the last digit of its register",
        "simulated" if one.test.simulated else "",
    )
    return figure(value, company)


def _over_temperature(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    figures = []
    for name in ("module_power.core", "module_power.total"):
        points = sorted(
            (celsius, float(one.test.series[name].value.max()))
            for one in found.get(name, ())
            for celsius in _celsius(one, name)
        )
        if len({celsius for celsius, _ in points}) < 2:
            continue
        x, y = zip(*points, strict=True)
        limit = found[name][0].limit
        title = f"{_NAMES[name]} over temperature".capitalize()
        drawn = curve(
            [Line("greatest", x, y, y, y)],
            x="temperature",
            x_unit="°C",
            y_unit="W",
            label=title,
            limit=limit.value if limit else None,
        )
        about = f"{key(0)} the greatest of all modules"
        figures.append(captioned(title, frame.simulated, about, drawn))
    return "".join(figures)


def _celsius(one: Estimate, name: str) -> list[float]:
    held = one.test.series[name].conditions.get("temperature_c")
    return [] if held is None else [float(held[0])]
