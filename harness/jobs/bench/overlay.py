"""An overlay network: an address per server that is reachable over the present circuits."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.server_settings import SavedServers
from lightrig.harness.jobs.planning.routes import Routes, shortest_routes
from lightrig.instruments.jobs.traffic.server_routes import (
    DEVICE,
    Route,
    ServerRoutes,
    kernel_settings,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Link

FIRST_ADDRESS = IPv4Address("198.18.0.1")
"""Address of the first server; the range is reserved for benchmarks (RFC 2544)."""

_APART = 256
"""Distance between the addresses of a server."""


class NotRoutedError(LightrigError):
    """The servers of this bench cannot forward traffic."""


class Overlay:
    """Routes over the servers of a bench, which forward packets for each other.

    Every server gets an address; `route` sets shortest paths to it over the links of a plan. A
    circuit connects few servers directly, and collectives connect all of them. `close` removes
    addresses and routes.

    Args:
        bench: whose servers forward.
        devices: of each server, one an address; `follow` leads each address its own way.
        settings: kernel settings of each server, by their path under /proc/sys/net/ipv4, where
            `{netdev}` stands for each of its devices.

    Raises:
        NotRoutedError: a server is simulated, without a kernel that could forward.
        InstrumentError: a server refused.
    """

    def __init__(
        self,
        bench: Bench,
        devices: Sequence[str] = (DEVICE,),
        settings: Mapping[str, str] | None = None,
    ) -> None:
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
        self.devices = devices
        self._addresses = {
            name: [str(FIRST_ADDRESS + _APART * place + n) for place in range(len(devices))]
            for n, name in enumerate(bench.servers)
        }
        self.addresses = {name: first for name, (first, *_) in self._addresses.items()}
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.nic_ports}
        self._opened: dict[str, ServerRoutes] = {}
        wanted = {name: self._settings_of(name, settings or {}) for name in self.servers}
        self._saved = SavedServers(bench, wanted, devices)
        self._saved.save_initial_state()
        try:
            for name, server in self.servers.items():
                routes = self._opened[name] = ServerRoutes(server.commands, devices)
                first, *more = self._addresses[name]
                found = self._saved.before_change(name)
                routes.open(first, (), *more, settings=wanted[name], found=found)
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

    def follow(self, *routes: Routes) -> None:
        """Set the routes to the addresses of each device, or one for all of them.

        Raises `InstrumentError` if a server refuses.
        """
        of_device = routes if len(routes) > 1 else routes * len(self.devices)
        self._bench.clock.parallel(
            *(
                partial(set_on.set, self._routes_of(n, of_device))
                for n, set_on in self._opened.items()
            )
        )

    def close(self) -> None:
        """Remove routes and addresses, on all servers even if one refuses."""
        opened, self._opened = self._opened, {}
        self._bench.clock.parallel(*(routes.close for routes in opened.values()))
        self._saved.forget()

    def _settings_of(self, name: str, further: Mapping[str, str]) -> dict[str, str]:
        netdevs = [d for port, d in self._netdevs.items() if port.owner == name]
        more = {
            path.format(netdev=netdev): value
            for path, value in further.items()
            for netdev in netdevs
        }
        return kernel_settings(netdevs, further=more)

    def _routes_of(self, name: str, of_device: Sequence[Routes]) -> list[Route]:
        addresses = self._addresses
        return [
            Route(
                addresses[sink][place],
                addresses[hop.towards][place],
                self._netdevs[hop.port],
                addresses[name][place],
            )
            for place, routes in enumerate(of_device)
            for sink, hop in routes[name].items()
        ]
