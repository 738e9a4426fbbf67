"""A page of faults by light: stalls and outcomes by duration, and timelines from light to job."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from lightrig.harness.report.drawing import Axis, Plot, decades, even
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page
from lightrig.testbeds.quantities import format_duration

if TYPE_CHECKING:
    from lightrig.harness.jobs.measure.survival import Outcome, Survival
    from lightrig.harness.jobs.measure.survival_map import LongestFault

_ROWS = ("light", "carrier", "kernel", "job")
_LEAST_STALL_S = 1e-3
_STEPS_A_DECADE = 3


def survival_page(
    title: str, testbed: str, found: "Sequence[Survival]", search: "LongestFault | None"
) -> str:
    """Return the page of `found`, which is not empty, as HTML.

    search: where the durations were chosen to find the longest fault that is survived.
    """
    outcomes: list[Outcome] = sorted({each.outcome for each in found})
    examples = {each.outcome: each for each in reversed(found)}
    return render_page(
        "survival",
        title=title,
        about=f"testbed {testbed}; {len(found)} faults by light",
        style=style(0) + page_style(),
        longest=None if search is None else str(search),
        outcomes=[(name, index) for index, name in enumerate(outcomes)],
        map=Markup(_map(found, outcomes, search)),  # noqa: S704 - text in it is escaped
        shares=_shares(found, outcomes),
        timelines=[
            (examples[name], index, Markup(_timeline(examples[name])))  # noqa: S704 - as above
            for index, name in enumerate(outcomes)
        ],
    )


def _map(
    found: "Sequence[Survival]", outcomes: Sequence[str], search: "LongestFault | None"
) -> str:
    """Draw the stall of each fault over its duration, a colour for each outcome."""
    durations = [each.duration / 1e9 for each in found]
    stalls = [max(each.stall / 1e9, _LEAST_STALL_S) for each in found]
    x, y = (decades(min(each), max(each) * 1.001, "s") for each in (durations, stalls))
    x = replace(x, label=f"time without carrier, {x.label}")
    y = replace(y, label=f"stall, {y.label}")
    plot = Plot(720, 300, x, y, left=52, bottom=34)
    for index, outcome in enumerate(outcomes):
        places = [place for place, each in enumerate(found) if each.outcome == outcome]
        plot.dots([durations[p] for p in places], [stalls[p] for p in places], index)
    if search is not None and search.longest.value and not math.isinf(search.longest.value):
        plot.rule(search.longest.value, "longest that half survive")
    return plot.svg("Stall over the duration of each fault", 480)


def _shares(found: "Sequence[Survival]", outcomes: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return how many faults had each outcome, by duration in thirds of a decade."""
    groups: dict[int, Counter[str]] = {}
    for each in found:
        step = math.floor(math.log10(each.duration) * _STEPS_A_DECADE + 1e-9)
        groups.setdefault(step, Counter())[each.outcome] += 1
    return [
        (
            f"{format_duration(10 ** (step / _STEPS_A_DECADE))} to "
            f"{format_duration(10 ** ((step + 1) / _STEPS_A_DECADE))}",
            [groups[step][name] for name in outcomes],
        )
        for step in sorted(groups)
    ]


def _timeline(found: "Survival") -> str:
    """Draw one fault from light to job, in seconds from its first moment on."""
    moments = {name: (at.latest - found.began) / 1e9 for name, at in found.moments.items()}
    lost, back = ((at.latest - found.began) / 1e9 for at in (found.lost, found.back))
    ended = max(moments.get("first result", 0), moments.get("error", 0), back)
    last = max(ended, *moments.values()) * 1.05
    ticks = tuple((len(_ROWS) - 1.0 - row, name) for row, name in enumerate(_ROWS))
    plot = Plot(720, 170, even(0, last, "s"), Axis(-0.6, 3.6, ticks), left=60, bottom=34)
    lights_out = moments.get("command", moments.get("packets lost", 0))
    lit_again = moments.get("command to bring the circuits back", back)
    plot.boxes([lights_out], [lit_again], [3.0], 14, 5)
    if found.dark.latest:
        plot.boxes([lost], [back], [2.0], 14, 5)
    if "first retransmission" in moments:
        plot.dots([moments["first retransmission"]], [1.0], 1)
        anchor = "end" if moments["first retransmission"] > last / 2 else "start"
        plot.word(moments["first retransmission"], 1.25, "first retransmission", anchor)
    for name, index in (
        ("error", 1),
        ("re-formed", 3),
        ("first result", 2),
        ("rate back to 95 %", 0),
    ):
        if name in moments:
            plot.dots([moments[name]], [0.0], index)
            plot.word(moments[name], 0.3 if name != "rate back to 95 %" else -0.5, name, "middle")
    plot.boxes([lost], [min(lost + found.stall / 1e9, last)], [0.0], 6, 4)
    return plot.svg(f"Timeline of {found.fault.what}: {found.outcome}", 480)
