"""An all-to-all over circuits and packets: gather, exchange, scatter (MixNet §5.3)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from lightrig.harness.systems.mixnet.planning.region import Gpu
from lightrig.harness.systems.mixnet.planning.routing import Hop, Medium, Routing
from lightrig.testbeds import Port

TransferKind: TypeAlias = Literal["gather", "exchange", "relay", "local", "scatter"]
Flow: TypeAlias = tuple[Gpu, Gpu]
"""From which GPU to which; never from one to itself."""


class Transfer(NamedTuple):
    """Bytes of one flow, from one GPU to the next on its way; `first` is the first of its bytes.

    A flow that parallel NICs share is in pieces, which stay whole from its source to its sink. The
    unit may be another than bytes, such as rows of a tensor.

    `stage` orders the transfers: those of one stage run side by side, after all of the stage
    before; `local` ones run beside any. Within a server `ports` is None and the bytes go over
    NVLink; between servers it names both NIC ports.
    """

    stage: int
    step: TransferKind
    flow: Flow
    source: Gpu
    sink: Gpu
    first: int
    size: int
    medium: Medium | Literal["nvlink"] = "nvlink"
    ports: tuple[Port, Port] | None = None


def all_to_all(demand: Mapping[Flow, int], routing: Routing) -> list[Transfer]:
    """Return the transfers of each flow; a server's are gathered at the delegates of its NICs.

    The traffic between two servers is shared among their parallel NICs to within one byte.
    Through a peer, the delegate that receives hands over to the one that sends on.

    Raises `UnreachableError` where a flow has no way.
    """
    between: defaultdict[tuple[int, int], list[tuple[Flow, int]]] = defaultdict(list)
    transfers = []
    for flow, size in sorted(demand.items()):
        source, sink = flow
        if size and source.server == sink.server and source != sink:
            transfers.append(Transfer(1, "local", flow, source, sink, 0, size))
        elif size and source != sink:
            between[source.server, sink.server].append((flow, size))
    for ends, flows in between.items():
        hops = routing.route(*ends)
        for flow, pieces in _shares(flows, hops):
            transfers += _travel(flow, pieces, hops, routing)
    return sorted(transfers)


_Piece: TypeAlias = tuple[int, tuple[int, ...]]
"""Bytes, and over which of the parallel port pairs of each hop they go."""


def _shares(
    flows: list[tuple[Flow, int]], hops: tuple[Hop, ...]
) -> Iterator[tuple[Flow, list[_Piece]]]:
    """Cut the flows, laid end to end, where the next NIC of some hop takes over."""
    total = sum(size for _, size in flows)
    cuts = {total * n // len(hop.ports) for hop in hops for n in range(1, len(hop.ports))}
    start = 0
    for flow, size in flows:
        end = start + size
        marks = [start, *sorted(cut for cut in cuts if start < cut < end), end]
        yield (
            flow,
            [
                (stop - first, tuple(_lane(first, total, len(hop.ports)) for hop in hops))
                for first, stop in pairwise(marks)
            ],
        )
        start = end


def _lane(byte: int, total: int, lanes: int) -> int:
    """Return the lane of this byte, where lane n begins at byte total * n // lanes."""
    return next(n for n in reversed(range(lanes)) if total * n // lanes <= byte)


def _travel(
    flow: Flow, pieces: list[_Piece], hops: tuple[Hop, ...], routing: Routing
) -> Iterator[Transfer]:
    last = 2 * len(hops)
    first = 0
    for size, lanes in pieces:
        at, stage = flow[0], 0
        for hop, lane in zip(hops, lanes, strict=True):
            ports = hop.ports[lane]
            sender, receiver = map(routing.delegate, ports)
            if at != sender:
                step: TransferKind = "gather" if stage == 0 else "relay"
                yield Transfer(stage, step, flow, at, sender, first, size)
            ends = (sender, receiver, first)
            yield Transfer(stage + 1, "exchange", flow, *ends, size, hop.medium, ports)
            at, stage = receiver, stage + 2
        if at != flow[1]:
            yield Transfer(last, "scatter", flow, at, flow[1], first, size)
        first += size
