"""Collectives by PyTorch's Gloo on servers that need no GPU: a program of ours on each of them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from instruments.clock import Clock, Span
from instruments.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
    Exchange,
    ExchangeMeasurement,
)
from instruments.errors import InstrumentError
from instruments.servers.linux import LinuxServer, this_boot_id
from instruments.servers.offset import ClockMap
from instruments.servers.program import Program, ProgramRequest, ProgramRun
from instruments.servers.routes import DEVICE
from instruments.traffic import Traffic
from instruments.wire.trace import Trace

GLOO = Program("lightrig-gloo", "the collective's program", 1, "gloo_program.py", "PyTorch")

LOADING = 180_000_000_000
"""How long PyTorch may take to load, in ns; many servers may be one machine."""

PATIENCE = 30_000_000_000
"""How long one operation may take, in ns, before Gloo gives it up."""

LONGEST = 3_600_000_000_000
"""How long traffic may go on, in ns."""

BYTES = 4
"""Of a value; what an exchange asks for is rounded down to whole ones."""

_FIRST_STORE_PORT = 27_100
"""Below those that Linux gives to connections, of which Gloo makes many."""


class NoPyTorchError(InstrumentError):
    """The Python of a server has no PyTorch, or none with Gloo."""

    def __init__(self, server: str, why: str) -> None:
        advice = "install PyTorch for its python3; the build for CPUs is enough"
        super().__init__(
            server, "has no PyTorch with Gloo", details=[("because", why), ("try", advice)]
        )


class _Worker:
    """The program on one server."""

    def __init__(self, server: LinuxServer, clock: Clock) -> None:
        self.clocks = ClockMap()
        self.pid = 0
        self._run: ProgramRun = server.start(GLOO, Trace(clock), self.clocks)

    def ask(self, verb: str, body: Mapping[str, Any], patience: int = 0) -> ProgramRequest:
        return self._run.ask(verb, body, patience)

    @property
    def over(self) -> bool:
        return self._run.over

    def close(self) -> None:
        self._run.close()


class GlooRunner:
    """Collectives among servers that have Python with PyTorch; see `CollectiveRunner`.

    The ranks' programs stay until `close`, or until one of them fails: then all are ended,
    and the next call begins anew.

    Args:
        servers: by name.
        addresses: the address of each by which the others reach it over the fabric.
        clock: the bench's clock.
        interface: the network device that has that address.
        others: the devices of further lanes, on which every server has an address as well.
    """

    simulated = False

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        addresses: Mapping[str, str],
        clock: Clock,
        *,
        interface: str = DEVICE,
        others: Sequence[str] = (),
    ) -> None:
        self._servers = servers
        self._addresses = addresses
        self._clock = clock
        self._interfaces = [interface, *others]
        self._workers: dict[str, _Worker] = {}
        self._joined: tuple[str, ...] = ()
        self._ports = itertools.count(_FIRST_STORE_PORT)
        self._tool = ""

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
        answers = self._ask_all(call.ranks, "run", lambda _: body, timeout)
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
        """Run `what` again and again; see `ExchangeRunner`."""
        before = self._clock.now()
        self._join(what.ranks)
        common = {"warm_up": warm_up, "iterations": iterations}
        lanes = _shares(what)
        answers = self._ask_all(
            what.ranks, "exchange", lambda rank: {"lanes": lanes[rank], **common}, timeout
        )
        try:
            return ExchangeMeasurement(
                what, *self._outcome(answers), self._tool, Span(before, self._clock.now())
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed(what.ranks, f"answered something else: {error!r}") from error

    def start(self, ranks: Sequence[str], size: int) -> "GlooTraffic":
        """Begin all-reduces that go on until stopped; see `TrafficSource`."""
        return self._start(tuple(ranks), size, dict.fromkeys(ranks))

    def start_exchange(self, what: Exchange) -> "GlooTraffic":
        """Begin exchanges that go on until stopped; see `ExchangeRunner`."""
        return self._start(what.ranks, 0, _shares(what))

    def _start(self, ranks: tuple[str, ...], size: int, lanes: Mapping[str, Any]) -> "GlooTraffic":
        self._join(ranks)
        pending = {
            rank: self._workers[rank].ask("loop", {"size": size, "lanes": lanes[rank]}, LONGEST)
            for rank in ranks
        }
        return GlooTraffic(self, ranks, size, pending)

    def ended(self) -> tuple[str, ...]:
        """The servers whose program has ended by itself."""
        return tuple(rank for rank, worker in self._workers.items() if worker.over)

    def process(self, rank: str) -> int:
        """The process id of the program on a server; raises `KeyError` where none runs."""
        return self._workers[rank].pid

    def kill(self, server: str) -> None:
        """End the program of one server; see `MortalTrafficSource`."""
        self._workers.pop(server).close()
        self._joined = ()

    def close(self) -> None:
        """End the programs on all servers."""
        workers, self._workers = self._workers, {}
        self._joined = ()
        for worker in workers.values():
            worker.close()

    # ------------------------------------------------------------------------- inside

    def _join(self, ranks: tuple[str, ...]) -> None:
        """Make `ranks` the ranks of one group, in this order."""
        self.load(ranks)
        if ranks == self._joined:
            return
        self._joined = ()
        self._ask_all(self._workers, "leave", lambda _: {}, PATIENCE)
        store = [self._addresses[ranks[0]], next(self._ports)]
        common = {
            "ranks": len(ranks),
            "store": store,
            "interfaces": self._interfaces,
            "timeout_ns": PATIENCE,
        }
        self._ask_all(ranks, "join", lambda rank: {"rank": ranks.index(rank), **common}, PATIENCE)
        self._joined = ranks

    def load(self, ranks: Sequence[str]) -> None:
        """Start the programs of `ranks` and let them load PyTorch, where that is not done.

        Raises `NoPyTorchError` where there is none.
        """
        new = [rank for rank in ranks if rank not in self._workers]
        for rank in new:
            self._workers[rank] = _Worker(self._servers[rank], self._clock)
        here = this_boot_id()
        for rank, answer in zip(
            new, self._ask_all(new, "hello", lambda _: {}, LOADING), strict=True
        ):
            self._workers[rank].clocks.same_clock = answer.get("boot") == here
            self._workers[rank].pid = int(answer.get("pid", 0))
            if answer.get("torch") is None:
                self.close()
                raise NoPyTorchError(rank, str(answer.get("why")))
            self._tool = f"Gloo of PyTorch {answer.get('torch')}"

    def _ask_all(
        self, ranks: Sequence[str] | Mapping[str, _Worker], verb: str, body: Any, patience: int = 0
    ) -> list[dict[str, Any]]:
        """Ask several at once; where one fails, end all: what the others wait for never comes."""
        pending = [(rank, self._workers[rank].ask(verb, body(rank), patience)) for rank in ranks]
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
        ranks: Sequence[str] | Mapping[str, _Worker],
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
            environment={"GLOO_SOCKET_IFNAME": self._interfaces[0]},
            at=at,
        )

    def _outcome(self, answers: list[dict[str, Any]]) -> tuple[tuple[int, ...], int]:
        """How long each operation took at the slowest rank, and how many values were wrong."""
        times = [[int(time) for time in answer["times"]] for answer in answers]
        slowest = tuple(max(each) for each in zip(*times, strict=True))
        return slowest, sum(int(answer["wrong"]) for answer in answers)

    # ---------------------------------------------------------------------- for traffic

    def collect(
        self, ranks: tuple[str, ...], size: int, pending: Mapping[str, ProgramRequest]
    ) -> Traffic:
        """Let traffic end after the operation that it is in, and hand over what was seen."""
        self._ask_all(ranks, "stop", lambda _: {})
        try:
            answers = {rank: request.result() for rank, request in pending.items()}
        except InstrumentError as error:
            self.close()
            raise self._failed(ranks, "could not end the traffic", cause=error) from error
        seen = self._seen(ranks, size, answers)
        if seen.failures:
            self.close()
        return seen

    def collect_alive(
        self, ranks: tuple[str, ...], size: int, pending: Mapping[str, ProgramRequest]
    ) -> Traffic:
        """Cut the traffic of the ranks that have a program still, and hand over what they saw."""
        for rank in self.ended():
            self.kill(rank)
        alive = tuple(rank for rank in ranks if rank in self._workers)
        self._joined = ()
        self._ask_all(alive, "abandon", lambda _: {})
        try:
            answers = {rank: pending[rank].result() for rank in alive}
        except InstrumentError as error:
            self.close()
            raise self._failed(alive, "could not abandon the traffic", cause=error) from error
        return self._seen(alive, size, answers)

    def _seen(
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


def _shares(what: Exchange) -> dict[str, list[dict[str, Any]]]:
    """What each rank gives and takes on each lane that is used, in values."""
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


class GlooTraffic:
    """Collectives that go on; see `RunningTraffic`."""

    def __init__(
        self,
        runner: GlooRunner,
        ranks: tuple[str, ...],
        size: int,
        pending: Mapping[str, ProgramRequest],
    ) -> None:
        self._runner = runner
        self._ranks = ranks
        self._size = size
        self._pending = pending

    def stop(self) -> Traffic:
        """End them; see `RunningTraffic`."""
        return self._runner.collect(self._ranks, self._size, self._pending)

    def abandon(self) -> Traffic:
        """Cut them; see `AbandonableTraffic`."""
        return self._runner.collect_alive(self._ranks, self._size, self._pending)
