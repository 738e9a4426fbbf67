"""The hierarchical all-reduce of data parallelism, over the packet side (MixNet §5.3)."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from lightrig.harness.systems.mixnet.planning.region import Gpu, RegionError
from lightrig.harness.systems.mixnet.planning.routing import Routing


class Move(NamedTuple):
    """Elements `start` to `stop` go from a GPU to another, which adds or copies them.

    Moves of one `stage` run side by side; those within a server use NVLink.
    """

    stage: int
    source: Gpu
    sink: Gpu
    start: int
    stop: int
    how: Literal["add", "copy"]


def all_reduce(elements: int, routing: Routing, servers: Sequence[int]) -> list[Move]:
    """Sum `elements` values over all GPUs of `servers`, by their numbers, in a ring of servers.

    Each server has one gateway GPU for each packet NIC and a ring each, as many as the server
    with the fewest NICs has; every ring takes an equal part. The GPUs of a server reduce a part
    to its gateway, the gateways reduce and gather in a ring, and the gateways tell their
    servers' GPUs. A ring of n moves 2 (n - 1) / n of its part through each gateway. A server
    whose packet NICs all failed takes part through its first GPU, by the way that
    `Routing.route` finds.

    Raises `RegionError` where a server has no GPU left.
    """
    region = routing.region
    rings = max(1, min((len(region.servers[at].packet) for at in servers), default=1))
    moves: list[Move] = []
    for ring in range(rings):
        gateways = [_gateway(routing, at, ring) for at in servers]
        part = range(elements * ring // rings, elements * (ring + 1) // rings)
        for gateway in gateways:
            for place in region.servers[gateway.server].gpus:
                if place != gateway.place:
                    gpu = Gpu(gateway.server, place)
                    moves.append(Move(0, gpu, gateway, part.start, part.stop, "add"))
                    last = 2 * len(servers) - 1
                    moves.append(Move(last, gateway, gpu, part.start, part.stop, "copy"))
        moves += _ring(gateways, part)
    return sorted(move for move in moves if move.start < move.stop)


def _gateway(routing: Routing, at: int, ring: int) -> Gpu:
    server = routing.region.servers[at]
    if server.packet:
        return routing.delegate(server.packet[ring])
    if not server.gpus:
        raise RegionError(f"{server.name} has no working GPU left to reduce")
    return Gpu(at, server.gpus[0])


def _ring(gateways: Sequence[Gpu], part: range) -> list[Move]:
    """Reduce-scatter, then all-gather: in each step every gateway sends one chunk onward."""
    size = len(gateways)
    marks = [part.start + len(part) * n // size for n in range(size + 1)]
    moves = []
    for step in range(2 * (size - 1)):
        for place, gateway in enumerate(gateways):
            # In step s gateway p passes on the chunk that it completed or received in s - 1.
            chunk = (place - step) % size
            towards = gateways[(place + 1) % size]
            how: Literal["add", "copy"] = "add" if step < size - 1 else "copy"
            moves.append(Move(step + 1, gateway, towards, marks[chunk], marks[chunk + 1], how))
    return moves
