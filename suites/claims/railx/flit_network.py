"""Networks for the flit simulator: links with lanes, their speeds, and routing tables.

Chips are joined by groups of equal parallel links (lanes); a routing table names the group and the
virtual channel for each destination. Any network with tables of that form can be simulated, which
is how the simulator is validated on cases with a known answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.suites.claims.railx.chip_graph import ABSENT
from lightrig.suites.claims.railx.minimal_routing import Routes

Int64s = npt.NDArray[np.int64]
PACKET_FLITS = 4
SHORT_DELAY, LONG_DELAY = 1, 10
"""Cycles from chip to chip on the mesh and through a circuit switch (Table 5)."""


@dataclass(frozen=True)
class FlitNetwork:
    """Groups of links between chips, and the group and channel towards each destination.

    Attributes:
        peers: the chip that each port of each chip leads to, chips x ports, -1 where absent.
        lanes: number of parallel links of each port, same shape.
        periods: cycles that a packet occupies a link, same shape.
        delays: cycles from when a flit is sent until it can be sent on, from 1, same shape.
        port: the port towards each destination, chips x chips, -1 at the destination.
        channel: the virtual channel on that port.
        channels: number of virtual channels.
        rings: optional, the ring that each port belongs to, for bubble flow control.
    """

    peers: Int64s
    lanes: Int64s
    periods: Int64s
    delays: Int64s
    port: npt.NDArray[np.int8]
    channel: npt.NDArray[np.int8]
    channels: int
    rings: Int64s | None = None
    first: Int64s = field(init=False, repr=False)
    link_port: Int64s = field(init=False, repr=False)

    def __post_init__(self) -> None:
        present = self.peers != ABSENT
        if (self.delays[present] < 1).any() or (self.periods[present] < 1).any():
            raise RailxError("a link delays flits by at least one cycle and takes one for a packet")
        counts = np.where(present, self.lanes, 0).ravel()
        object.__setattr__(self, "first", np.concatenate([[0], np.cumsum(counts)[:-1]]))
        object.__setattr__(self, "link_port", np.repeat(np.arange(counts.size), counts))

    @property
    def chips(self) -> int:
        """Number of chips."""
        return len(self.peers)

    @property
    def links(self) -> int:
        """Number of links, each lane counted."""
        return len(self.link_port)


def railx_network(routes: Routes, multiple: int) -> FlitNetwork:
    """Return the network of a fabric whose mesh interfaces are `multiple` times as fast (k).

    Between two chips of a mesh are n interfaces of k flits a cycle each, as many as a chip edge
    has optical ports of one flit a cycle. Raises `RailxError` unless k divides a packet.
    """
    if PACKET_FLITS % multiple:
        raise RailxError(f"found k = {multiple}, expected a divisor of {PACKET_FLITS} flits")
    graph = routes.graph
    shape = graph.peer_chip.shape
    port, channel = routes.table()
    optical = np.broadcast_to(graph.optical, shape)
    return FlitNetwork(
        peers=graph.peer_chip,
        lanes=np.where(optical, 1, graph.fabric.ports),
        periods=np.where(optical, PACKET_FLITS, PACKET_FLITS // multiple),
        delays=np.where(optical, LONG_DELAY, SHORT_DELAY),
        port=port,
        channel=channel,
        channels=routes.channels,
    )


def ring_network(chips: int) -> FlitNetwork:
    """Return a ring whose packets all go round one direction on one channel.

    Without bubble flow control it deadlocks when saturated (section 4.1.2).
    """
    each = np.ones((chips, 1), dtype=np.int64)
    port = np.zeros((chips, chips), dtype=np.int8)
    np.fill_diagonal(port, -1)
    return FlitNetwork(
        peers=(np.arange(chips)[:, None] + 1) % chips,
        lanes=each,
        periods=PACKET_FLITS * each,
        delays=SHORT_DELAY * each,
        port=port,
        channel=np.zeros((chips, chips), dtype=np.int8),
        channels=1,
        rings=np.zeros((chips, 1), dtype=np.int64),
    )
