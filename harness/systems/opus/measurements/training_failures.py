"""Costs of failures of a training job, in parts from its last whole step on."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.jobs.statistics.means import MeanEstimate, mean_of
from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError
from lightrig.harness.systems.opus.runtime.restarts import Failure
from lightrig.harness.systems.opus.runtime.training import Attempt
from lightrig.instruments.clock import Span

PARTS = (
    "step until the fault",
    "until it is noticed",
    "until all ranks ended",
    "ring of all ranks set",
    "programs started",
    "until the first operation",
    "steps done again",
)
"""Consecutive parts of a failure's cost, from the end of the last whole step before it."""


@dataclass(frozen=True, slots=True)
class FailureCost:
    """Time that a failure cost, from the last whole step until as much was done again.

    Attributes:
        cause: what was lost.
        begin: what is taken for the moment of the fault.
        step: that was under way, counted from 1; None where steps are unknown.
        again: steps done once more; None where that is unknown.
        parts: bounds of each of `PARTS`, in ns; one measurement each.
        moved: server and spare where ranks moved; that is in the parts about the ring and programs.
        rerouted: rails that were left, each with the one that carries its traffic since.
        before, since: mean duration of a step in the attempt that failed, and in the one after it,
            in ns; none for fewer than two.
    """

    cause: str
    begin: str
    step: int | None
    again: int | None
    parts: Mapping[str, Span]
    moved: tuple[str, str] | None = None
    rerouted: tuple[tuple[int, int], ...] = ()
    before: MeanEstimate | None = None
    since: MeanEstimate | None = None

    @property
    def cost(self) -> Span:
        """Sum of the parts, in ns."""
        parts = self.parts.values()
        return Span(sum(part.earliest for part in parts), sum(part.latest for part in parts))

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        step = "" if self.step is None else f"in step {self.step}: "
        again = "an unknown number of steps" if self.again is None else f"{self.again} steps"
        again = "1 step" if self.again == 1 else again
        yield f"failure   {step}{self.cause}"
        yield f"          cost {_seconds(self.cost)} (n = 1), {again} done again; of it"
        for name, part in self.parts.items():
            since = f", counted from {self.begin}" if name == PARTS[1] else ""
            yield f"          {name:<25} {_seconds(part)}{since}"
        if self.moved is not None:
            server, spare = self.moved
            ring, programs = self.parts[PARTS[3]], self.parts[PARTS[4]]
            took = Span(ring.earliest + programs.earliest, ring.latest + programs.latest)
            yield (f"          the ranks of {server} moved to {spare}: setting the ring and "
                   f"starting programs took {_seconds(took)} with that")  # fmt: skip
        for rail, carrying in self.rerouted:
            yield (f"          the traffic of rail {rail} moved to the links of rail {carrying}, a "
                   "ring of all ranks since")  # fmt: skip
        if self.moved is not None or self.rerouted:
            before, later = self.before or "not known", self.since or "not known"
            yield f"          a step took {before} before, {later} since"


def failure_costs(
    failures: Sequence[Failure], last: Attempt, steps: int, begins: Sequence[float]
) -> list[FailureCost]:
    """Return the costs of failures, which restarts followed.

    last: the attempt that ended well. steps: of the script where nothing fails; 0 where they are
    unknown. begins: the share of its numbers at which each attempt begins, as far as it is known.
    """
    attempts = [*(failure.attempt for failure in failures), last]
    first = [round(share * steps) for share in begins] if steps and begins else []
    if first:
        first[-1] = steps - last.steps
    found = []
    for number, (failure, after) in enumerate(zip(failures, attempts[1:], strict=True)):
        before = failure.attempt
        step = first[number] + before.steps if first else None
        again = None if step is None else max(0, step - first[number + 1])
        fault, begin = _fault(failure)
        start = before.end_of(before.steps) or fault
        resumed = after.end_of(0) or _at(after.failed or failure.programs)
        done = after.end_of(min(again or 0, after.steps)) or resumed
        moments = [
            start,
            Span(max(fault.earliest, start.earliest), max(fault.latest, start.latest)),
            *map(_at, (before.failed or failure.ended, failure.ended)),
            *map(_at, (failure.circuits, failure.programs)),
            resumed,
            done,
        ]
        parts = [until.since(since) for since, until in itertools.pairwise(moments)]
        found.append(
            FailureCost(
                failure.cause,
                begin,
                None if step is None else step + 1,
                again,
                dict(zip(PARTS, parts, strict=True)),
                failure.moved,
                failure.rerouted,
                _step_of(before),
                _step_of(after),
            )
        )
    return found


def _step_of(attempt: Attempt) -> MeanEstimate | None:
    """Return the mean duration of a step but the first, until the last rank had ended it."""
    ends = [end for step in range(1, attempt.steps + 1) if (end := attempt.end_of(step))]
    lengths = [after.latest - before.latest for before, after in itertools.pairwise(ends)]
    return mean_of(lengths).at_least_zero() if len(lengths) > 1 else None


def _fault(failure: Failure) -> tuple[Span, str]:
    """Return the moment of a fault, and what it is."""
    if failure.attempt.fault is not None:
        return _at(failure.attempt.fault), "the fault that was made"
    if isinstance(failure.error, LinkLostError):
        return failure.error.link.since, "the loss of carrier"
    return _at(failure.attempt.failed or failure.ended), "the end of the rank"


def _at(moment: int) -> Span:
    return Span(moment, moment)


def _seconds(time: Span) -> str:
    """Return a time in s, with its bounds where they differ."""
    earliest, latest = (f"{each / 1e9:.3f}" for each in time)
    return f"{latest} s" if earliest == latest else f"{earliest} … {latest} s"
