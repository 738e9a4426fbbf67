"""The time between light and carrier at one end of a link, divided into stages.

What is read of a module and of a port bounds moments (marks); between two marks in their order lies
a stage. A mark that nothing showed leaves its two stages "between A and B". Firmware tells how long
some stages lasted and not when: such a duration bounds its marks, and with them all others.

Latched flags (CMIS, SFF-8636; cleared by any reading): where r1 is the reading before r2, the last
that showed the flag, and r3 the first that did not, the condition ended between the start of r1 and
the end of r2, since reading r2 cleared what had latched after r1. SFF-8472's are not latched.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, groupby, pairwise

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkUpTimes, ModuleLights, Shown, ShownState

MARKS = (
    *("signal recovered", "signal detected", "lock", "output valid"),
    *("NIC signal", "PHY up", "firmware up", "driver's line", "carrier up"),
)
"""Moments in the order in which a receiving end reaches them; the first two differ by their
observer: the switch's monitor, and the module's loss of signal."""

STAGES = (
    *("signal detection", "clock recovery", "module output"),
    *("NIC input", "PHY", "firmware", "driver", "carrier"),
)
"""Stages by name: the one of place i lies between marks i and i + 1."""

MARKS_AFTER = ("carrier up", "address usable", "first datagram", "first RDMA operation")
"""What follows a carrier; nothing here observes addresses and RDMA operations so far."""

STAGES_AFTER = ("address", "first datagram", "first RDMA operation")
"""The same as `STAGES`, of `MARKS_AFTER`."""

DURATIONS = "firmware's durations"
"""What stands among the contradicted marks for durations that do not fit between the others."""

_MILLISECOND = 1_000_000
_STEADY = "DPActivated"


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
    order = _order(readings)
    for end, state in enumerate(order):
        if state in order[:end]:
            begin = len(order[:end]) - 1 - order[:end][::-1].index(state)
            return tuple(order[begin : end + 1])
    return ()


def _order(readings: Sequence[ShownState]) -> list[str]:
    return [state for state, _ in groupby(reading.state for reading in readings)]


def path_sentence(shown: ModuleLights) -> str:
    """Return what the data paths did that light does not explain; empty where they stayed.

    A module that was begun anew passes each state once and ends where it began. One of whose lanes
    comes to a state once more on its way is in a loop of its state machine. Lanes need not pass
    their states together, so that what all of them show may come again without one.
    """
    order = _order(shown.paths)
    if all(state == _STEADY for state in order):
        return ""
    passed = " > ".join(order[order[0] == _STEADY :])
    for lane, readings in shown.lanes.items():
        underway = list(dropwhile(lambda one: one.state == _STEADY, readings))
        if loop := returned_states(underway):
            return f"were in a loop, lane {lane}: {' > '.join(loop)}"
    return f"left {_STEADY}: {passed}" if order[0] == _STEADY else f"were not {_STEADY}: {passed}"


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
            and so tell nothing; `DURATIONS` if those do not fit.
        after: what followed the carrier, as far as it was seen.
        moments: when each mark between which the parts lie was, in order, as the others bound it.
    """

    whole: Span
    parts: tuple[RelockPart, ...]
    contradicted: tuple[str, ...] = ()
    after: tuple[RelockPart, ...] = ()
    moments: tuple[tuple[str, Span], ...] = ()

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


def relock_of(
    marks: Mapping[str, Span | None], durations: Mapping[tuple[str, str], Span] | None = None
) -> Relock:
    """Return what marks of one end tell of the time from light to carrier, and after it.

    Marks bound each other by their order. One that contradicts a later one was reported late.

    Args:
        marks: by names of `MARKS` and `MARKS_AFTER`; None or absent where it was not seen.
        durations: between two of `MARKS`, in ns, which need not be seen themselves.

    Raises:
        ValueError: the first or the last of `MARKS` was not seen, or they contradict each other.
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
    found = _divided(seen, durations or {})
    if found is None:
        contradicted.append(DURATIONS)
        found = _divided(seen, {})
        assert found is not None  # no mark is later than one that follows it
    after, late = _after(marks)
    moments = [*found.moments]
    for name in (part.between[1] for part in after):
        at = marks[name]
        assert at is not None
        moments.append((name, at))
    late = (*contradicted, *late)
    return replace(found, contradicted=late, after=after, moments=tuple(moments))


def _divided(seen: Mapping[str, Span], durations: Mapping[tuple[str, str], Span]) -> Relock | None:
    """Return the parts between marks and what durations bound; None if these cannot all be true.

    Bounds of differences of moments are closed by the shortest paths between them: R. Dechter,
    I. Meiri, J. Pearl, "Temporal constraint networks", Artificial Intelligence 49 (1991), section
    3. The midpoints of the bounds of all moments satisfy them together.
    """
    names = [name for name in MARKS if name in seen or any(name in pair for pair in durations)]
    size = len(names) + 1
    origin = size - 1
    most = [[0.0 if i == j else math.inf for j in range(size)] for i in range(size)]
    edges = [(names[i + 1], names[i], 0) for i in range(len(names) - 1)]
    for (left, right), length in durations.items():
        edges += [(left, right, length.latest), (right, left, -length.earliest)]
    place = {name: i for i, name in enumerate(names)}
    for left, right, bound in edges:
        most[place[left]][place[right]] = min(most[place[left]][place[right]], bound)
    base = seen[MARKS[0]].earliest  # all that is added is small, and exact
    for name, span in seen.items():
        most[origin][place[name]] = span.latest - base
        most[place[name]][origin] = base - span.earliest
    for via in range(size):
        for row in most:
            through = row[via]
            for i, step in enumerate(most[via]):
                row[i] = min(row[i], through + step)
    if any(most[i][i] < 0 for i in range(size)):
        return None

    def between(i: int, j: int) -> Span:
        return Span(round(-most[j][i]), round(most[i][j]))

    middles = [sum(between(origin, i)) / 2 for i in range(len(names))]
    parts = tuple(
        RelockPart(
            stages=STAGES[MARKS.index(left) : MARKS.index(right)],
            between=(left, right),
            length=between(i, i + 1),
            point=middles[i + 1] - middles[i],
        )
        for i, (left, right) in enumerate(pairwise(names))
    )
    bounds = (between(origin, i) for i in range(len(names)))
    moments = tuple(
        (name, Span(base + earliest, base + latest))
        for name, (earliest, latest) in zip(names, bounds, strict=True)
    )
    return Relock(whole=between(0, len(names) - 1), parts=parts, moments=moments)


def _after(marks: Mapping[str, Span | None]) -> tuple[tuple[RelockPart, ...], tuple[str, ...]]:
    """Return the parts after the carrier, and the marks that were reported before it."""
    parts, late = [], []
    left, at = MARKS_AFTER[0], marks[MARKS_AFTER[0]]
    assert at is not None
    for right in MARKS_AFTER[1:]:
        until = marks.get(right)
        if until is None:
            continue
        if until.latest < at.earliest:
            late.append(right)
            continue
        length = until.since(at)
        length = Span(max(length.earliest, 0), length.latest)
        within = STAGES_AFTER[MARKS_AFTER.index(left) : MARKS_AFTER.index(right)]
        point = sum(length) / 2
        parts.append(RelockPart(stages=within, between=(left, right), length=length, point=point))
        left, at = right, until
    return tuple(parts), tuple(late)


def durations_of(
    before: LinkUpTimes | None, after: LinkUpTimes | None, longest: int
) -> dict[tuple[str, str], Span]:
    """Return what firmware's timers tell of an event.

    The timers start anew only where firmware resets them, both together: values that were there
    before the event, or one longer than this can have lasted, are of another link-up. One of 0 has
    not ended.

    Args:
        before: read before it; None where they could not be.
        after: likewise, after it.
        longest: since the light went, in ns.
    """
    found: dict[tuple[str, str], Span] = {}
    if before is None or after is None or before[:2] == after[:2]:
        return found
    for pair, new in (
        (("NIC signal", "PHY up"), after.signal_to_phy),
        (("PHY up", "firmware up"), after.phy_to_active),
    ):
        if new and new <= longest:  # whole milliseconds, however they are rounded
            found[pair] = Span(max(new - _MILLISECOND, 0), new + _MILLISECOND)
    return found


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
