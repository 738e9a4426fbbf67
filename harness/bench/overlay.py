"""An address for each server that the others reach over whatever circuits there are."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from harness.bench.bench import Bench
from harness.fabrics.routes import Routes, shortest_routes
from instruments.servers.linux import LinuxServer
from instruments.servers.routes import Route
from testbeds import LightrigError, Link

FIRST_ADDRESS = IPv4Address("198.18.0.1")
"""The first server's; the range is set aside for measurements (RFC 2544)."""


class NotRoutedError(LightrigError):
    """Traffic cannot be led through the servers of this bench."""


class Overlay:
    """Routes through the servers of a bench, which forward for each other.

    Every server gets an address of its own; `route` leads packets to it over the links of a
    plan, by the shortest way. All of it is taken away again by `close`.

    Raises:
        NotRoutedError: a server is simulated: there is no kernel in it that could forward.
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
        """Lead packets over `links`; returns the ways that were set.

        Raises `InstrumentError` where a server refuses.
        """
        ways = shortest_routes(list(self.servers), links)
        self.follow(ways)
        return ways

    def follow(self, ways: Routes) -> None:
        """Lead packets on `ways`; raises `InstrumentError` where a server refuses."""
        self._bench.clock.parallel(
            *(
                lambda server=server, name=name: server.routes.set(self._routes_of(name, ways))
                for name, server in self.servers.items()
            )
        )

    def close(self) -> None:
        """Take routes and addresses away, on all servers even if one refuses."""
        opened, self._opened = self._opened, []
        trouble: list[LightrigError] = []
        for server in opened:
            try:
                server.routes.close()
            except LightrigError as error:
                trouble.append(error)
        if trouble:
            raise trouble[0]

    def _routes_of(self, name: str, ways: Routes) -> list[Route]:
        addresses: Mapping[str, str] = self.addresses
        return [
            Route(addresses[sink], addresses[hop.towards], self._netdevs[hop.port])
            for sink, hop in ways[name].items()
        ]
