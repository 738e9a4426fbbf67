"""Hierarchical all-reduces over plain TCP: one program on each server, on five rings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.traffic.rank_launcher import ServerLauncher
from lightrig.instruments.jobs.traffic.ring import RingRunner
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import Program

HIERARCHICAL = Program(
    "lightrig-hierarchical",
    "the program of a hierarchical all-reduce",
    1,
    (
        "server_clock",
        "replies",
        "checked_rounds",
        "gloo_program",
        "ring_program",
        "hierarchical_program",
    ),
    "a python3 of 3.8 or newer",
    programs.__name__,
)

_JOINING = 120_000_000_000
"""Time allowed for all connections, in ns: many servers may be one machine."""


class Neighbours(NamedTuple):
    """A ring of a rank: its members in order, and the address of each."""

    members: tuple[str, ...]
    addresses: tuple[str, ...]


class HierarchicalRunner(RingRunner):
    """Ranks that are joined to five rings each: an inner one, and two either way round.

    Args:
        servers: by name.
        rings: of each server, as `hierarchical_program` takes them.
        clock: the bench's clock.
    """

    _joining = _JOINING

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        rings: Mapping[str, Sequence[Neighbours]],
        clock: Clock,
    ) -> None:
        super().__init__(servers, {}, clock)
        self._launcher = ServerLauncher(HIERARCHICAL, clock)
        self._rings = rings

    def _join_bodies(self, ranks: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        listening = self._request_all(
            ranks,
            "listen",
            lambda rank: {
                "addresses": [
                    ring.addresses[ring.members.index(rank)] for ring in self._rings[rank]
                ]
            },
        )
        ports = dict(zip(ranks, (each["ports"] for each in listening), strict=True))
        bodies: dict[str, dict[str, Any]] = {}
        for number, rank in enumerate(ranks):
            joined = []
            for which, ring in enumerate(self._rings[rank]):
                place = ring.members.index(rank)
                after = (place + 1) % len(ring.members)
                following = ring.addresses[after], ports[ring.members[after]][which]
                joined.append({"place": place, "size": len(ring.members), "next": following})
            bodies[rank] = {"rank": number, "ranks": len(ranks), "rings": joined}
        return bodies
