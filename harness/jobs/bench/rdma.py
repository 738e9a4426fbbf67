"""RDMA between the NIC ports of a bench, measured by perftest."""

from urllib.parse import urlsplit

from lightrig.harness.bench.bench import Bench
from lightrig.instruments.jobs.traffic.rdma_pair import (
    QP_TIMEOUT,
    RENDEZVOUS,
    RdmaEnd,
    RdmaPair,
    retransmission_exponent,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Link, Port, Testbed


def without_rdma(testbed: Testbed) -> str:
    """Return why perftest cannot run on a testbed's servers; empty if it can."""
    if lacking := [str(spec.port) for spec in testbed.nic_ports if spec.rdma is None]:
        return f"{', '.join(lacking)} have no RDMA device; state it as `rdma` of their NICs"
    servers = testbed.servers.values()
    if unreachable := [spec.name for spec in servers if urlsplit(spec.address).scheme != "ssh"]:
        return f"{', '.join(unreachable)} are not reached over SSH"
    return "" if servers else "there are no servers"


class NoRdmaError(LightrigError):
    """perftest cannot run on a server or port."""


class RdmaOverCircuits:
    """perftest on both ends of a link.

    Args:
        bench: its servers must resolve each other's host names of the testbed file.
        gid_index: index of the RoCE address; None leaves it to perftest.

    Raises:
        NoRdmaError: a port has no RDMA device, or a server is not reached over SSH.
    """

    def __init__(self, bench: Bench, *, gid_index: int | None = None) -> None:
        if why := without_rdma(bench.testbed):
            raise NoRdmaError(f"perftest cannot run on {bench.testbed.name}: {why}")
        self._testbed = bench.testbed
        self._servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
        self._gid_index = gid_index

    def pair(self, link: Link) -> RdmaPair:
        """Return the pair from the first end of `link` to the second."""
        return self.between(link.a, link.b)

    def between(self, source: Port, sink: Port, *, port: int = RENDEZVOUS) -> RdmaPair:
        """Return the pair from one NIC port to another, which meet at a TCP port of the sink."""
        ends = source, sink
        stated = [self._testbed.servers[end.owner].timeouts.retransmission_ns for end in ends]
        return RdmaPair(
            *map(self._end, ends),
            gid_index=self._gid_index,
            qp_timeout=max(map(retransmission_exponent, filter(None, stated)), default=QP_TIMEOUT),
            port=port,
        )

    def _end(self, port: Port) -> RdmaEnd:
        device = self._testbed.nic_port(port).rdma
        host = urlsplit(self._testbed.servers[port.owner].address).hostname
        return RdmaEnd(self._servers[port.owner].commands, device or "", host or port.owner)
