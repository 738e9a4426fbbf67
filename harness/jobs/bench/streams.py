"""TCP streams over single links of a bench."""

from lightrig.harness.bench.bench import Bench
from lightrig.instruments.jobs.traffic.tcp_stream import StreamEnd, TcpStream
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Link, Port, Testbed


def without_streams(testbed: Testbed) -> str:
    """Return why no TCP runs over single links of `testbed`; empty if it does."""
    if not testbed.only_namespaces:
        return "simulated servers run no TCP; this needs servers that are network namespaces"
    if bare := [str(spec.port) for spec in testbed.nic_ports if spec.ip is None]:
        return f"{', '.join(sorted(bare))} without `ip`"
    return ""


def open_stream(bench: Bench, link: Link, *, user_timeout: int = 0) -> TcpStream:
    """Start exchanges of blocks over `link`, which is up; see `TcpStream`."""
    servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
    ends = (_end(bench.testbed, link.a), _end(bench.testbed, link.b))
    return TcpStream(servers, bench.clock, *ends, user_timeout=user_timeout)


def _end(testbed: Testbed, port: Port) -> StreamEnd:
    (spec,) = [each for each in testbed.nic_ports if each.port == port]
    assert spec.ip is not None  # `without_streams`
    return StreamEnd(port.owner, spec.netdev, spec.ip.partition("/")[0])
