"""MixNet's all-to-alls among the servers of a bench: ways, lanes, and who runs them."""

import shlex
from collections.abc import Callable, Iterable, Sequence

import numpy.typing as npt

from lightrig.harness.bench.bench import Bench
from lightrig.harness.jobs.bench.collectives import NoCollectivesError
from lightrig.harness.jobs.bench.lanes import Lanes
from lightrig.harness.systems.mixnet.planning.diagnosis import diagnose
from lightrig.harness.systems.mixnet.planning.lanes import (
    Shares,
    exchange_time,
    lane_routes,
    lane_shares,
    routing_in,
)
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.instruments.jobs.core.collectives import Exchange, ExchangeRunner
from lightrig.instruments.jobs.flows.of_testbed import fabric_links
from lightrig.instruments.jobs.flows.steps import Costs
from lightrig.instruments.jobs.traffic.gloo import GlooRunner
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Plan, Port, Testbed

TCP = Costs(efficiency=1448 / 1514)
"""Share of Ethernet frames that TCP leaves to the data."""


class Exchanges:
    """The servers of a bench that are namespaces, as one region of MixNet.

    Args:
        bench: of the servers.
        open_lanes: opens as many lanes on it.
        open_ranks: starts the program of each server's rank.

    Raises:
        NoCollectivesError: a server is no namespace.
        NoPyTorchError: a namespace's Python has no PyTorch.
        InstrumentError: a server refused.
    """

    def __init__(
        self,
        bench: Bench,
        open_lanes: Callable[[Bench, int], Lanes] = Lanes,
        open_ranks: Callable[..., GlooRunner] = GlooRunner,
    ) -> None:
        self._bench = bench
        self.testbed: Testbed = bench.testbed
        if not bench.testbed.only_local_namespaces:
            raise NoCollectivesError(f"{bench.testbed.path} has no two servers, all namespaces")
        self.region = Region.of(bench.testbed)
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.nic_ports}
        self.lanes = open_lanes(bench, max(len(server.ports) for server in self.region.servers))
        first = {name: addresses[0] for name, addresses in self.lanes.addresses.items()}
        device, *more_devices = self.lanes.devices
        self._gloo = open_ranks(
            self.lanes.servers,
            first,
            bench.clock,
            interface=device,
            lanes=more_devices,
        )
        try:
            self._gloo.load(list(self.lanes.servers))
        except LightrigError:
            self.close()
            raise

    @property
    def runner(self) -> ExchangeRunner:
        """Runs the all-to-alls."""
        return self._gloo

    def routing(self, plan: Plan, failures: Failures | None = None) -> Routing:
        """The ways that `plan` leaves, without what failed."""
        return routing_in(self.testbed, plan, self.region.without(failures or Failures()))

    def route(self, routing: Routing) -> None:
        """Lead packets by `routing` from now on; raises `InstrumentError`."""
        self.lanes.route(lane_routes(routing, self.lanes.count))

    def exchange(
        self, routing: Routing, traffic: npt.ArrayLike, ranks: Sequence[str] = ()
    ) -> Exchange:
        """`traffic`, in bytes, shared out on lanes among `ranks`, by default all servers."""
        ranks = tuple(ranks or self.testbed.servers)
        return Exchange(ranks, lane_shares(routing, ranks, traffic, self.lanes.count))

    def predicted(self, plan: Plan, routing: Routing, what: Exchange) -> float:
        """Return the duration of an exchange by the model of flows, in ns."""
        shares: Shares = what.lanes
        return exchange_time(self.testbed, plan, routing, what.ranks, shares, TCP)

    def failed(self, plan: Plan) -> Failures:
        """Return the present failures where `plan` is in place, by the servers' ports."""
        up = fabric_links(self.testbed, plan)
        ends = {port for link in up for port in (link.a, link.b)}
        dark = self.lanes.dark(ends & self._netdevs.keys())
        if not dark:
            return Failures()
        # A server that lost one port may have lost those, too, that the plan does not use.
        owners = {port.owner for port in dark}
        theirs = [port for port in self._netdevs if port.owner in owners]
        missing = self.lanes.ask_each(LinuxServer.down, theirs)
        return diagnose(self.region, up, dark, missing)

    def ended(self) -> Sequence[str]:
        """The servers whose rank has ended by itself."""
        return self._gloo.ended()

    def take_down(self, ports: Iterable[Port]) -> Callable[[], None]:
        """Let NIC ports fail: their servers have them no more, and no light leaves them.

        Returns what undoes that.
        """
        ports = sorted(ports)
        assert self._bench.world is not None
        light = self._bench.world.darken(ports)
        for port in ports:
            self._set(port, "down")

        def undo() -> None:
            for port in ports:
                self._set(port, "up")
                self.lanes.forget(port.owner)
            light()

        return undo

    def cut(self, ports: Iterable[Port]) -> Callable[[], None]:
        """Let no light leave ports, of NICs or packet switches; returns what undoes that."""
        assert self._bench.world is not None
        return self._bench.world.darken(ports)

    def kill(self, server: str) -> None:
        """End the program that takes part on `server`, as a GPU that fails does."""
        self._sh(server, f"kill -9 {self._gloo.process(server)}")

    def close(self) -> None:
        """Leave the servers as they were found."""
        try:
            self._gloo.close()
        finally:
            self.lanes.close()

    def _set(self, port: Port, state: str) -> None:
        self._sh(port.owner, f"ip link set {self._netdevs[port]} {state}")

    def _sh(self, server: str, line: str) -> None:
        command = ["sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {line}"]
        result = self.lanes.servers[server].commands.run(command)
        if result.status:
            raise ToolFailedError(server, result, shlex.join(command))
