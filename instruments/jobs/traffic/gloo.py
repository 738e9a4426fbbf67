"""Collectives by PyTorch's Gloo on servers without GPUs: one program on each of them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.core.collectives import Exchange
from lightrig.instruments.jobs.core.traffic import Traffic
from lightrig.instruments.jobs.traffic.rank_launcher import ServerLauncher
from lightrig.instruments.jobs.traffic.rank_programs import (
    OPERATION_TIMEOUT,
    RankPrograms,
    RankTraffic,
    rank_shares,
)
from lightrig.instruments.jobs.traffic.server_routes import DEVICE
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import Program, ProgramRequest

GLOO = Program(
    "lightrig-gloo",
    "the collective's program",
    1,
    ("server_clock", "replies", "checked_rounds", "gloo_program"),
    "PyTorch",
    programs.__name__,
)

LOADING = 180_000_000_000
"""Time allowed for loading PyTorch, in ns; many servers may be one machine."""

_FIRST_STORE_PORT = 27_100
"""First TCP port of the stores: below Linux's ephemeral ports, of which Gloo uses many."""


class NoPyTorchError(InstrumentError):
    """The Python of a server lacks PyTorch, or its PyTorch lacks a library or a GPU."""

    def __init__(self, server: str, why: str, library: str = "Gloo") -> None:
        enough = "; the build for CPUs is enough" if library == "Gloo" else ""
        advice = f"install PyTorch with {library} for its python3{enough}"
        super().__init__(
            server, f"has no PyTorch with {library}", details=[("because", why), ("try", advice)]
        )


def pytorch_of(server: str, answer: Mapping[str, Any], library: str = "Gloo") -> str:
    """Return PyTorch's version from a program's first answer; raises `NoPyTorchError`."""
    if answer.get("torch") is None:
        raise NoPyTorchError(server, str(answer.get("why")), library)
    return str(answer["torch"])


class GlooRunner(RankPrograms):
    """Collectives among servers that have Python with PyTorch; see `CollectiveRunner`.

    Args:
        servers: by name.
        addresses: address of each server in the fabric.
        clock: the bench's clock.
        interface: the network device with that address.
        lanes: devices of further lanes, on which every server has an address as well.
        timeout: of one operation, in ns, after which Gloo raises an error.
    """

    _program = GLOO
    _library = "Gloo"

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        addresses: Mapping[str, str],
        clock: Clock,
        *,
        interface: str = DEVICE,
        lanes: Sequence[str] = (),
        timeout: int = OPERATION_TIMEOUT,
    ) -> None:
        super().__init__(clock, servers, [interface, *lanes], LOADING)
        self._launcher = ServerLauncher(self._program, clock)
        self._timeout = timeout
        self._addresses = addresses
        self._settings = {"GLOO_SOCKET_IFNAME": interface}
        self._ports = itertools.count(_FIRST_STORE_PORT)

    def start_exchange(self, what: Exchange) -> "GlooTraffic":
        """Start exchanges that run until stopped; see `ExchangeRunner`."""
        return GlooTraffic(self, what.ranks, 0, self._loop(what.ranks, 0, rank_shares(what)))

    def start(self, ranks: Sequence[str], size: int) -> "GlooTraffic":
        """Start all-reduces that run until stopped; see `TrafficSource`."""
        order = tuple(ranks)
        return GlooTraffic(self, order, size, self._loop(order, size, dict.fromkeys(order)))

    def ended(self) -> tuple[str, ...]:
        """Return the servers whose program has ended by itself."""
        return tuple(rank for rank, worker in self._workers.items() if worker.over)

    def process(self, rank: str) -> int:
        """Return the process id of the program on a server; raises `KeyError` without one."""
        return self._workers[rank].pid

    def kill(self, server: str) -> None:
        """End the program of one server; see `MortalTrafficSource`."""
        self._workers.pop(server).close()
        self._joined = ()

    def give_up(self, running: Mapping[str, ProgramRequest]) -> None:
        """Abandon collectives that may never end; the programs can join others."""
        self._joined = ()
        alive = [rank for rank in running if not self._workers[rank].over]
        self._request_all(alive, "abandon", lambda _: {})

    # ------------------------------------------------------------------------- inside

    def _exchange_bodies(self, what: Exchange) -> dict[str, dict[str, Any]]:
        return {rank: {"lanes": shares} for rank, shares in rank_shares(what).items()}

    def _join_bodies(self, ranks: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        self._request_all(self._workers, "leave", lambda _: {}, OPERATION_TIMEOUT)
        common = {
            "ranks": len(ranks),
            "store": [self._addresses[ranks[0]], next(self._ports)],
            "interfaces": self._interfaces,
            "timeout_ns": self._timeout,
        }
        return {
            rank: {"rank": place, **common, **self._body(rank)} for place, rank in enumerate(ranks)
        }

    def _body(self, rank: str) -> dict[str, Any]:
        """Return what `join` needs besides."""
        return {}

    def _greeting(self, rank: str, answer: Mapping[str, Any]) -> str:
        return f"{self._library} of PyTorch {pytorch_of(rank, answer, self._library)}"

    # ---------------------------------------------------------------------- for traffic

    def collect_alive(
        self, ranks: tuple[str, ...], size: int, pending: Mapping[str, ProgramRequest]
    ) -> Traffic:
        """Abandon the traffic of the ranks whose program still runs; return their operations."""
        for rank in self.ended():
            self.kill(rank)
        alive = tuple(rank for rank in ranks if rank in self._workers)
        self._joined = ()
        self._request_all(alive, "abandon", lambda _: {})
        try:
            answers = {rank: pending[rank].result() for rank in alive}
        except InstrumentError as error:
            self.close()
            raise self._failed(alive, "could not abandon the traffic", cause=error) from error
        return self._traffic(alive, size, answers)


@dataclass(eq=False)
class GlooTraffic(RankTraffic):
    """Collectives that run until stopped or abandoned; see `AbandonableTraffic`."""

    _runner: GlooRunner

    def abandon(self) -> Traffic:
        """Abandon them; see `AbandonableTraffic`."""
        return self._runner.collect_alive(self._ranks, self._size, self._pending)
