"""The nodes of one row as namespaces, whose packets are led by rail."""

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.bench.collectives import NoCollectivesError
from lightrig.harness.bench.lanes import Lanes
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.systems.railx.planning.rail_lanes import RailLanes
from lightrig.instruments.servers.gloo import GlooRunner
from lightrig.testbeds import LightrigError, Plan


class Rails:
    """An address for each rail of each node, and ranks that exchange data over all of them.

    Raises:
        NoCollectivesError: a server is no namespace.
        NoPyTorchError: a namespace's Python has no PyTorch.
        InstrumentError: a server refused.
    """

    def __init__(self, bench: Bench) -> None:
        testbed = self._testbed = bench.testbed
        if not testbed.only_local_namespaces:
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
        await_carriers(fabric.bench, self._lanes.dark, ports)
        self.route(plan)

    def close(self) -> None:
        """End the ranks, and remove addresses and routes."""
        try:
            self.runner.close()
        finally:
            self._lanes.close()
