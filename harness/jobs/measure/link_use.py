"""Whether a job uses a link: what the NIC ports at its ends have counted meanwhile."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lightrig.harness.bench import Bench
from lightrig.instruments.core.capabilities import HasNic
from lightrig.testbeds import LightrigError, Link, Port

_T = TypeVar("_T")

_USED = 0.01
"""Share of the busiest link's bytes from which on a link is used: others carry ARP and probes."""

_WORD = 4
"""Bytes that `port_xmit_data` counts as one (InfiniBand, 16.1.3.5)."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Bytes that links have carried under a job, of those whose ports count them."""

    carried: Mapping[Link, int]

    def uses(self, link: Link) -> bool | None:
        """Whether the job uses a link; None where its ports, or all of them, have counted nothing.

        A port that has no counter of bytes is in no link here.
        """
        most = max(self.carried.values(), default=0)
        if not most or link not in self.carried:
            return None
        return self.carried[link] >= _USED * most

    @property
    def used(self) -> list[Link]:
        """The links that the job uses, in order."""
        return sorted(link for link in self.carried if self.uses(link))


class LinkCounters:
    """The counters of the ports of some links, since they were first read."""

    def __init__(self, bench: Bench, links: Iterable[Link]) -> None:
        self._bench, self._links = bench, list(links)
        self._first = self._read()

    def use(self) -> LinkUse:
        """Return what each link has carried since."""
        now, first = self._read(), self._first
        carried = {}
        for link in self._links:
            ends = [port for port in (link.a, link.b) if port in now and port in first]
            if ends:
                carried[link] = max(now[port] - first[port] for port in ends)
        return LinkUse(carried)

    def _read(self) -> dict[Port, int]:
        """Return the bytes that each port has sent and received, by kernel and RDMA."""
        wanted = {port for link in self._links for port in (link.a, link.b)}
        of_server: defaultdict[str, list[tuple[Port, str, str | None]]] = defaultdict(list)
        for spec in self._bench.testbed.nic_ports:
            if spec.port in wanted and spec.netdev is not None:
                of_server[spec.port.owner].append((spec.port, spec.netdev, spec.rdma))
        tasks = []
        for name, ports in of_server.items():
            server: object = self._bench.servers.get(name)
            if isinstance(server, HasNic):
                tasks.append(partial(_counted, server, ports))
        return {port: count for each in self._bench.clock.parallel(*tasks) for port, count in each}


def _counted(
    server: HasNic, ports: Iterable[tuple[Port, str, str | None]]
) -> list[tuple[Port, int]]:
    found = []
    for port, netdev, rdma in ports:
        total = _or_none(partial(_device, server, netdev))
        of_rdma = _or_none(partial(_rdma_counters, server, rdma)) if rdma is not None else None
        if of_rdma is not None and "port_xmit_data" in of_rdma:
            counted = of_rdma["port_xmit_data"] + of_rdma.get("port_rcv_data", 0)
            total = (total or 0) + _WORD * counted
        if total is not None:
            found.append((port, total))
    return found


def _device(server: HasNic, netdev: str) -> int | None:
    """Return the bytes that the kernel has counted; None where it counts none."""
    device = server.nic.device(netdev).value
    if not {"bytes"} <= device.rx.keys() & device.tx.keys():
        return None
    return device.rx["bytes"] + device.tx["bytes"]


def _rdma_counters(server: HasNic, rdma: str) -> Mapping[str, int]:
    return server.nic.infiniband(rdma).value.counters


def _or_none(read: Callable[[], _T]) -> _T | None:
    """Return what is read; None where the tool or the driver has none."""
    try:
        return read()
    except LightrigError:
        return None
