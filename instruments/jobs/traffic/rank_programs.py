"""Collectives by one program per rank: the common part of the runners of Gloo and MPI."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.core.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
    Exchange,
    ExchangeMeasurement,
)
from lightrig.instruments.jobs.core.traffic import Traffic
from lightrig.instruments.jobs.traffic.rank_launcher import (
    RankLauncher,
    RankPlace,
    RankProgram,
    end_ranks,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import ProgramRequest

OPERATION_TIMEOUT = 30_000_000_000
"""Time allowed for one operation, in ns, after which its rank gives it up."""

BYTES = 4
"""Size of a value; the sizes of an exchange are rounded down to whole values."""

LONGEST = 3_600_000_000_000
"""Longest duration of traffic, in ns."""


class RankPrograms(ABC):
    """Collectives among ranks that are programs sent by us; see `CollectiveRunner`.

    The programs run until `close`, or until one of them fails: then all are ended, since the others
    would wait for it, and the next call starts them again.

    Args:
        clock: the bench's clock.
        servers: by name, which is that of a rank.
        interfaces: network devices of the ranks' connections, one for each lane.
        starting: time in which programs that have just started answer, in ns.
    """

    _launcher: RankLauncher
    _joining = OPERATION_TIMEOUT
    """Time allowed for joining a group, in ns."""

    simulated = False
    reforms = False
    """Whether ranks go on without one that they take for dead."""

    def __init__(
        self,
        clock: Clock,
        servers: Mapping[str, LinuxServer],
        interfaces: Sequence[str],
        starting: int,
    ) -> None:
        self._clock, self._servers = clock, servers
        self._interfaces, self._starting = tuple(interfaces), starting
        self._workers: dict[str, RankProgram] = {}
        self._joined: tuple[str, ...] = ()
        self._tool = ""
        self._settings: Mapping[str, str] = {}

    # ------------------------------------------------------------------ a library's words

    @abstractmethod
    def _greeting(self, rank: str, answer: Mapping[str, Any]) -> str:
        """Return the library with its version, of a program's first answer.

        Raises an error where the server lacks the library; then all programs are ended.
        """

    @abstractmethod
    def _join_bodies(self, ranks: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        """Return the body of the request to each program that joins a new group."""

    def _places(self, rank: str) -> list[RankPlace]:
        """Return where the programs of a rank run: by default one for all lanes."""
        return [RankPlace(rank, self._servers[rank], self._interfaces[0])]

    @abstractmethod
    def _exchange_bodies(self, what: Exchange) -> dict[str, dict[str, Any]]:
        """Return the body of the request to each program that takes part in an exchange."""

    # --------------------------------------------------------------------------- common

    def close(self) -> None:
        """End the programs of all ranks, and what they have left behind."""
        workers, self._workers = self._workers, {}
        self._joined = ()
        end_ranks(workers.values())
        self._launcher.stop()

    def load(self, ranks: Sequence[str]) -> None:
        """Start the programs of `ranks` that do not run yet, and have them load the library.

        Raises what `RankLauncher.start` raises, and the library's error where a server lacks it.
        """
        places = [place for rank in ranks for place in self._places(rank)]
        names = {place.rank for place in places}
        if self._launcher.together and (
            names != self._workers.keys() or any(each.over for each in self._workers.values())
        ):
            self.close()
        new = [place for place in places if place.rank not in self._workers]
        if not new:
            return
        self._workers |= self._launcher.start(new)
        started = [place.rank for place in new]
        answers = self._request_all(started, "hello", lambda _: {}, self._starting)
        for name, answer in zip(started, answers, strict=True):
            self._workers[name].greeted(answer)
            try:
                self._tool = self._greeting(name, answer)
            except InstrumentError:
                self.close()
                raise

    def _join(self, ranks: tuple[str, ...]) -> None:
        """Form one group of `ranks` in this order; programs that run are used again."""
        self.load(ranks)
        if ranks == self._joined:
            return
        self._joined = ()
        bodies = self._join_bodies(ranks)
        self._request_all(list(bodies), "join", bodies.__getitem__, self._joining)
        self._joined = ranks

    def run(
        self, call: CollectiveCall, *, timeout: int = DEFAULT_TIMEOUT
    ) -> list[CollectiveMeasurement]:
        """Run `call` to its end; see `CollectiveRunner`."""
        before = self._clock.now()
        self._join(call.ranks)
        body = {
            "collective": call.collective,
            "sizes": list(call.sizes),
            "warm_up": call.warm_up,
            "iterations": call.iterations,
        }
        answers = self._request_all(call.ranks, "run", lambda _: body, timeout)
        at = Span(before, self._clock.now())
        try:
            return [
                self._measurement(call, [one["sizes"][index] for one in answers], at)
                for index in range(len(call.sizes))
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._failed(call.ranks, f"answered something else: {error!r}") from error

    def exchange(
        self,
        what: Exchange,
        *,
        warm_up: int = 1,
        iterations: int = 10,
        timeout: int = DEFAULT_TIMEOUT,
    ) -> ExchangeMeasurement:
        """Run `what` repeatedly; see `ExchangeRunner.exchange`."""
        before = self._clock.now()
        self._join(what.ranks)
        bodies = self._exchange_bodies(what)
        common = {"warm_up": warm_up, "iterations": iterations}
        answers = self._request_all(
            list(bodies), "exchange", lambda name: {**bodies[name], **common}, timeout
        )
        try:
            return ExchangeMeasurement(
                what, *self._outcome(answers), self._tool, Span(before, self._clock.now())
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed(what.ranks, f"answered something else: {error!r}") from error

    def start(self, ranks: Sequence[str], size: int) -> "RankTraffic":
        """Start all-reduces that run until stopped; see `TrafficSource`."""
        order = tuple(ranks)
        return RankTraffic(self, order, size, self._loop(order, size, dict.fromkeys(order)))

    def _loop(
        self, ranks: tuple[str, ...], size: int, lanes: Mapping[str, Any]
    ) -> dict[str, ProgramRequest]:
        """Start back-to-back collectives on `ranks`; return the pending request of each."""
        self._join(ranks)
        return {
            rank: self._workers[rank].submit("loop", {"size": size, "lanes": lanes[rank]}, LONGEST)
            for rank in ranks
        }

    def form(self, ranks: Sequence[str]) -> None:
        """Start the programs of `ranks` and join them in this order."""
        self._join(tuple(ranks))

    @property
    def tool(self) -> str:
        """The library with its version; empty before ranks have been formed."""
        return self._tool

    def program(self, rank: str) -> RankProgram:
        """Return the program of a rank; raises `KeyError` without one."""
        return self._workers[rank]

    def give_up(self, running: Mapping[str, ProgramRequest]) -> None:
        """Take no more part in collectives that may never end; by default end all programs."""
        self.close()

    # ------------------------------------------------------------------------- inside

    def _request_all(
        self,
        ranks: Sequence[str] | Mapping[str, RankProgram],
        verb: str,
        body: Any,
        duration: int = 0,
    ) -> list[dict[str, Any]]:
        """Send a request to several ranks at once; if one fails, end all of them.

        The others may wait for the failed rank within a collective, for ever.
        """
        pending = [(rank, self._workers[rank].submit(verb, body(rank), duration)) for rank in ranks]
        answers = []
        for rank, request in pending:
            try:
                answers.append(request.result())
            except InstrumentError as error:
                self.close()
                raise self._failed(ranks, f"could not {verb}", rank, error) from error
        return answers

    def _failed(
        self,
        ranks: Sequence[str] | Mapping[str, RankProgram],
        problem: str,
        rank: str = "",
        cause: InstrumentError | None = None,
    ) -> CollectiveFailedError:
        details = [("ranks", ", ".join(ranks))]
        if cause is not None:
            details += [("because", " ".join(line.split())) for line in str(cause).splitlines()[:4]]
        return CollectiveFailedError(
            rank or ", ".join(ranks),
            f"{problem} in a collective of {len(ranks)} ranks",
            details=details,
        )

    def _measurement(
        self, call: CollectiveCall, answers: list[dict[str, Any]], at: Span
    ) -> CollectiveMeasurement:
        (size,) = {int(answer["size"]) for answer in answers}
        times, wrong = self._outcome(answers)
        return CollectiveMeasurement(
            collective=call.collective,
            ranks=call.ranks,
            size=size,
            times_ns=times,
            averaged_over=1,
            wrong=wrong,
            tool=self._tool,
            environment=self._settings,
            at=at,
        )

    def _outcome(self, answers: list[dict[str, Any]]) -> tuple[tuple[int, ...], int]:
        """Return the duration of each operation at the slowest rank, and the wrong values."""
        times = [[int(time) for time in answer["times"]] for answer in answers]
        slowest = tuple(max(each) for each in zip(*times, strict=True))
        return slowest, sum(int(answer["wrong"]) for answer in answers)

    # ---------------------------------------------------------------------- for traffic

    def collect(
        self, ranks: tuple[str, ...], size: int, pending: Mapping[str, ProgramRequest]
    ) -> Traffic:
        """Stop traffic after the present operation; return its operations."""
        self._request_all(ranks, "stop", lambda _: {})
        try:
            answers = {rank: request.result() for rank, request in pending.items()}
        except InstrumentError as error:
            self.close()
            raise self._failed(ranks, "could not end the traffic", cause=error) from error
        traffic = self._traffic(ranks, size, answers)
        if traffic.failures:
            self.close()
        return traffic

    def _traffic(
        self, ranks: tuple[str, ...], size: int, answers: Mapping[str, dict[str, Any]]
    ) -> Traffic:
        failures = {rank: each["failure"] for rank, each in answers.items() if each["failure"]}
        operations = {
            rank: self._stamps(rank, each["operations"]) for rank, each in answers.items()
        }
        wrong = sum(int(each["wrong"]) for each in answers.values())
        return Traffic(ranks, size, operations, wrong, failures, self._tool)

    def _stamps(
        self, rank: str, operations: list[tuple[int, int]]
    ) -> tuple[tuple[Span, Span], ...]:
        here = self._workers[rank].clocks.here
        return tuple((here(began), here(ended)) for began, ended in operations)


def rank_shares(what: Exchange) -> dict[str, list[dict[str, Any]]]:
    """Return the numbers of values that each rank sends and receives, by lane in use."""
    used = [(lane, sizes) for lane, sizes in enumerate(what.lanes) if any(map(any, sizes))]
    return {
        rank: [
            {
                "lane": lane,
                "given": [size // BYTES for size in sizes[place]],
                "taken": [row[place] // BYTES for row in sizes],
            }
            for lane, sizes in used
        ]
        for place, rank in enumerate(what.ranks)
    }


@dataclass(eq=False)
class RankTraffic:
    """Collectives that run until stopped; see `RunningTraffic`."""

    _runner: RankPrograms
    _ranks: tuple[str, ...]
    _size: int
    _pending: Mapping[str, ProgramRequest]

    def stop(self) -> Traffic:
        """Stop them; see `RunningTraffic`."""
        return self._runner.collect(self._ranks, self._size, self._pending)
