"""The part of each rank in a delegated all-to-all: what it sends to whom, stage by stage (§5.3)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lightrig.harness.systems.mixnet.planning.demand import Matrix, Placement
from lightrig.harness.systems.mixnet.planning.exchange import Transfer, all_to_all
from lightrig.harness.systems.mixnet.planning.region import Gpu
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.testbeds import Port

SCALE_UP = -1
"""Stands for the stage within a server where otherwise a lane's number does."""

GLOO_FRAME = 48
"""Bytes before each message of Gloo over TCP, and of the receiver's word that it is ready.

Six numbers of eight bytes (gloo/transport/tcp/pair.h). A sender that is first announces itself in
as many more, which depends on who is late.
"""

Piece: TypeAlias = tuple[int, int, int, int]
"""Rows of a flow: the ranks that it goes from and to, the first row of it, and how many."""
Links: TypeAlias = Mapping[tuple[Port, Port], int]
"""What each directed link carries, by the NIC ports that send and receive."""


class Batch(NamedTuple):
    """What one rank sends to another, or receives from it, at once.

    lane: its number, or `SCALE_UP`.
    """

    lane: int
    peer: int
    pieces: Sequence[Piece]


class RankStage(NamedTuple):
    """What a rank sends and receives in one stage."""

    stage: int
    sends: Sequence[Batch]
    receives: Sequence[Batch]


def rank_transfers(rows: Matrix, placement: Placement, routing: Routing) -> list[Transfer]:
    """Return the transfers of an all-to-all of `rows`, ranks x ranks; their unit is a row.

    The ranks of a server are its GPUs in their order. Raises `UnreachableError`.
    """
    gpus = _gpus(placement)
    demand = {
        (gpus[source], gpus[sink]): int(rows[source, sink])
        for source, sink in np.argwhere(rows > 0).tolist()
    }
    return all_to_all(demand, routing)


def rank_stages(
    transfers: Iterable[Transfer], placement: Placement, routing: Routing
) -> dict[int, list[RankStage]]:
    """Return the stages of each rank, both ends of a batch with its pieces in the same order.

    Parallel NICs of two servers are lanes by their order in the routing's hop.
    """
    number = {gpu: rank for rank, gpu in enumerate(_gpus(placement))}
    batches: defaultdict[tuple[int, int, int, int], list[Piece]] = defaultdict(list)
    for one in sorted(transfers):
        lane = SCALE_UP
        if one.ports is not None:
            (hop,) = routing.route(one.source.server, one.sink.server)
            lane = hop.ports.index(one.ports)
        source, sink = (number[gpu] for gpu in one.flow)
        key = (one.stage, lane, number[one.source], number[one.sink])
        batches[key].append((source, sink, one.first, one.size))
    found: defaultdict[int, defaultdict[int, tuple[list[Batch], list[Batch]]]] = defaultdict(
        lambda: defaultdict(lambda: ([], []))
    )
    for (stage, lane, sender, receiver), pieces in sorted(batches.items()):
        found[sender][stage][0].append(Batch(lane, receiver, pieces))
        found[receiver][stage][1].append(Batch(lane, sender, pieces))
    return {
        rank: [RankStage(stage, *found[rank][stage]) for stage in sorted(found[rank])]
        for rank in range(placement.ranks)
    }


def link_bytes(transfers: Iterable[Transfer], size: int) -> Links:
    """Return the bytes over each directed link between servers, of rows of `size` bytes.

    With what Gloo adds to each message; see `GLOO_FRAME`.
    """
    carried: Counter[tuple[Port, Port]] = Counter()
    messages = set()
    for one in transfers:
        if one.ports is not None:
            carried[one.ports] += one.size * size
            messages.add((one.stage, one.source, one.sink, one.ports))
    for *_, (sender, receiver) in messages:
        carried[sender, receiver] += GLOO_FRAME
        carried[receiver, sender] += GLOO_FRAME
    return dict(carried)


class Ring(NamedTuple):
    """A ring over a packet NIC of each server: their delegates' ranks, and its links."""

    gateways: Sequence[int]
    links: Sequence[tuple[Port, Port]]


def packet_rings(placement: Placement, routing: Routing) -> list[Ring]:
    """Return a ring for each of the packet NICs that servers have in parallel (MixNet §5.3).

    Every second one goes the other way round. Raises `UnreachableError`.
    """
    rank_of = {gpu: rank for rank, gpu in enumerate(_gpus(placement))}
    packets = Routing(routing.region, ())
    servers = list(range(placement.servers))
    if len(servers) < 2:
        return []
    count = max(len(server.packet) for server in routing.region.servers)
    rings = []
    for number in range(count):
        order = servers if number % 2 == 0 else servers[::-1]
        links = []
        for source, sink in zip(order, [*order[1:], order[0]], strict=True):
            (hop,) = packets.route(source, sink)
            links.append(hop.ports[number % len(hop.ports)])
        rings.append(Ring([rank_of[routing.delegate(port)] for port, _ in links], links))
    return rings


def ring_bytes(rings: Sequence[Ring], size: int) -> Links:
    """Return the bytes over each link of the sum of a tensor of `size` bytes.

    Each of n servers sends 2 (n - 1) of n chunks, each a message of Gloo's.
    """
    carried: Counter[tuple[Port, Port]] = Counter()
    for ring in rings:
        count = len(ring.links)
        for sender, receiver in ring.links:
            messages = 2 * (count - 1)
            carried[sender, receiver] += messages * (size // (count * len(rings)) + GLOO_FRAME)
            carried[receiver, sender] += messages * GLOO_FRAME
    return dict(carried)


def _gpus(placement: Placement) -> list[Gpu]:
    """Return each rank's GPU."""
    count: defaultdict[int, int] = defaultdict(int)
    gpus = []
    for server in placement.server_of:
        gpus.append(Gpu(server, count[server]))
        count[server] += 1
    return gpus
