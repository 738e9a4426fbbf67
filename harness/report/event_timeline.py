"""The report's timeline of one reconfiguration, as a picture for a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from lightrig.harness.report.escaping import text
from lightrig.harness.report.frames import Series, TestFrame
from lightrig.harness.report.reconfiguration_section import timeline
from lightrig.harness.report.style import figure_style
from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import StageName


class SeenStage(Protocol):
    """A stage of an event at one port."""

    @property
    def subject(self) -> str:
        """The port."""

    @property
    def stage(self) -> str:
        """The stage."""


class TimedEvent(Protocol):
    """An event as `harness.measure.stages.Reconfiguration` has it; times are in ns."""

    @property
    def plan(self) -> str:
        """The plan that was applied."""

    @property
    def moved(self) -> int:
        """How many circuits were made."""

    @property
    def simulated(self) -> bool:
        """Whether any part of it is simulated."""

    @property
    def seen(self) -> Sequence[SeenStage]:
        """Every stage of every port."""

    @property
    def seen_after(self) -> Sequence[Span]:
        """How long after the command each of `seen` was."""

    def points_after(self) -> Sequence[int]:
        """Return the most likely time of each of `seen`."""

    def stages(self) -> Mapping[StageName, Span]:
        """Return each stage of the event as a whole."""

    def points(self) -> Mapping[StageName, int]:
        """Return the most likely time of each stage as a whole."""


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


def event_timeline(event: TimedEvent) -> Picture:
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
