"""The report's timeline of one reconfiguration, as a picture for a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightrig.harness.report.escaping import text
from lightrig.harness.report.frames import Series, TestFrame
from lightrig.harness.report.reconfiguration_section import timeline
from lightrig.harness.report.style import figure_style

if TYPE_CHECKING:
    from lightrig.harness.measure.stages import Reconfiguration


class Picture:
    """A picture of the report with its caption; a notebook shows it where it ends a cell.

    Attributes:
        svg: the picture alone.
        html: the picture with caption and style, for any page.
    """

    def __init__(self, svg: str, caption: str, *, simulated: bool) -> None:
        self.svg = svg
        mark = ' <span class="lr-sim">simulated</span>' if simulated else ""
        self.html = (
            f'<figure class="lr-figure lr-report"><style>{figure_style()}</style>'
            f"<figcaption>{text(caption)}{mark}</figcaption>{svg}</figure>"
        )

    def save(self, path: str | Path) -> None:
        """Write the picture as a page; raises `OSError`."""
        Path(path).write_text(f'<!doctype html><meta charset="utf-8">{self.html}\n', "utf-8")

    def _repr_html_(self) -> str:
        return self.html


def event_timeline(event: Reconfiguration) -> Picture:
    """Draw when each stage of an event came at each port, after the command."""
    series: dict[str, Series] = {}
    points = event.points()
    for stage, span in event.stages().items():
        whole = [("", span.earliest, points[stage], span.latest)]
        series[f"reconfiguration.{stage}"] = _series(whole)
        each = zip(event.seen, event.seen_after, event.points_after(), strict=True)
        series[stage] = _series(
            [
                (one.subject, after.earliest, point, after.latest)
                for one, after, point in each
                if one.stage == stage
            ]
        )
    frame = TestFrame("", f"the change to {event.plan}", event.simulated, (), series)
    svg = timeline(frame, 0, 0) if series else ""
    caption = f"Change to {event.plan}: {event.moved} circuits made. Each bar is one port, from the"
    return Picture(
        svg,
        f"{caption} earliest to the latest possible moment; logarithmic after the first mark.",
        simulated=event.simulated,
    )


def _series(found: list[tuple[str, int, int, int]]) -> Series:
    subjects, *numbers = zip(*found, strict=True)
    lower, value, upper = (np.array(each, dtype=np.float64) for each in numbers)
    event, count = np.zeros(len(found), np.int64), np.ones(len(found), np.int64)
    return Series("ns", tuple(subjects), event, lower, value, upper, count)
