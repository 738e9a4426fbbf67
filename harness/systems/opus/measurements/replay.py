"""Replay of a run's journal with other switching times: what its operations would have waited."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from lightrig.harness.systems.opus.planning.run_events import Began, Confirmed, Ended, Rewiring
from lightrig.harness.systems.opus.runtime.rails import Journal, Wait
from lightrig.testbeds import Circuit

Waits: TypeAlias = Mapping[tuple[int, str], Wait]
"""The wait of each rank's operation."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Waits of operations, and the hidden parts of changes, of a replay.

    hidden: for each first operation over the circuits of a change, the part of that change, with
    its control, that passes before the last rank wants the operation, in ns.
    """

    waits: Waits
    hidden: Mapping[str, int]


def confirmed_changes(journal: Journal) -> Iterator[tuple[Rewiring, int]]:
    """Yield the first command of each change that was confirmed, and when it was, in ns."""
    rewirings: dict[tuple[str, str], Rewiring] = {}
    for event in journal.events:
        match event:
            case Rewiring():
                rewirings.setdefault((event.switch, event.change), event)
            case Confirmed():
                yield rewirings[event.switch, event.change], event.at


def waits_of(journal: Journal) -> Waits:
    """Return the waits as they were."""
    return {(wait.rank, wait.operation): wait for wait in journal.waits}


def replayed(journal: Journal, longer: int) -> Replay:
    """Return what ranks would have waited where each command takes `longer` ns more, or less.

    Every event comes as long after its last cause as it did in the run, which includes what
    control adds. An operation is wanted after the rank's last event; it begins after all ranks
    that wanted it by then, and after the last change of its circuits; it ends after all ranks
    that had begun it by then. A change is wanted after the last event of the ranks that use its
    circuits and after the command before, and is sent once the switch has carried that out. With
    shorter changes that is an upper bound, where stages change in turn.
    """
    run = _Replay(journal, longer)
    for _, _, event in sorted(run.events(journal), key=lambda each: each[:2]):
        event()
    waits = {
        (rank, name): Wait(asked, rank, name, run.began[rank, name] - asked)
        for (rank, name), asked in run.asked.items()
    }
    return Replay(waits, run.hidden())


_Change: TypeAlias = tuple[Rewiring, int]


class _Replay:
    """Times of a run's events in its replay, which are to be called in the order of the run."""

    def __init__(self, journal: Journal, longer: int) -> None:
        self._longer = longer
        self._waits = waits_of(journal)
        self._ended = {(e.rank, e.operation): e.at for e in journal.events if isinstance(e, Ended)}
        self._changes = list(confirmed_changes(journal))
        self._circuits = {
            (e.rank, e.operation): e.circuits for e in journal.events if isinstance(e, Began)
        }
        self._ranks: defaultdict[str, list[int]] = defaultdict(list)
        for rank, name in self._waits:
            self._ranks[name].append(rank)
        self.asked: dict[tuple[int, str], int] = {}
        self.began: dict[tuple[int, str], int] = {}
        self._last: dict[int, tuple[int, int]] = {}  # of each rank: in the run, in the replay
        self._wanted: dict[_Change, int] = {}
        self._made: dict[_Change, int] = {}
        self._free: dict[str, tuple[int, int]] = {}  # each switch, likewise
        self._first: dict[tuple[_Change, int], str] = {}  # operation of each rank over a change

    def events(self, journal: Journal) -> Iterator[tuple[int, int, Callable[[], None]]]:
        """Yield what happened, with its time and, of those at one time, its place."""
        for (rank, name), at in self._ended.items():
            yield at, 0, partial(self._end, rank, name)
        commands: defaultdict[tuple[str, int], list[_Change]] = defaultdict(list)
        for change in self._changes:
            yield _wanted(change), 1, partial(self._want, change)
            commands[change[0].switch, change[0].at].append(change)
        for (_, at), changes in commands.items():
            yield at, 2, partial(self._send, changes)
        for wait in journal.waits:
            yield wait.at, 3, partial(self._ask, wait.rank, wait.operation)
            yield wait.at + wait.length, 4, partial(self._begin, wait.rank, wait.operation)

    def hidden(self) -> dict[str, int]:
        """Return the hidden parts of changes, once all has happened."""
        parts: dict[str, int] = {}
        for (change, _), name in self._first.items():
            came = max(self.asked[rank, name] for rank in self._ranks[name])
            parts[name] = max(0, min(came, self._made[change]) - self._wanted[change])
        return parts

    def _ask(self, rank: int, name: str) -> None:
        at = self._waits[rank, name].at
        self.asked[rank, name] = now = at + self._delay([rank])
        self._last[rank] = at, now

    def _end(self, rank: int, name: str) -> None:
        at = self._ended[rank, name]
        causes = [
            (self._began(each, name), self.began[each, name])
            for each in self._ranks[name]
            if (each, name) in self.began
        ]
        self._last[rank] = at, _after(at, causes)

    def _want(self, change: _Change) -> None:
        using = {rank for (rank, _), used in self._circuits.items() if used & change[0].add}
        at = _wanted(change)
        causes = [self._last[rank] for rank in using if rank in self._last]
        causes += [each for each in [self._free.get(change[0].switch)] if each and each[0] <= at]
        self._wanted[change] = _after(at, causes)

    def _delay(self, ranks: Sequence[int]) -> int:
        """Return by how much the last event of `ranks` comes later than in the run."""
        happened = [self._last[rank] for rank in ranks if rank in self._last]
        at, now = max(happened, default=(0, 0))
        return now - at

    def _began(self, rank: int, name: str) -> int:
        wait = self._waits[rank, name]
        return wait.at + wait.length

    def _begin(self, rank: int, name: str) -> None:
        at = self._began(rank, name)
        causes = [
            (self._waits[each, name].at, self.asked[each, name])
            for each in self._ranks[name]
            if (each, name) in self.asked
        ]
        change = self._last_of(self._circuits[rank, name], at)
        if change is not None:
            causes.append((change[1], self._made[change]))
            self._first.setdefault((change, rank), name)
        self.began[rank, name] = now = _after(at, causes)
        self._last[rank] = at, now

    def _last_of(self, circuits: frozenset[Circuit], at: int) -> _Change | None:
        """Return the last change that had made any of `circuits` in the run by `at`."""
        count = bisect_right(self._changes, at, key=lambda each: each[1])
        places = reversed(range(count if circuits else 0))
        return next(
            (self._changes[place] for place in places if self._changes[place][0].add & circuits),
            None,
        )

    def _send(self, changes: Sequence[_Change]) -> None:
        """Send the changes of one command, once the command before is done."""
        sent = changes[0][0]
        causes = [(_wanted(each), self._wanted[each]) for each in changes]
        causes += [each for each in [self._free.get(sent.switch)] if each and each[0] <= sent.at]
        now = _after(sent.at, causes)
        longer = self._longer * sent.commands
        for each in changes:
            self._made[each] = now + max(0, each[1] - sent.at + longer)
        last = max(changes, key=lambda each: each[1])
        self._free[sent.switch] = last[1], self._made[last]


def _wanted(change: _Change) -> int:
    sent, _ = change
    return sent.at if sent.wanted is None else sent.wanted


def _after(at: int, causes: Sequence[tuple[int, int]]) -> int:
    """Return when what happened `at` happens in the replay, as long after its last cause.

    causes: when each happened in the run, and in the replay.
    """
    then = max((before for before, _ in causes), default=at)
    now = max((after for _, after in causes), default=at)
    return now + max(0, at - then)
