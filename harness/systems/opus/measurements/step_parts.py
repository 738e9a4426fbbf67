"""Parts of a training step: what each rank waits for, each between stamps of named sides."""

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    ChangeStamps,
    Confirmed,
    Rewiring,
)
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.systems.opus.runtime.rails import Journal
from lightrig.instruments.clock import Span

COMPUTES, RANKS, FRONT_END = "computes", "waits for other ranks", "uses the front end"
CONTROL, QUEUE, SWITCH, LIGHT, LINK = "control", "queue", "switch", "light", "link"
DATA = "moves data"
PARTS = (COMPUTES, RANKS, FRONT_END, CONTROL, QUEUE, LINK, LIGHT, SWITCH, DATA)
"""Parts of a step, from the one that counts where no other does to the one that always counts."""
CIRCUITS = (QUEUE, SWITCH, LIGHT, LINK)
"""The parts that are waits for circuits, in the order in which they follow one another."""

Interval: TypeAlias = tuple[int, int]
_Key: TypeAlias = tuple[str, int]
_Piece: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class StepParts:
    """One step, in ns, as a mean over ranks.

    Attributes:
        parts: the time of each of `PARTS`; they add up to the step.
        waits: number of operations that waited for a change of circuits.
        unknown: by how much light may be longer or shorter, and link the other way round: no
            stamp lies between the acknowledgement and the carrier, or only a bound.
    """

    parts: Mapping[str, float]
    waits: float
    unknown: float


def parts_by_step(trained: Trained, tables: Sequence[PhaseTable]) -> list[StepParts]:
    """Return the parts of each step but the first.

    A step lasts from the end of one step's last operation to the end of the next one's. An
    operation waits for other ranks until the last of them wants it, then for control and circuits,
    see `_pieces`, until the last of them has begun, and moves data until its end; one that no rail
    carries uses the front end from when the last rank wants it. Of operations at once, data count
    before what circuits wait for, this before control, the front end and other ranks; what is left
    is computation, and all else between operations.
    """
    came: dict[_Key, int] = {}
    begun: dict[_Key, int] = {}
    for done in itertools.chain(*trained.operations.values(), *trained.front_end.values()):
        key = done.operation.group, done.operation.index
        came[key] = max(came.get(key, 0), done.asked.latest)
        begun[key] = max(begun.get(key, 0), done.began.latest)
    changes = _ChangesOf(trained.rails.journal if trained.rails is not None else Journal())
    pieces = {key: changes.pieces(key, came[key], begun[key]) for key in came}
    by_rank = []
    for rank, table in enumerate(tables):
        operations = trained.operations[rank]
        bounds = [
            (operations[begin - 1].ended.latest, operations[end - 1].ended.latest)
            for begin, end in table.steps_in(len(operations))[1:]
        ]
        kinds: dict[str, list[Interval]] = {kind: [] for kind in PARTS[1:]}
        waits: list[tuple[int, int]] = []  # when one ended, and what is unknown of its light
        for done in (*operations, *trained.front_end.get(rank, ())):
            key = done.operation.group, done.operation.index
            asked, ended = done.asked.latest, done.ended.latest
            there = min(max(came[key], asked), ended)
            kinds[RANKS].append((asked, there))
            if done.operation.group.startswith("front end"):
                kinds[FRONT_END].append((there, ended))
                continue
            ready = min(max(begun[key], there), ended)
            for kind, begin, end in pieces[key]:
                kinds[kind].append((max(begin, there), min(end, ready)))
            kinds[DATA].append((ready, ended))
            if any(kind in CIRCUITS for kind, _, _ in pieces[key]):
                waits.append((ready, changes.unknown(key, there, ready)))
        by_rank.append([_step(kinds, waits, step) for step in bounds])
    return [_mean(each) for each in zip(*by_rank, strict=False)]


class _ChangesOf:
    """The change of circuits that each operation waited for, if any."""

    def __init__(self, journal: Journal) -> None:
        self._circuits: defaultdict[str, set[object]] = defaultdict(set)
        self._heard: dict[str, int] = {}
        for event in journal.events:
            if isinstance(event, Began):
                self._circuits[event.operation] |= {(event.switch, c) for c in event.circuits}
        for wait in journal.waits:
            self._heard[wait.operation] = max(self._heard.get(wait.operation, 0), wait.at)
        self._made = sorted(_made(journal), key=lambda each: each[1].at)
        self._ends = [confirmed.at for _, confirmed in self._made]
        self._commands: defaultdict[str, list[int]] = defaultdict(list)
        for change, confirmed in self._made:
            self._commands[change.switch].append(confirmed.at)

    def _served(self, key: _Key, came: int, begun: int) -> tuple[Rewiring, Confirmed] | None:
        """Return the last change that made circuits of an operation while it waited."""
        wanted = self._circuits.get("#".join(map(str, key)), set())
        first, last = (bisect_right(self._ends, at) for at in (came, begun))
        return next(
            (
                (change, confirmed)
                for change, confirmed in reversed(self._made[first:last])
                if not wanted.isdisjoint((change.switch, circuit) for circuit in change.add)
            ),
            None,
        )

    def pieces(self, key: _Key, came: int, begun: int) -> list[_Piece]:
        """Return what an operation waited for, one after another, from `came` until `begun`.

        Control, until the controller has heard of it from all its ranks. Then, where a change of
        circuits serves it: other ranks of the stages that change, until all are ready; control,
        until the controller has heard of that; the queue, until no other change touches its ports
        and the switch has carried out what came before; control, until the command is written; the
        switch, until its last acknowledgement; light; link, until the last carrier; and control
        again, until the last rank has begun.
        """
        ends = [(CONTROL, self._heard.get("#".join(map(str, key)), came))]
        served = self._served(key, came, begun)
        if served is not None:
            change, confirmed = served
            stamps = _stamps(change, confirmed)
            wanted = change.at if change.wanted is None else change.wanted
            due = wanted if change.due is None else change.due
            agreed = due if change.agreed is None else change.agreed
            heard = due if change.heard is None else change.heard
            ended = self._commands[change.switch]
            place = bisect_right(ended, change.at)
            free = max([due, *ended[max(0, place - 1) : place]])
            ends += [(RANKS, agreed), (CONTROL, heard), (QUEUE, free), (CONTROL, stamps.sent)]
            ends += [(SWITCH, stamps.acknowledged), (LIGHT, sum(stamps.lit) // 2)]
            ends += [(LINK, stamps.carriers)]
        found, at = [], came
        for kind, end in (*ends, (CONTROL, begun)):
            until = max(at, min(end, begun))
            if until > at:
                found.append((kind, at, until))
            at = until
        return found

    def unknown(self, key: _Key, came: int, begun: int) -> int:
        """Return half the width of the bounds on when an operation's light was back, in ns."""
        served = self._served(key, came, begun)
        if served is None:
            return 0
        earliest, latest = (max(came, min(at, begun)) for at in _stamps(*served).lit)
        return (latest - earliest) // 2


def _made(journal: Journal) -> Iterator[tuple[Rewiring, Confirmed]]:
    first: dict[tuple[str, str], Rewiring] = {}
    for event in journal.events:
        if isinstance(event, Rewiring):
            first.setdefault((event.switch, event.change), event)
        elif isinstance(event, Confirmed):
            yield first[event.switch, event.change], event


def _stamps(change: Rewiring, confirmed: Confirmed) -> ChangeStamps:
    """Return the moments of a change; all of it is the switch's where they are not known."""
    at = confirmed.at
    return confirmed.stamps or ChangeStamps(change.at, at, Span(at, at), at)


def _step(
    kinds: Mapping[str, Sequence[Interval]], waits: Sequence[tuple[int, int]], step: Interval
) -> StepParts:
    """Divide a step among kinds of intervals, of which a later one counts before an earlier."""
    begin, end = step
    covered: list[Interval] = []
    parts: dict[str, float] = {}
    for kind in reversed(list(kinds)):
        inside = [(max(a, begin), min(b, end)) for a, b in kinds[kind]]
        before = _length(covered)
        covered += [(a, b) for a, b in inside if a < b]
        parts[kind] = _length(covered) - before
    parts[COMPUTES] = end - begin - _length(covered)
    of_step = [unknown for at, unknown in waits if begin < at <= end]
    return StepParts(parts, len(of_step), sum(of_step))


def _mean(ranks: Sequence[StepParts]) -> StepParts:
    count = len(ranks)
    return StepParts(
        {kind: sum(each.parts[kind] for each in ranks) / count for kind in PARTS},
        sum(each.waits for each in ranks) / count,
        sum(each.unknown for each in ranks) / count,
    )


def _length(intervals: Sequence[Interval]) -> int:
    """Return how much time intervals cover together."""
    total, until = 0, None
    for begin, end in sorted(intervals):
        if until is None or begin > until:
            total, until = total + end - begin, end
        elif end > until:
            total, until = total + end - until, end
    return total
