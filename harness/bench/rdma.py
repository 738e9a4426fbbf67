"""RDMA between the NIC ports of a bench, measured by perftest."""

from urllib.parse import urlsplit

from harness.bench.bench import Bench
from instruments.servers.linux import LinuxServer
from instruments.servers.rdma_pair import RdmaEnd, RdmaPair
from testbeds import LightrigError, Link, Port, Testbed


def without_rdma(testbed: Testbed) -> str:
    """Why perftest cannot run on all of a testbed's servers; empty where it can."""
    if lacking := [str(spec.port) for spec in testbed.nic_ports if spec.rdma is None]:
        return f"{', '.join(lacking)} have no RDMA device; state it as `rdma` of their NICs"
    servers = testbed.servers.values()
    if others := [spec.name for spec in servers if urlsplit(spec.address).scheme != "ssh"]:
        return f"{', '.join(others)} are not reached over SSH"
    return "" if servers else "there are no servers"


class NoRdmaError(LightrigError):
    """Servers or ports that perftest cannot run on."""


class RdmaOverCircuits:
    """perftest on both ends of a link.

    Args:
        bench: whose servers are called by the same host names among themselves.
        gid_index: which address of a device RoCE uses; None leaves it to perftest.

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
        """From the first end of `link` to the second."""
        return RdmaPair(self._end(link.a), self._end(link.b), gid_index=self._gid_index)

    def _end(self, port: Port) -> RdmaEnd:
        device = self._testbed.nic_port(port).rdma
        host = urlsplit(self._testbed.servers[port.owner].address).hostname
        return RdmaEnd(self._servers[port.owner].commands, device or "", host or port.owner)
