"""Loads of single directions of a bench's links: by datagrams, and by RDMA."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lightrig.harness.bench.bench import Bench
from lightrig.harness.jobs.bench.rdma import RdmaOverCircuits
from lightrig.instruments.jobs.core.loads import Flow, FlowRate
from lightrig.instruments.jobs.traffic.datagram_load import DatagramLoad, LoadEnd
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Plan, Testbed

_FIRST_PORT = 18_600
_LARGE, _FIRST = 1 << 20, 200
_SECONDS = 1.5
_MOST_MESSAGES = 100_000


def without_datagram_load(testbed: Testbed) -> str:
    """Return why no datagrams load single links of `testbed`; empty if they do."""
    if bare := [str(spec.port) for spec in testbed.nic_ports if spec.ip is None]:
        return f"{', '.join(sorted(bare))} without `ip`"
    return "" if testbed.servers else "there are no servers"


def flows_of(testbed: Testbed, plan: Plan) -> list[Flow]:
    """Return both directions of each link of a plan, sorted."""
    ends = [(link.a, link.b) for link in testbed.links(plan)]
    return sorted(Flow(*pair) for a, b in ends for pair in ((a, b), (b, a)))


def open_datagram_load(bench: Bench, plan: Plan) -> DatagramLoad:
    """Start the programs at the ports of a plan's links; raises `InstrumentError`."""
    servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
    ends = {}
    for flow in flows_of(bench.testbed, plan):
        spec = bench.testbed.nic_port(flow.source)
        assert spec.ip is not None  # `without_datagram_load`
        address = spec.ip.partition("/")[0]
        rate = bench.testbed.nic_of(flow.source)[1].rate_bps
        ends[flow.source] = LoadEnd(flow.source.owner, spec.netdev, address, rate)
    return DatagramLoad(servers, bench.clock, ends)


class RdmaLoad:
    """perftest in single directions of links, each flow by a rendezvous port of its own.

    It takes a second or two from the first connection to the last, so a load is as many messages
    as a flow sends alone in `_SECONDS`.
    """

    def __init__(self, bench: Bench, rdma: RdmaOverCircuits) -> None:
        self._clock, self._rdma = bench.clock, rdma
        self._messages: dict[Flow, int] = {}

    def rates(self, flows: Sequence[Flow]) -> list[FlowRate]:
        """Run flows at once; return the average rate of each.

        In virtual time one after another: simulated perftest shares no limit, and which of many
        threads is first would differ each time. Raises what `RdmaPair.bandwidth` does.
        """
        for flow in flows:
            if flow not in self._messages:
                first = self._rdma.between(flow.source, flow.sink).bandwidth(_LARGE, _FIRST)
                wanted = round(first.average_bps * _SECONDS / 8 / _LARGE)
                self._messages[flow] = min(max(wanted, _FIRST), _MOST_MESSAGES)
        tasks = [partial(self._run, flow, number) for number, flow in enumerate(flows)]
        if self._clock.virtual:
            return [FlowRate(task()) for task in tasks]
        return [FlowRate(bps) for bps in self._clock.parallel(*tasks)]

    def _run(self, flow: Flow, number: int) -> float:
        pair = self._rdma.between(flow.source, flow.sink, port=_FIRST_PORT + number)
        return pair.bandwidth(_LARGE, self._messages[flow]).average_bps

    def close(self) -> None:
        """Do nothing: each program has ended."""
