"""HammingMesh and tori of as many chips as RailX, for the flit simulator (section 6.3, Fig. 14a).

The paper states some 1,300 chips with eight ports each and no further sizes: those in `COMPARED`
are chosen here. Routes are minimal, dimension after dimension, with two virtual channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.suites.claims.railx.flit_network import (
    LONG_DELAY,
    PACKET_FLITS,
    SHORT_DELAY,
    FlitNetwork,
    Int64s,
)

_CHANNELS = 2


def torus_network(sizes: Sequence[int], lanes: Sequence[int]) -> FlitNetwork:
    """Return a torus with some parallel links each way in each dimension, all of 10 cycles.

    Channel 0 is used until the wrap-around link of a ring is crossed, or needs no crossing any
    more, and channel 1 after it (Dally and Seitz). Of two ways of equal length, a chip with an even
    coordinate takes the one towards greater ones. Raises `RailxError` for rings of less than three.
    """
    if min(sizes) < 3 or len(sizes) != len(lanes):
        raise RailxError(f"found rings of {tuple(sizes)} with {tuple(lanes)} lanes")
    chips = int(np.prod(sizes))
    at = np.stack(np.unravel_index(np.arange(chips), tuple(sizes)), axis=1)
    peers = np.zeros((chips, 2 * len(sizes)), dtype=np.int64)
    port = np.full((chips, chips), -1, dtype=np.int8)
    channel = np.zeros((chips, chips), dtype=np.int8)
    for axis, size in reversed([*enumerate(sizes)]):  # the first dimension goes first
        for back, step in enumerate((1, -1)):
            there = at.copy()
            there[:, axis] = (there[:, axis] + step) % size
            peers[:, 2 * axis + back] = np.ravel_multi_index(tuple(there.T), tuple(sizes))
        here, to = at[:, None, axis], at[None, :, axis]
        ahead = (to - here) % size
        up = (2 * ahead < size) | ((2 * ahead == size) & (here % 2 == 0))
        apart = here != to
        port = np.where(apart, np.where(up, 2 * axis, 2 * axis + 1), port).astype(np.int8)
        beyond = np.where(up, here < to, here > to)
        channel = np.where(apart, beyond, channel).astype(np.int8)
    each = np.ones_like(peers)
    return FlitNetwork(
        peers=peers,
        lanes=each * np.repeat(np.array(lanes), 2),
        periods=PACKET_FLITS * each,
        delays=LONG_DELAY * each,
        port=port,
        channel=channel,
        channels=_CHANNELS,
    )


def hamming_mesh(side: int, boards: int, planes: int) -> FlitNetwork:
    """Return a HammingMesh of boards x boards boards with side x side chips (Hoefler et al., 2022).

    A line of chips leaves a board at both ends, to one packet switch for each line of the whole. A
    packet goes along its row, over the row's switch if its board is in another column, then along
    its column; on a board to the nearer end. Channel 0 leads to a switch, and channel 1 from it, or
    along the board. Chips have four ports of `planes` links; a packet may change planes, which
    favours HammingMesh. Links take 1 cycle on boards and 10 to switches.
    """
    width = side * boards
    chips = width * width
    y, x = np.divmod(np.arange(chips), width)
    line = np.arange(width)
    count = chips + 2 * width
    peers = np.full((count, max(4, 2 * boards)), -1)
    port = np.full((count, count), -1, dtype=np.int8)
    channel = np.zeros((count, count), dtype=np.int8)
    delays = np.full(peers.shape, LONG_DELAY)
    for axis, (at, of, step) in enumerate(((x, y, 1), (y, x, width))):
        switches = chips + axis * width + line
        place, board = at % side, at // side
        for end, (edge, sign) in enumerate(((side - 1, 1), (0, -1))):
            leads = 2 * axis + end
            inside = place != edge
            peers[np.flatnonzero(inside), leads] = (np.arange(chips) + sign * step)[inside]
            peers[np.flatnonzero(~inside), leads] = switches[of[~inside]]
            delays[np.flatnonzero(inside), leads] = SHORT_DELAY
            outer = np.flatnonzero(~inside)
            peers[switches[of[outer]], 2 * board[outer] + end] = outer
        # From a switch, to the end of the sink's board that is nearer to the sink.
        near = np.where(2 * place >= side, 0, 1)
        port[switches[:, None], np.arange(chips)] = (2 * board + near)[None, :]
        channel[switches[:, None], np.arange(chips)] = 1
    rows = np.arange(chips)
    for axis, at in reversed([*enumerate((x, y))]):  # rows go first
        here, to = at[:, None], at[None, :]
        same = here // side == to // side
        up = np.where(same, to > here, 2 * (here % side) >= side)
        apart = here != to
        block = np.ix_(rows, rows)
        port[block] = np.where(apart, 2 * axis + ~up, port[block])
        channel[block] = np.where(apart, same, channel[block])
    present = peers >= 0
    return FlitNetwork(
        peers=peers,
        lanes=np.where(present, planes, 1),
        periods=np.full(peers.shape, PACKET_FLITS),
        delays=delays,
        port=port,
        channel=channel,
        channels=_CHANNELS,
        terminals=chips,
    )


def loads(network: FlitNetwork) -> Int64s:
    """Return how many ordered pairs of senders cross each port, chips x ports."""
    senders = np.arange(network.senders)
    here, sink = (each.ravel() for each in np.meshgrid(senders, senders))
    found = np.zeros(network.peers.size, dtype=np.int64)
    ports = network.peers.shape[1]
    while (moving := here != sink).any():
        here, sink = here[moving], sink[moving]
        group = here * ports + network.port[here, sink]
        found += np.bincount(group, minlength=found.size)
        here = network.peers.ravel()[group]
    return found.reshape(network.peers.shape)


def uniform_bound(network: FlitNetwork) -> float:
    """Return the largest rate of uniform traffic, flits a cycle and chip, by the loads of links."""
    flits = network.lanes * PACKET_FLITS / network.periods
    return float((network.senders - 1) / (loads(network) / flits).max())


def dependencies(network: FlitNetwork) -> list[tuple[int, int]]:
    """Return pairs of channels of which a packet can have the first and wait for the second.

    A channel is (chip ports + port) `channels` + virtual channel.
    """
    senders = np.arange(network.senders)
    here, sink = (each.ravel() for each in np.meshgrid(senders, senders))
    here, sink = here[here != sink], sink[here != sink]
    before = np.full(here.size, -1)
    ports, found = network.peers.shape[1], np.zeros((0, 2), dtype=np.int64)
    while here.size:
        group = here * ports + network.port[here, sink]
        now = group * network.channels + network.channel[here, sink]
        pairs = np.column_stack([before, now])[before >= 0]
        found = np.unique(np.concatenate([found, pairs]), axis=0)
        here = network.peers.ravel()[group]
        moving = here != sink
        here, sink, before = here[moving], sink[moving], now[moving]
    return [(int(a), int(b)) for a, b in found]


COMPARED: Mapping[str, Callable[[], FlitNetwork]] = {
    "Hx4Mesh, 9 x 9 boards, 2 planes": lambda: hamming_mesh(4, 9, 2),
    "2D-Torus, 36 x 36, 2 links": lambda: torus_network((36, 36), (2, 2)),
    "3D-Torus, 16 x 9 x 9, 2, 1, 1 links": lambda: torus_network((16, 9, 9), (2, 1, 1)),
}
"""Networks of 1,296 chips with eight ports each; their sizes are chosen here."""
