"""An overlay network: an address per server that is reachable over the present circuits."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from lightrig.harness.bench.bench import Bench
from lightrig.harness.planning.routes import Routes, shortest_routes
from lightrig.instruments.servers.linux import LinuxServer
from lightrig.instruments.servers.routes import Route
from lightrig.testbeds import LightrigError, Link

FIRST_ADDRESS = IPv4Address("198.18.0.1")
"""Address of the first server; the range is reserved for benchmarks (RFC 2544)."""


class NotRoutedError(LightrigError):
    """The servers of this bench cannot forward traffic."""


class Overlay:
    """Routes over the servers of a bench, which forward packets for each other.

    Every server gets an address; `route` sets shortest paths to it over the links of a plan. A
    circuit connects few servers directly, and collectives connect all of them. `close` removes
    addresses and routes.

    Raises:
        NotRoutedError: a server is simulated, without a kernel that could forward.
        InstrumentError: a server refused.
    """

    def __init__(self, bench: Bench) -> None:
        if simulated := sorted(bench.simulated & bench.servers.keys()):
            raise NotRoutedError(
                f"{', '.join(simulated)} of {bench.testbed.path} are simulated and forward nothing"
            )
        self._bench = bench
        self.servers = {
            name: server
            for name, server in bench.servers.items()
            if isinstance(server, LinuxServer)
        }
        self.addresses = {name: str(FIRST_ADDRESS + n) for n, name in enumerate(bench.servers)}
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.nic_ports}
        self._opened: list[LinuxServer] = []
        try:
            for name, server in self.servers.items():
                netdevs = [d for port, d in self._netdevs.items() if port.owner == name]
                self._opened.append(server)
                server.routes.open(self.addresses[name], netdevs)
        except LightrigError:
            self.close()
            raise

    def route(self, links: Iterable[Link]) -> Routes:
        """Set shortest routes over `links` and return them.

        Raises `InstrumentError` if a server refuses.
        """
        routes = shortest_routes(list(self.servers), links)
        self.follow(routes)
        return routes

    def follow(self, routes: Routes) -> None:
        """Set `routes`; raises `InstrumentError` if a server refuses."""
        self._bench.clock.parallel(
            *(
                lambda server=server, name=name: server.routes.set(self._routes_of(name, routes))
                for name, server in self.servers.items()
            )
        )

    def close(self) -> None:
        """Remove routes and addresses, on all servers even if one refuses."""
        opened, self._opened = self._opened, []
        errors: list[LightrigError] = []
        for server in opened:
            try:
                server.routes.close()
            except LightrigError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _routes_of(self, name: str, routes: Routes) -> list[Route]:
        addresses: Mapping[str, str] = self.addresses
        return [
            Route(addresses[sink], addresses[hop.towards], self._netdevs[hop.port])
            for sink, hop in routes[name].items()
        ]
