"""Networks for the flit simulator: links with lanes, their speeds, and routing tables.

Chips are joined by groups of equal parallel links (lanes); a routing table names the group and the
virtual channel for each destination. Any network with tables of that form can be simulated, which
is how the simulator is validated on cases with a known answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.suites.claims.railx.chip_graph import ABSENT
from lightrig.suites.claims.railx.minimal_routing import Exits, Routes

Int64s = npt.NDArray[np.int64]
PACKET_FLITS = 4
SHORT_DELAY, LONG_DELAY = 1, 10
"""Cycles from chip to chip on the mesh and through a circuit switch (Table 5)."""
_MINIMAL_HOPS = 2


@dataclass(frozen=True)
class Adaptive:
    """Where packets may leave a node, for routes that are chosen on the way (section 4.1.2).

    Attributes:
        place: column and row of the node of each chip, chips x 2.
        exits: the group (chip ports + port) by which the node of each column of its row, then of
            each row of its column, is reached from each chip; -1 for its own node.
        columns: nodes of a row.
    """

    place: Int64s
    exits: Int64s
    columns: int


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
        adaptive: optional, exits of nodes: between nodes, packets then choose one in each node, and
            raise the channel with each optical link; `port` is used inside of nodes alone.
        terminals: chips that send and receive, the first ones; others are switches. None: all.
    """

    peers: Int64s
    lanes: Int64s
    periods: Int64s
    delays: Int64s
    port: npt.NDArray[np.int8]
    channel: npt.NDArray[np.int8]
    channels: int
    rings: Int64s | None = None
    adaptive: Adaptive | None = None
    terminals: int | None = None
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
        """Number of chips, switches counted."""
        return len(self.peers)

    @property
    def senders(self) -> int:
        """Number of chips that send and receive."""
        return self.chips if self.terminals is None else self.terminals

    @property
    def enters(self) -> npt.NDArray[np.bool_]:
        """Whether each link leads to another node; never where routes are not adaptive."""
        if self.adaptive is None:
            return np.zeros(self.links, dtype=bool)
        place = self.adaptive.place
        between = (place[:, None] != place[self.peers]).any(axis=2)
        found: npt.NDArray[np.bool_] = between.ravel()[self.link_port]
        return found

    @property
    def links(self) -> int:
        """Number of links, each lane counted."""
        return len(self.link_port)


def adaptive_network(routes: Routes, multiple: int, longest: int) -> FlitNetwork:
    """Return `railx_network` with routes of up to `longest` optical hops, chosen on the way.

    Each optical hop raises the channel, so that `longest` + 1 are needed (section 4.1.2, its simple
    form). A packet that enters a node chooses a node of its row, where its column is wrong, or of
    its column, where its row is: the right one, or another while enough hops are left. The paper
    gives no rule for the choice; as in OmniWAR (McDonald et al., SC 2019), the least product of
    congestion and hops to the sink wins, congestion being packets of the node that have chosen
    the exit and have not left. Raises `RailxError` for fewer hops than the two of Algorithm 1.
    """
    if longest < _MINIMAL_HOPS:
        raise RailxError(f"found routes of {longest} hops, expected at least {_MINIMAL_HOPS}")
    fabric, inside = routes.graph.fabric, routes.graph.fabric.mesh**2
    chips = np.arange(fabric.chips)
    node, within = np.divmod(chips, inside)
    row, column = np.divmod(node, fabric.columns)
    exits = np.concatenate(
        [
            _exit_groups(routes, table, kinds, at, within)
            for table, kinds, at in (
                (routes.x, routes.x.kinds[row], column),
                (routes.y, routes.y.kinds[column], row),
            )
        ],
        axis=1,
    )
    return replace(
        railx_network(routes, multiple),
        channels=longest + 1,
        adaptive=Adaptive(np.column_stack([column, row]), exits, fabric.columns),
    )


def _exit_groups(routes: Routes, table: Exits, kinds: Int64s, at: Int64s, within: Int64s) -> Int64s:
    """Return the groups of the nearest exits from each chip to each node of its line."""
    chip, port = (
        each[kinds[:, None], at[:, None], np.arange(each.shape[2]), within[:, None]]
        for each in (table.chip, table.port)
    )
    first = (np.arange(len(within)) - within)[:, None]
    return np.where(port == ABSENT, ABSENT, (first + chip) * routes.graph.peer_chip.shape[1] + port)


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
