"""Ground truth of a simulated world, from which closure is computed.

Only closure may read it; drivers and measurements never do.
"""

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable

from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import EventStage, Watch
from lightrig.instruments.named_tuples import new_tuple
from lightrig.testbeds.errors import LightrigError

MOST_MOMENTS = 8192
"""Number of moments of one kind that are stored; then the older half is dropped.

Closure judges an event as soon as it is over, and a night of a testbed has millions of moments.
"""


_LAST = 2**63 - 1
"""A moment after all others, in ns."""

_ALIKE = 10_000_000
"""Interruptions whose lengths differ by less, in ns: either may count as the longest."""


class DroppedTruthError(LightrigError):
    """The ground truth was asked for a time of which it stores nothing any more."""


class _Moments:
    """Moments of one kind, oldest first, by their bounds in ns.

    dropped: bound of the latest moment that is not stored any more.
    """

    __slots__ = ("dropped", "earliest", "latest")

    def __init__(self) -> None:
        # Objects would take eight times the memory.
        self.earliest = array("q")
        self.latest = array("q")
        self.dropped: int | None = None

    def append(self, earliest: int, latest: int) -> None:
        self.earliest.append(earliest)
        self.latest.append(latest)
        if len(self.latest) > MOST_MOMENTS:
            count = MOST_MOMENTS // 2
            self.dropped = self.latest[count - 1]
            del self.earliest[:count], self.latest[:count]

    def check(self, since: int) -> None:
        """Raise `DroppedTruthError` where moments after `since` were dropped."""
        if self.dropped is not None and since <= self.dropped:
            raise DroppedTruthError(
                f"the ground truth was asked for moments since {since} ns, and stores those after "
                f"{self.dropped} ns; judge events as they are measured"
            )

    def span(self, index: int) -> Span:
        return Span(self.earliest[index], self.latest[index])

    def between(self, since: int, until: int) -> tuple[Span, ...]:
        """Return those that may have been after `since` and until `until`."""
        if self.dropped is not None:
            self.check(since)
        earliest, latest = self.earliest, self.latest
        # An event is judged as soon as it is over: as good as always the last moment is in question
        # alone, and no search finds it sooner.
        if len(latest) > 1 and latest[-2] < since <= latest[-1] and earliest[-1] <= until:
            return (new_tuple(Span, (earliest[-1], latest[-1])),)
        begin = bisect_left(latest, since)
        end = bisect_right(earliest, until)
        return tuple([self.span(index) for index in range(begin, end)])


class GroundTruth:
    """Times when each thing went up or down, by its name and stage.

    Subjects are what the testbed calls them: `ocs.35` for the light at an egress,
    `server0.nic0.p1` for a NIC port's link. Stages are the signals of `core.stages`: `light`,
    `firmware`, `carrier`, `datagram` and, for a switch, `acknowledged`. Light
    that comes or goes gradually has the stages `light10`, `half` and `light90` as well. `harness`
    has `written` a command or a query, where the simulation lets a write take time. A moment that
    the simulation itself knows only within bounds, such as a change in the kernel, is a span with a
    width.
    """

    def __init__(self) -> None:
        self._moments: defaultdict[tuple[str, str, bool], _Moments] = defaultdict(_Moments)
        self._subjects: defaultdict[str, set[str]] = defaultdict(set)
        self._listed: dict[str, tuple[str, ...]] = {}
        self._listing = threading.Lock()
        self._ratios: dict[str, Callable[[], float | None]] = {}
        self._late: dict[str, Callable[[], int]] = {}

    def note(self, subject: str, stage: str, *, up: bool, at: Span) -> None:
        """Record that `subject` went up or down in `stage` at `at`."""
        if stage == "acknowledged" and subject in self._late:
            late = self._late[subject]()
            at = Span(at.earliest + late, at.latest + late)
        moments = self._moments[subject, stage, up]
        earliest, latest = at
        moments.append(earliest, latest)
        if len(moments.latest) == 1:
            self._subjects[stage].add(subject)
            self._list_anew(stage)

    def note_delay(self, subject: str, late: Callable[[], int]) -> None:
        """Let `late` tell by how many ns an acknowledgement of `subject` is delayed at present."""
        self._late[subject] = late

    def withdraw(self, subject: str, stage: str, *, up: bool) -> None:
        """Remove the last such moment: it was planned, and will not happen."""
        moments = self._moments[subject, stage, up]
        moments.earliest.pop()
        moments.latest.pop()
        self._list_anew(stage)

    def first(self, subject: str, stage: str, *, up: bool, since: int) -> Span | None:
        """Return the first such moment not before `since`, or None."""
        moments = self._moments[subject, stage, up]
        moments.check(since)
        index = bisect_left(moments.latest, since)
        return moments.span(index) if index < len(moments.latest) else None

    def knows(self, subject: str, stage: str) -> bool:
        """Whether any moment of a stage of `subject` is known, so that none is missing."""
        return bool(self._moments[subject, stage, True].latest) or bool(
            self._moments[subject, stage, False].latest
        )

    def subjects(self, stage: str) -> tuple[str, ...]:
        """Return the subjects of which any moment of a stage is known."""
        found = self._listed.get(stage)
        if found is None:
            with self._listing:
                known = [each for each in sorted(self._subjects[stage]) if self.knows(each, stage)]
                self._listed[stage] = found = tuple(known)
        return found

    def _list_anew(self, stage: str) -> None:
        # Only once a list that may lack a change has been stored is it removed.
        with self._listing:
            self._listed.pop(stage, None)

    def last(
        self, subject: str, stage: str, *, since: int, until: int | None = None
    ) -> Span | None:
        """Return the last moment at which `stage` went up, not after `until`.

        None if that was before `since`.
        """
        moments = self._moments[subject, stage, True]
        moments.check(since)
        count = len(moments.latest) if until is None else bisect_right(moments.latest, until)
        found = moments.span(count - 1) if count else None
        return found if found is not None and found.latest >= since else None

    def moments_of(self, stage: EventStage, subject: str, watch: Watch) -> tuple[Span, ...]:
        """Return when a stage of `subject` may have been in an event; nothing if it was not.

        One moment, unless another change may have come too late for the watch to see it.
        """
        if stage.counts == "longest":
            longest = self._longest(subject, stage.signal, watch)
            if longest:
                return tuple([rise if stage.up else fall for fall, rise in longest])
        of_signal = self._moments[subject, stage.signal, stage.up]
        changes = of_signal.between(watch.since, watch.until.latest)
        if len(changes) < 2:  # as good as always
            return changes
        if stage.counts != "last":
            return changes[:1]
        unseen = sum(moment.latest > watch.until.earliest for moment in changes)
        return changes[-1 - unseen :]

    def all_moments(self, signal: str, subject: str, watch: Watch, *, up: bool) -> tuple[Span, ...]:
        """Return each moment at which a signal of `subject` came up or went down in an event."""
        return self._moments[subject, signal, up].between(watch.since, watch.until.latest)

    def interruptions(self, subject: str, signal: str, watch: Watch) -> list[tuple[Span, Span]]:
        """Return each fall of a signal in an event, and the rise after it, oldest first."""
        falls = self._moments[subject, signal, False].between(watch.since, _LAST)
        if not falls:
            return []
        rises = self._moments[subject, signal, True].between(falls[0].earliest, _LAST)
        if len(falls) == len(rises) == 1:
            (fall,), (rise,) = falls, rises
            late = rise.latest < fall.earliest or rise.earliest > watch.until.latest
            return [] if late else [(fall, rise)]
        found: list[tuple[Span, Span]] = []
        until, ended, place, count = watch.until.latest, watch.since, 0, len(rises)
        for fall in falls:
            if fall.latest < ended:
                continue
            while place < count and rises[place].latest < fall.earliest:
                place += 1
            if place == count or rises[place].earliest > until:
                break
            found += [(fall, rises[place])]
            ended = rises[place].latest + 1
        return found

    def _longest(self, subject: str, signal: str, watch: Watch) -> list[tuple[Span, Span]]:
        """Return the longest interruption, and those that a watch may take for it."""
        found = self.interruptions(subject, signal, watch)
        if not found[1:]:
            return found
        seen = [pair for pair in found if pair[1].latest <= watch.until.earliest]
        least = max((_length(pair) for pair in seen), default=0) - _ALIKE
        return [pair for pair in found if _length(pair) >= least]

    def note_counter(self, counter: str, ratio: Callable[[], float | None]) -> None:
        """Let `ratio` tell the expected bit error ratio of a counter's gate."""
        self._ratios[counter] = ratio

    def bit_error_ratio(self, counter: str) -> float | None:
        """Return the expected bit error ratio of a counter's last gate; None if not known."""
        ratio = self._ratios.get(counter)
        return None if ratio is None else ratio()


def _length(interruption: tuple[Span, Span]) -> int:
    fall, rise = interruption
    return rise.earliest - fall.earliest
