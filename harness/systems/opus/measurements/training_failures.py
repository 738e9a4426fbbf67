"""Costs of failures of a training job, in parts from its last whole step on."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    """

    cause: str
    begin: str
    step: int | None
    again: int | None
    parts: Mapping[str, Span]
    moved: tuple[str, str] | None = None

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
            )
        )
    return found


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
