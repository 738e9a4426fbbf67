"""The way of traffic between servers: circuits first, else packets, else through a peer."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lightrig.harness.systems.mixnet.planning.region import Gpu, Region, RegionError
from lightrig.testbeds import Link, Port

Medium: TypeAlias = Literal["optical", "packet"]


class UnreachableError(RegionError):
    """No circuit and no packet switch leads from one server to another any more."""


@dataclass(frozen=True, slots=True)
class Hop:
    """From one server to the next: the NIC ports that share the traffic, pair by pair."""

    medium: Medium
    source: int
    sink: int
    ports: tuple[tuple[Port, Port], ...]


@dataclass(frozen=True)
class Routing:
    """Routes in a region whose circuit switch holds `links`."""

    region: Region
    links: tuple[Link, ...]
    _hops: dict[tuple[int, int], Hop] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hops", dict(self._direct()))

    def route(self, source: int, sink: int) -> tuple[Hop, ...]:
        """The hops from one server to another, by their numbers; none to itself.

        A circuit between them is preferred to the packet switch (MixNet §5.3). Where there is
        neither, since NICs failed, the traffic goes through as few peers as it can: from a
        server without packet NICs by a circuit to a peer and from there by packets, or the
        other way round (§5.4). Of peers that are as good the lowest is taken.

        Raises `UnreachableError`.
        """
        before: dict[int, Hop | None] = {source: None}
        waiting = deque([source])
        while waiting and sink not in before:
            here = waiting.popleft()
            for there in range(len(self.region.servers)):
                hop = self._hops.get((here, there))
                if hop is not None and there not in before:
                    before[there] = hop
                    waiting.append(there)
        if sink not in before:
            a, b = (self.region.servers[number].name for number in (source, sink))
            raise UnreachableError(
                f"nothing leads from {a} to {b}: neither a circuit, nor the packet switch, nor a "
                "peer that has both"
            )
        hops: list[Hop] = []
        end = before[sink]
        while end is not None:
            hops.insert(0, end)
            end = before[end.source]
        return tuple(hops)

    def delegate(self, port: Port) -> Gpu:
        """The GPU that sends and receives through a NIC port.

        GPUs are shared out among the ports that the server was built with, neighbours together,
        as they stand nearest; of a port's GPUs the first that works is its delegate, or else
        the first of the server. Raises `RegionError` where none works.
        """
        number = self.region.number_of[port.owner]
        server = self.region.servers[number]
        if not server.gpus:
            raise RegionError(f"{server.name} has no working GPU left behind {port}")
        place, ports = server.ports.index(port), len(server.ports)
        count = max(server.gpu_count, ports)
        near = [gpu for gpu in server.gpus if gpu * ports // count == place]
        return Gpu(number, near[0] if near else server.gpus[0])

    def _direct(self) -> Iterable[tuple[tuple[int, int], Hop]]:
        """Every way that needs no peer; circuits come last, so that they take precedence."""
        servers = self.region.servers
        for a, here in enumerate(servers):
            for b, there in enumerate(servers):
                if a != b and here.packet and there.packet:
                    count = max(len(here.packet), len(there.packet))
                    ports = tuple(
                        (here.packet[n % len(here.packet)], there.packet[n % len(there.packet)])
                        for n in range(count)
                    )
                    yield (a, b), Hop("packet", a, b, ports)
        number_of = self.region.number_of
        between: dict[tuple[int, int], list[tuple[Port, Port]]] = {}
        for link in sorted(self.links):
            a, b = number_of[link.a.owner], number_of[link.b.owner]
            between.setdefault((a, b), []).append((link.a, link.b))
            between.setdefault((b, a), []).append((link.b, link.a))
        for (a, b), pairs in between.items():
            yield (a, b), Hop("optical", a, b, tuple(pairs))
