"""The time between light and carrier at one end of a link, divided into stages.

What is read of a module and of a port bounds moments (marks); between two marks in their order lies
a stage. A mark that nothing showed leaves its two stages "between A and B".

Latched flags (CMIS, SFF-8636; cleared by any reading): where r1 is the reading before r2, the last
that showed the flag, and r3 the first that did not, the condition ended between the start of r1 and
the end of r2, since reading r2 cleared what had latched after r1. SFF-8472's are not latched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ModuleLights, Shown, ShownState

MARKS = ("signal recovered", "signal detected", "lock", "output valid", "firmware up", "carrier up")
"""Moments in the order in which a receiving end reaches them; the first two differ by their
observer: the switch's monitor, and the module's loss of signal."""

STAGES = ("signal detection", "clock recovery", "module output", "firmware", "driver")
"""Stages by name: the one of place i lies between marks i and i + 1."""


def condition_ended(
    readings: Sequence[Shown], *, latched: bool, late: int = 0, alone: bool = True
) -> Span | None:
    """Return when the condition behind a flag ended, the last time that the readings tell.

    None where no reading without the flag follows one with it: then they tell of no end. The first
    reading of all must show the flag's past only, so a latched flag needs one reading before.

    Args:
        readings: in order of time, none overlapping another.
        latched: whether the flag stays set until a reading clears it.
        late: by how many ns at most the module shows a change after it happened.
        alone: whether no program but this one reads the module meanwhile; a foreign reading may
            have cleared the flag, which then says no more than an unlatched one of its end.
    """
    for place in range(len(readings) - 2, -1, -1):
        last, clear = readings[place], readings[place + 1]
        if not last.is_set or clear.is_set:
            continue
        if not latched:
            return Span(last.at.earliest - late, clear.at.latest)
        if place == 0:
            return None
        end = last.at.latest if alone else clear.at.latest
        return Span(readings[place - 1].at.earliest - late, end)
    return None


def entered(readings: Sequence[ShownState], state: str, *, late: int = 0) -> Span | None:
    """Return when a state was entered for the last time; None if no reading shows that.

    Between the start of the last reading with another state and the end of the next one. late: by
    how many ns at most the module shows a change after it happened.
    """
    for before, after in reversed(list(pairwise(readings))):
        if after.state == state and before.state != state:
            return Span(before.at.earliest - late, after.at.latest)
    return None


def returned_states(readings: Sequence[ShownState]) -> tuple[str, ...]:
    """Return the states of a loop: from a state that was left until it came again, both included.

    Empty if no state came twice.
    """
    order = [state for state, _ in groupby(reading.state for reading in readings)]
    for end, state in enumerate(order):
        if state in order[:end]:
            begin = len(order[:end]) - 1 - order[:end][::-1].index(state)
            return tuple(order[begin : end + 1])
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RelockPart:
    """The time between two marks that were seen, with none seen between them.

    Attributes:
        stages: those in it, of `STAGES`: several where marks between them were not seen.
        between: the two marks, of `MARKS`.
        length: bounds in ns, never negative.
        point: in ns, within `length`; the points of all parts add up to that of the whole.
    """

    stages: tuple[str, ...]
    between: tuple[str, str]
    length: Span
    point: float

    def __str__(self) -> str:
        """Return its stages, and what they lie between where a mark was not seen."""
        if len(self.stages) == 1:
            return self.stages[0]
        return f"{', '.join(self.stages)} (between {self.between[0]} and {self.between[1]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relock:
    """The time from light to carrier at one end.

    Attributes:
        whole: bounds of it, in ns.
        parts: in order; every one of `STAGES` is in one of them.
        contradicted: marks that were reported after one that follows them, or before the first,
            and so tell nothing.
    """

    whole: Span
    parts: tuple[RelockPart, ...]
    contradicted: tuple[str, ...] = ()

    def longest(self) -> tuple[RelockPart, ...]:
        """Return the parts of which one has the longest stage: a single one where that is known.

        Of k stages that cannot be told apart the longest takes at least a k-th of their time.
        """
        least = max(part.length.earliest / len(part.stages) for part in self.parts)
        return tuple(part for part in self.parts if part.length.latest >= least)

    def sums_hold(self) -> bool:
        """Whether the parts add up to the whole within the intervals."""
        least, most = (sum(part.length[end] for part in self.parts) for end in (0, 1))
        return least <= self.whole.latest and self.whole.earliest <= most


def relock_of(marks: Mapping[str, Span | None]) -> Relock:
    """Return what marks of one end tell of the time from light to carrier.

    Marks bound each other by their order. One that contradicts a later one was reported late.

    marks: by names of `MARKS`; None or absent where it was not seen.

    Raises `ValueError` where the first or the last mark was not seen, or they contradict each
    other.
    """
    seen = {name: span for name in MARKS if (span := marks.get(name)) is not None}
    if unseen := [name for name in (MARKS[0], MARKS[-1]) if name not in seen]:
        raise ValueError(f"not seen: {' and '.join(unseen)}")
    first, last = seen[MARKS[0]], seen[MARKS[-1]]
    if last.latest < first.earliest:
        raise ValueError(f"{MARKS[-1]} was before {MARKS[0]}")
    contradicted = []
    for place, name in enumerate(MARKS[1:-1], 1):
        later = [seen[each].latest for each in MARKS[place + 1 :] if each in seen]
        if name in seen and (
            seen[name].earliest > min(later) or seen[name].latest < first.earliest
        ):
            contradicted.append(name)
            del seen[name]
    names = list(seen)
    earliest = accumulate((seen[name].earliest for name in names), max)
    latest = [*accumulate((seen[name].latest for name in reversed(names)), min)][::-1]
    bounds = [Span(*pair) for pair in zip(earliest, latest, strict=True)]
    parts = []
    for (left, at), (right, until) in pairwise(zip(names, bounds, strict=True)):
        within = STAGES[MARKS.index(left) : MARKS.index(right)]
        length = until.since(at)
        length = Span(max(length.earliest, 0), length.latest)
        point = (sum(until) - sum(at)) / 2
        parts.append(RelockPart(stages=within, between=(left, right), length=length, point=point))
    whole = bounds[-1].since(bounds[0])
    return Relock(
        whole=Span(max(whole.earliest, 0), whole.latest),
        parts=tuple(parts),
        contradicted=tuple(contradicted),
    )


def marks_of(lights: ModuleLights, since: int) -> dict[str, Span | None]:
    """Return the marks that a module's readings tell of an event.

    A flag that was never seen set says nothing; neither does one read first after it was.

    since: the event's begin, in ns; what ended before belongs to another one.
    """
    output = [ShownState(at, "valid" if is_set else "") for at, is_set in lights.output]
    found = {
        "signal detected": condition_ended(
            lights.no_signal, latched=lights.latched, late=lights.late
        ),
        "lock": condition_ended(lights.no_lock, latched=lights.latched, late=lights.late),
        "output valid": entered(output, "valid", late=lights.late),
    }
    return {
        name: span if span is not None and span.latest >= since else None
        for name, span in found.items()
    }
