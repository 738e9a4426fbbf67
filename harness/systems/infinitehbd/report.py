"""Recovery of a ring of servers from a node failure, and the return of the node, by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lightrig.harness.jobs.report.traffic_section import median_or_range
from lightrig.harness.report.drawing import Axis, Plot, from_zero
from lightrig.harness.report.estimates import Estimate
from lightrig.harness.report.frames import TestFrame
from lightrig.harness.report.sections import (
    Column,
    Figure,
    Figures,
    RowGroup,
    Section,
    SectionData,
    Table,
)
from lightrig.harness.systems.infinitehbd.quantities import BYPASS, STAGES

_ROW, _LEFT = 30.0, 190.0

_KINDS = {"bypass": "after the failure", "return": "after the return"}


class _StageOfTest(NamedTuple):
    """One stage of one test, after the failure ("bypass") or after the return ("return")."""

    test: TestFrame
    kind: str
    stage: str
    estimate: Estimate

    @property
    def title(self) -> str:
        return f"{self.test.label}: {_KINDS[self.kind]}"


def _stages(data: SectionData) -> Iterator[_StageOfTest]:
    for test, found in data.by_test():
        for kind in _KINDS:
            for stage in STAGES:
                one = found.get(f"{kind}.{stage}")
                if one is not None:
                    yield _StageOfTest(test, kind, stage, one)


def _timelines(data: SectionData) -> Iterator[Figure]:
    by_title: dict[str, list[_StageOfTest]] = {}
    for one in _stages(data):
        by_title.setdefault(one.title, []).append(one)
    for title, each in by_title.items():
        yield _timeline(title, each[0].test, each[0].kind, [one.stage for one in each])


def _timeline(title: str, test: TestFrame, kind: str, stages: Sequence[str]) -> Figure:
    """Draw each stage of each event as a bar from the earliest to the latest possible moment."""
    bounds = [test.samples(f"{kind}.{stage}") for stage in stages]
    ends = np.concatenate([high for _, high in bounds])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    first, last = (float(ends.min()), float(ends.max())) if ends.size else (1e6, 1e6)
    across = from_zero(first, last * 1.4)
    # Heights count downwards, in rows.
    marks = tuple((-place - 0.5, STAGES[stage]) for place, stage in enumerate(stages))
    upright = Axis(-float(len(stages)), 0, marks)
    plot = Plot(620, _ROW * len(stages) + 40, across, upright, left=_LEFT, top=6, bottom=34)
    for place, (low, high) in enumerate(bounds):
        heights = -place - (np.arange(low.size) + 0.5) / low.size
        plot.boxes(low, np.minimum(high, last * 1.4), heights, _ROW / low.size * 0.6, place)
    return Figure(
        title,
        plot.svg(title, least_width=520),
        test.simulated,
        "One bar for each event; the axis is linear up to its first mark, then logarithmic.",
    )


SECTIONS = (
    Section(
        BYPASS,
        parts=(
            Table(
                "Bypass of a node in a ring",
                (
                    Column[_StageOfTest]("stage", lambda one: STAGES[one.stage]),
                    Column[_StageOfTest]("after", lambda one: median_or_range(one.estimate)),
                    Column[_StageOfTest]("verdict", lambda one: one.estimate.verdict),
                ),
                rows=_stages,
                about="Times after the node's loss of signal, or after its recovery; a stage "
                "ends when all its participants are done. The kernel's links follow the light of "
                "simulated transceivers in real time; their speed is this machine's, not that of "
                "a transceiver. The program of a returned node loads PyTorch again.",
                group=lambda one: RowGroup(one.title),
            ),
            Figures(_timelines),
        ),
    ),
)
