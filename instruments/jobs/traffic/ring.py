"""Checked collectives over plain TCP: one program on each server, joined to a ring."""

from collections.abc import Mapping
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.core.collectives import Exchange
from lightrig.instruments.jobs.traffic.rank_launcher import ServerLauncher
from lightrig.instruments.jobs.traffic.rank_programs import RankPrograms
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import Program

RING = Program(
    "lightrig-ring",
    "the ring's program",
    1,
    ("server_clock", "replies", "checked_rounds", "gloo_program", "ring_program"),
    "a python3 of 3.8 or newer",
    programs.__name__,
)

_STARTING = 120_000_000_000
"""Time allowed for all programs to start, in ns: many servers may be one machine."""


class RingRunner(RankPrograms):
    """Ranks that are joined by plain TCP connections, each to the next one of the ring.

    Args:
        servers: by name.
        addresses: address of each server in the fabric.
        clock: the bench's clock.
        user_timeout: how long the kernel keeps data that nobody acknowledges, in ns; 0 for the
            system's own limit.
    """

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        addresses: Mapping[str, str],
        clock: Clock,
        *,
        user_timeout: int = 0,
    ) -> None:
        super().__init__(clock, servers, [""], _STARTING)
        self._launcher = ServerLauncher(RING, clock)
        self._addresses, self._user_timeout = addresses, user_timeout

    def _greeting(self, rank: str, answer: Mapping[str, Any]) -> str:
        return "plain TCP"

    def _join_bodies(self, ranks: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        addresses = [self._addresses[rank] for rank in ranks]
        places = {rank: place for place, rank in enumerate(ranks)}
        listening = self._request_all(
            ranks, "listen", lambda rank: {"address": addresses[places[rank]]}
        )
        following = {
            rank: (addresses[after], listening[after]["port"])
            for rank, place in places.items()
            for after in [(place + 1) % len(ranks)]
        }
        common = {"ranks": len(ranks), "user_timeout_ns": self._user_timeout}
        return {
            rank: {"rank": place, "next": following[rank], **common}
            for rank, place in places.items()
        }

    def _exchange_bodies(self, what: Exchange) -> dict[str, dict[str, Any]]:
        raise NotImplementedError("plain TCP is for checked collectives alone")
