"""Several addresses for each server of a bench, each led its own way over the NIC ports."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from ipaddress import IPv4Address

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.server_settings import SavedServers
from lightrig.harness.jobs.bench.overlay import NotRoutedError
from lightrig.harness.jobs.planning.routes import LaneRoutes
from lightrig.instruments.jobs.traffic.server_routes import (
    Route,
    ServerRoutes,
    close_all,
    kernel_settings,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Port

FIRST_ADDRESS = IPv4Address("198.19.0.1")
"""The first server's on the first lane; beside the overlay's, in the range for measurements."""

_APART = 256
"""Distance between the addresses of two lanes."""


class Lanes:
    """`count` addresses for each server, so that its parallel NIC ports can be used side by side.

    `route` leads packets by the ports that a fabric chose. All of it is taken away by `close`.

    Args:
        bench: whose servers are namespaces.
        count: number of lanes.
        settings: further kernel settings of the servers, by their path under /proc/sys/net/ipv4.

    Raises:
        NotRoutedError: a server is no namespace, or a port has no address.
        InstrumentError: a server refused.
    """

    def __init__(self, bench: Bench, count: int, settings: Mapping[str, str] | None = None) -> None:
        servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
        ports = bench.testbed.nic_ports
        strange = [n for n, s in bench.testbed.servers.items() if not s.is_namespace]
        strange += [str(spec.port) for spec in ports if spec.ip is None]
        if strange:
            raise NotRoutedError(
                f"{', '.join(strange)} of {bench.testbed.path}: lanes need servers that are "
                "namespaces and an address of each NIC port"
            )
        self._bench = bench
        self.count = count
        self.servers = servers
        self.devices = [f"lane{number}" for number in range(count)]
        self.addresses: Mapping[str, list[str]] = {
            name: [str(_address(place, lane)) for lane in range(count)]
            for place, name in enumerate(bench.servers)
        }
        self._netdevs = {spec.port: spec.netdev for spec in ports}
        self._ips = {spec.port: str(spec.ip).partition("/")[0] for spec in ports}
        self._opened: dict[str, ServerRoutes] = {}
        wanted = {
            name: kernel_settings(
                [d for port, d in self._netdevs.items() if port.owner == name],
                by_port=True,
                further=settings,
            )
            for name in servers
        }
        self._saved = SavedServers(bench, wanted, self.devices)
        self._saved.save_initial_state()
        try:
            for name, server in servers.items():
                routes = self._opened[name] = ServerRoutes(server.commands, self.devices)
                first, *further = self.addresses[name]
                found = self._saved.before_change(name)
                routes.open(first, (), *further, settings=wanted[name], found=found)
        except LightrigError:
            self.close()
            raise

    def route(self, ways: LaneRoutes) -> None:
        """Lead each lane's packets by these hops from now on, and nowhere else.

        A server from which nothing leads anywhere is left alone: it does not work. Raises
        `InstrumentError` where a server refuses.
        """
        wanted = {name: self._routes_of(name, ways) for name in self._opened}
        self._bench.clock.parallel(
            *(partial(self._opened[name].set, routes) for name, routes in wanted.items() if routes)
        )

    def forget(self, server: str) -> None:
        """Set all routes of `server` anew next time: ports of it went down and took some along."""
        self._opened[server].invalidate()

    def ask_each(
        self, what: Callable[[LinuxServer, Sequence[str]], Set[str]], ports: Iterable[Port]
    ) -> frozenset[Port]:
        """Query the servers of `ports` in parallel, each for its own; return the ports named."""
        asked: defaultdict[str, dict[str, Port]] = defaultdict(dict)
        for port in ports:
            asked[port.owner][self._netdevs[port]] = port
        answers = self._bench.clock.parallel(
            *(partial(what, self.servers[name], list(netdevs)) for name, netdevs in asked.items())
        )
        pairs = zip(asked.values(), answers, strict=True)
        return frozenset(netdevs[netdev] for netdevs, found in pairs for netdev in found)

    def dark(self, ports: Iterable[Port]) -> frozenset[Port]:
        """Return the NIC ports of `ports` that have no carrier now."""
        ports = frozenset(ports)
        return ports - self.ask_each(LinuxServer.lit, ports)

    def close(self) -> None:
        """Take routes and addresses away, on all servers even if one refuses."""
        opened, self._opened = self._opened, {}
        close_all(opened.values())
        self._saved.forget()

    def _routes_of(self, name: str, ways: LaneRoutes) -> list[Route]:
        return [
            Route(
                self.addresses[sink][lane],
                self._ips[hop.towards],
                self._netdevs[hop.port],
                self.addresses[name][lane],
            )
            for lane, hops in enumerate(ways)
            for (source, sink), hop in hops.items()
            if source == name
        ]


def _address(place: int, lane: int) -> IPv4Address:
    return FIRST_ADDRESS + _APART * lane + place
