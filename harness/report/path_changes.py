"""Modules that switch: how long their light is away, by path, and how long a host waits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.report.captions import captioned, keys
from harness.report.distributions import Curve, panel
from harness.report.estimates import Estimate, estimates_of
from harness.report.frames import TestbedFrame
from harness.report.markup import heading, mark, median_figure, row, table, verdict_mark
from harness.report.tables import named
from testbeds import Limit

FAMILIES = frozenset(("path_change",))
"""The quantities of this section."""

DARK, WHOLE, DONE = "path_change.dark", "path_change.end_to_end", "path_change.done"
_NAMES = {DARK: "light away", WHOLE: "call to light", DONE: "call to word"}


def path_change_estimates(
    frame: TestbedFrame, limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """Each quantity of each test: the slowest module of an event speaks."""
    return estimates_of(frame, _NAMES, limits)


def path_change_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """How fast paths change; empty where none was seen to."""
    if not found:
        return ""
    index = {id(test): place for place, test in enumerate(frame.tests)}
    rows = []
    for one in found.get(DARK, []):
        cells = [named(one.test, index[id(one.test)])]
        for name in _NAMES:
            same = [each for each in found.get(name, []) if each.test is one.test]
            cells.append("".join(_cell(each) for each in same))
        rows.append(row(cells))
    limit = next((each[0].limit for each in found.values() if each[0].limit), None)
    about = (
        "Light away: from the moment when light has left a module's old path until it is on the "
        "new one, by samples of a power meter that are simultaneous; of the slowest module of each "
        "change. Call to light and to word: from the call of the driver, which reads the paths "
        "and writes them, or only triggers what is preloaded, until light is on all new paths, "
        "and until the modules have said so."
    )
    if limit is not None:
        about += f" Limit: {limit}."
    title = "Switch times of modules"
    return (
        f'<h3 class="lr-h3">Path changes {mark(frame.simulated)}</h3>'
        + heading(title, frame.simulated, about)
        + table(("test", *_NAMES.values()), rows, title)
        + '<div class="lr-figures">'
        + _steps(frame, DARK, 1, "Light away, by path", limit)
        + _steps(frame, WHOLE, 2, "Call to light, by session")
        + "</div>"
    )


def _cell(one: Estimate) -> str:
    verdict = f" {verdict_mark(one.verdict)}" if one.verdict else ""
    return median_figure(one.median, one.test.simulated) + verdict


def _steps(
    frame: TestbedFrame, quantity: str, word: int, title: str, limit: Limit | None = None
) -> str:
    """Step curves over all tests; `word` says which word of its subjects tells them apart.

    Of the modules of one change the slowest speaks, as they move together.
    """
    bounds: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
    for test in frame.having(quantity):
        series = test.series[quantity]
        rows = zip(series.subject, series.event, series.lower, series.upper, strict=True)
        for subject, event, low, high in rows:
            same = bounds.setdefault(subject.split(", ")[word], {})
            change = f"{test.name} {test.label}", int(event)
            known = same.get(change, (low, high))
            same[change] = max(known[0], float(low)), max(known[1], float(high))
    curves = [
        Curve(index, *np.array(list(same.values())).T) for index, same in enumerate(bounds.values())
    ]
    counted = ((n, f"{name}, {len(same):,}") for n, (name, same) in enumerate(bounds.items()))
    about = f"Share of changes done by a time.{keys(counted)}"
    return captioned(title, frame.simulated, about, panel(curves, limit, title), "lr-narrow")
