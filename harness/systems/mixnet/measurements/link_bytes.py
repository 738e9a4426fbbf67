"""Bytes of a training script's all-to-alls over links: as planned, and as kernels count them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from lightrig.harness.systems.mixnet.runtime.trained import LinkPeriod
from lightrig.testbeds import Port, Testbed


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """Bytes of data in one direction of a circuit, or of a port's link to the packet switch.

    Attributes:
        source, sink: NIC ports; one of them is None where the other end is the packet switch.
        planned: by the all-to-alls, with the frames of Gloo.
        counted: by the kernel of the server at `source`, or at `sink` where that is None; on links
            to the packet switch with whatever else ranks exchange.
    """

    source: Port | None
    sink: Port | None
    planned: int
    counted: int

    @property
    def off(self) -> float:
        """Share of the planned bytes by which the counted ones differ."""
        return abs(self.counted - self.planned) / self.planned if self.planned else float("inf")

    def __str__(self) -> str:
        return f"{self.source or 'Ethernet'} -> {self.sink or 'Ethernet'}"


def link_bytes(testbed: Testbed, periods: Iterable[LinkPeriod]) -> list[LinkBytes]:
    """Return what each link has carried in all periods; a circuit counts while it was in place."""
    planned: defaultdict[tuple[Port | None, Port | None], int] = defaultdict(int)
    counted: defaultdict[tuple[Port | None, Port | None], int] = defaultdict(int)
    for period in periods:
        ends = [(link.a, link.b) for link in testbed.links(period.plan)]
        circuits = {*ends, *((b, a) for a, b in ends)}
        lit = {port for pair in circuits for port in pair}
        for pair, size in period.planned.items():
            if pair in circuits:
                planned[pair] += size
            else:
                planned[pair[0], None] += size
                planned[None, pair[1]] += size
        for source, sink in circuits:
            counted[source, sink] += period.counted[source].data_sent
        for port, traffic in period.counted.items():
            if port not in lit:
                counted[port, None] += traffic.data_sent
                counted[None, port] += traffic.data_received
    found = (LinkBytes(*pair, planned[pair], counted[pair]) for pair in counted)
    used = (link for link in found if link.planned or link.counted)
    return sorted(used, key=str)
