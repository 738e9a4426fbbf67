"""Waits of a training job in other sizes, computed from runs of it in two sizes and more."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal, TypeAlias

from lightrig.harness.jobs.predicted_steps import PredictedStep
from lightrig.harness.jobs.statistics.means import MeanEstimate
from lightrig.harness.systems.opus.measurements.training_answer import MS, TrainingAnswer
from lightrig.harness.workloads.graph import Workload

Axis: TypeAlias = Literal["stages", "replicas"]
"""The degree in which the sizes of a job differ."""
_DOUBLINGS = 3
_SHOWN = (10 * MS, 100 * MS, 1000 * MS)
"""Switching times that a person reads, in ns; JSON has all."""


@dataclass(frozen=True)
class Growth:
    """Waits of a step by the size of the job: on a straight line through the sizes that have run.

    Attributes:
        axis: degree in which the sizes differ. run: those that have run.
        waits: of a step, in ns, by switching time in ns and by size.
    """

    axis: Axis
    run: tuple[int, ...]
    waits: Mapping[int, Mapping[int, MeanEstimate]]


@dataclass(frozen=True)
class GrowingAnswer:
    """Cost of circuits to a training job in several sizes, and in larger ones by computation.

    growth: None where ranks pass through different phases, so that no wait of a step is stated.
    """

    first: TrainingAnswer
    also: tuple[TrainingAnswer, ...]
    growth: Growth | None

    @property
    def recorded(self) -> Workload | str:
        """The recorded step of the first size, or why there is none."""
        return self.first.recorded

    @property
    def predicted(self) -> PredictedStep | str:
        """The predicted step of the first size, or why there is none."""
        return self.first.predicted

    @property
    def as_printed_before(self) -> bool:
        """Whether the ranks printed the same numbers in both runs, in all sizes."""
        return all(each.as_printed_before for each in (self.first, *self.also))

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON has it; waits of larger sizes are computed, in ns."""
        grown = self.growth and [
            {"switching_ns": switching, self.growth.axis: size, **asdict(wait)}
            for switching, waits in self.growth.waits.items()
            for size, wait in waits.items()
        ]
        return self.first.document() | {
            "also": [each.document() for each in self.also],
            "growth": grown or [],
        }

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        yield from self.first.lines()
        for each in self.also:
            yield (f"also      {each.stages} stages of {each.ranks // each.stages} ranks, "
                   f"on {each.ranks} ranks")  # fmt: skip
            yield from each.lines()
        if self.growth is None:
            yield "growth    is not stated: what phases wait is not, in one of the sizes"
            return
        run = " and ".join(map(str, self.growth.run))
        yield (f"growth    with {self.growth.axis}, computed: on a straight line through the runs "
               f"of {run}, a step waits")  # fmt: skip
        for switching in filter(self.growth.waits.get, _SHOWN):
            for size, wait in self.growth.waits[switching].items():
                yield f"          {switching / MS:6.4g} ms, {size} {self.growth.axis}: {wait}"


def answer_in_sizes(axis: Axis, answers: Sequence[TrainingAnswer]) -> GrowingAnswer:
    """Return the answers of runs in several sizes together, and what follows for larger sizes."""
    first, *also = answers
    by_size = {
        each.stages if axis == "stages" else each.ranks // each.stages: each.exposed
        for each in answers
    }
    known = all(by_size.values())
    return GrowingAnswer(first, tuple(also), growth(axis, by_size) if known else None)


def axis_of(sizes: Sequence[tuple[int, int]]) -> Axis:
    """Return the one degree in which sizes differ, each as stages and ranks of a stage.

    Raises `ValueError` where they differ in both, or two are equal.
    """
    stages, replicas = ([each[place] for each in sizes] for place in (0, 1))
    axes: dict[Axis, bool] = {
        "stages": len(set(stages)) == len(sizes) and len(set(replicas)) == 1,
        "replicas": len(set(replicas)) == len(sizes) and len(set(stages)) == 1,
    }
    found: list[Axis] = [axis for axis, alone in axes.items() if alone]
    if len(found) != 1:
        stated = ", ".join(f"{a} stages of {b} ranks" for a, b in sizes)
        raise ValueError(f"{stated}: expected sizes that differ in stages alone, or in ranks alone")
    return found[0]


def growth(axis: Axis, by_size: Mapping[int, Mapping[int, MeanEstimate]]) -> Growth:
    """Return the waits in three doublings, from the largest size on.

    by_size: waits in sizes that have run, at least two, by switching time.
    """
    run = tuple(sorted(by_size))
    first = 2 ** (run[-1].bit_length())
    sizes = [first << number for number in range(_DOUBLINGS)]
    common = set.intersection(*(set(each) for each in by_size.values()))
    return Growth(
        axis,
        run,
        {
            switching: {
                size: on_line({each: by_size[each][switching] for each in run}, size)
                for size in sizes
            }
            for switching in sorted(common)
        },
    )


def on_line(found: Mapping[int, MeanEstimate], size: int) -> MeanEstimate:
    """Return the value at `size` of the straight line through values at other sizes.

    The line is that of least squares, a weighted sum of the values; its interval is that of this
    sum, for values that deviate independently. That waits grow by the same amount with each stage
    is an assumption, which the interval does not cover.
    """
    sizes = sorted(found)
    middle = fmean(sizes)
    spread = sum((each - middle) ** 2 for each in sizes)
    weights = {each: 1 / len(sizes) + (size - middle) * (each - middle) / spread for each in sizes}
    value = sum(weight * found[each].value for each, weight in weights.items())
    half = math.hypot(
        *(weight * (found[each].upper - found[each].value) for each, weight in weights.items())
    )
    n = min(each.n for each in found.values())
    return MeanEstimate(value, value - half, value + half, n).at_least_zero()
