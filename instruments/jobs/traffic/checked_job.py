"""Collectives with checked results that run until stopped, seen while they run."""

from collections.abc import Mapping
from typing import Any

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.core.streams import StreamState
from lightrig.instruments.jobs.traffic.rank_programs import LONGEST, RankPrograms
from lightrig.instruments.servers.host.program import ProgramRequest

_SLOW = 1_000_000
_MOST_TEXT = 200
_ANSWER = 50_000_000_000
"""Time that a busy server may take to answer while a job runs, in ns."""


class CheckedJob:
    """Rounds of one collective among ranks that have joined; see `CheckedRounds`.

    Args:
        runner: whose programs are the ranks.
        ranks: names of the servers, in the order of the ring.
        collective: of `CheckedRounds`.
        count: unsigned values of 4 bytes of each rank.
    """

    def __init__(
        self, runner: RankPrograms, ranks: tuple[str, ...], collective: str, count: int
    ) -> None:
        self._runner, self.ranks = runner, ranks
        self.tool = runner.tool
        self._last: dict[str, dict[str, Any]] = {}
        self._ended: set[str] = set()
        self._known: dict[str, list[list[int]]] = {rank: [] for rank in ranks}
        body = {"collective": collective, "count": count}
        self._running: Mapping[str, ProgramRequest] = {
            rank: runner.program(rank).submit("checked", body, LONGEST) for rank in ranks
        }

    def state(self) -> StreamState:
        """Return what has become of it so far.

        exchanges: of the rank that has ended fewest; slow: of any rank; began: of the rank whose
        present round began first; error and failed: of the rank that failed first, where no others
        can go on without it.
        """
        given = self._states()
        slow: list[tuple[int, Span, Span]] = []
        for rank, known in self._known.items():
            here = self._runner.program(rank).clocks.here
            slow += [(e - b, here(b), here(e)) for b, e in known if e - b >= _SLOW]
        slow.sort(key=lambda each: each[1])
        failures = sorted(
            (self._here(rank, each["failed"]), f"{rank}: {each['failure']}")
            for rank, each in given.items()
            if each["failed"] is not None
        )
        alive = {rank: each for rank, each in given.items() if each["failed"] is None}
        if not alive or not self._runner.reforms:
            alive = given
        else:
            failures = []
        first = next(iter(alive))
        return StreamState(
            exchanges=min(each["exchanges"] for each in alive.values()),
            wrong=sum(each["wrong"] for each in given.values()),
            slow=tuple((began, ended) for _, began, ended in slow),
            durations=tuple(duration for duration, _, _ in slow),
            began=min(self._here(rank, each["began"]) for rank, each in alive.items()),
            error=failures[0][1] if failures else "",
            failed=failures[0][0] if failures else None,
            rto=None,
            ends=tuple(self._here(first, end) for _, end in self._known[first]),
            retransmitted=self._stamps(given, "retransmitted"),
            reformed=self._stamps(alive, "reformed"),
            groups=frozenset(
                frozenset(self.ranks[place] for place in each["members"])
                for each in alive.values()
                if "members" in each
            ),
        )

    def stop(self) -> StreamState:
        """Return its last state and end it: the programs of all ranks are ended or given up."""
        state = self.state()
        self._runner.give_up(self._running)
        return state

    def _states(self) -> dict[str, dict[str, Any]]:
        pending = {
            rank: self._runner.program(rank).submit("state", {"since": len(known)}, _ANSWER)
            for rank, known in self._known.items()
            if rank not in self._ended
        }
        for rank, request in pending.items():
            try:
                self._last[rank] = found = request.result()
            except InstrumentError as error:
                if not self._runner.program(rank).over:
                    raise
                self._end(rank, error)
                continue
            self._known[rank] += found["operations"]
        return self._last

    def _end(self, rank: str, error: InstrumentError) -> None:
        """Take the end of a rank's program as its failure: its library may have ended it."""
        self._ended.add(rank)
        _, _, last_answer, _ = self._runner.program(rank).clocks.last_exchange
        text = " ".join(str(error).split())[:_MOST_TEXT]
        self._last[rank] = {**self._last[rank], "failed": last_answer, "failure": text}

    def _stamps(self, given: Mapping[str, dict[str, Any]], name: str) -> tuple[Span, ...]:
        return tuple(
            sorted(self._here(rank, at) for rank, each in given.items() for at in each[name])
        )

    def _here(self, rank: str, stamp: int) -> Span:
        return self._runner.program(rank).clocks.here(stamp)
