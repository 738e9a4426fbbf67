"""The nodes of one row as namespaces, whose packets are led by rail."""

from collections import defaultdict
from functools import partial

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.bench.collectives import NoCollectivesError
from lightrig.harness.bench.lanes import Lanes
from lightrig.harness.measure.links import LINK_TIMEOUT, LinksDownError
from lightrig.harness.systems.railx.planning.rail_lanes import RailLanes
from lightrig.instruments.servers.gloo import GlooRunner
from lightrig.testbeds import LightrigError, Plan, Port

POLL = 20_000_000
"""Time between two queries of the servers' carriers, in ns."""


class Rails:
    """An address for each rail of each node, and ranks that exchange data over all of them.

    Raises:
        NoCollectivesError: a server is no namespace.
        NoPyTorchError: a namespace's Python has no PyTorch.
        InstrumentError: a server refused.
    """

    def __init__(self, bench: Bench) -> None:
        testbed = self._testbed = bench.testbed
        if not all(each.address.startswith("netns://") for each in testbed.servers.values()):
            raise NoCollectivesError(f"{testbed.path}: not all servers are namespaces")
        self._bench = bench
        self.nodes = tuple(testbed.servers)
        self._netdevs = {spec.port: spec.netdev for spec in testbed.nic_ports}
        nics = {nic for server in testbed.servers.values() for nic in server.nics}
        self._lanes = Lanes(bench, len(nics))
        first = {name: addresses[0] for name, addresses in self._lanes.addresses.items()}
        device, *further = self._lanes.devices
        self.runner = GlooRunner(
            self._lanes.servers, first, bench.clock, interface=device, lanes=further
        )
        try:
            self.runner.load(list(self.nodes))
        except LightrigError:
            self.close()
            raise

    def lanes(self, plan: Plan) -> RailLanes:
        """Return the rails with the links that `plan` closes."""
        return RailLanes.of(self.nodes, self._testbed.links(plan))

    def route(self, plan: Plan) -> None:
        """Lead packets over the rails of `plan`; raises `InstrumentError`."""
        self._lanes.route(self.lanes(plan).routes())

    def apply(self, fabric: Fabric, plan: Plan) -> None:
        """Set `plan`, wait for the carriers of its links and lead packets over them.

        Raises `LinksDownError` where a port gets no carrier.
        """
        fabric.apply(plan)
        ports = {port for link in fabric.links(plan) for port in (link.a, link.b)}
        clock = fabric.bench.clock
        deadline = clock.now() + LINK_TIMEOUT
        while dark := self._without_carrier(ports):
            if clock.now() > deadline:
                fabric.bench.check_world()
                raise LinksDownError([(port, "carrier") for port in sorted(dark)], LINK_TIMEOUT)
            clock.sleep(POLL)
        self.route(plan)

    def _without_carrier(self, ports: set[Port]) -> set[Port]:
        asked: defaultdict[str, dict[str, Port]] = defaultdict(dict)
        for port in ports:
            asked[port.owner][self._netdevs[port]] = port
        lit = self._bench.clock.parallel(
            *(partial(self._lanes.servers[name].lit, list(ports)) for name, ports in asked.items())
        )
        pairs = zip(asked.values(), lit, strict=True)
        return ports - {ports[netdev] for ports, found in pairs for netdev in found}

    def close(self) -> None:
        """End the ranks, and remove addresses and routes."""
        try:
            self.runner.close()
        finally:
            self._lanes.close()
