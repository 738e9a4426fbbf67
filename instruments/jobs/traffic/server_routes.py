"""Addresses of a server, and its routes to other servers over its NIC ports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lightrig.instruments.servers.host.commands import (
    Commands,
    Started,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.testbeds import LightrigError

DEVICE = "lightrig0"
"""The device with a server's address: a bridge without ports, which is up without any link."""

_NO_IP = 44
_PATH = "PATH=$PATH:/usr/sbin:/sbin"
_ARP_RETRANS_MS = 50


def kernel_settings(
    netdevs: Sequence[str], *, by_port: bool = False, further: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings of a server that forwards, by their path under /proc/sys.

    Of the settings of ARP and of rp_filter the greater value of `all` and of the port holds
    (Documentation/networking/ip-sysctl.rst), so both are set.

    Args:
        netdevs: its ports.
        by_port: whether a port replies to ARP only for its address, not for all of the server's.
        further: other settings by their path under /proc/sys/net/ipv4.
    """
    # The kernel sets accept_redirects with ip_forward, and does not put it back.
    settings = {"ip_forward": 1, "conf/all/accept_redirects": 0, "conf/all/rp_filter": 0}
    # Next hops have addresses of devices without links, for which any port replies.
    settings |= {"conf/all/arp_ignore": int(by_port), "conf/all/arp_filter": 0}
    for netdev in netdevs:
        settings |= {f"conf/{netdev}/{name}": 0 for name in ("arp_ignore", "arp_filter")}
        # Routing is asymmetric: packets may come in by another port than replies go out.
        settings[f"conf/{netdev}/rp_filter"] = 0
        # An ARP request that was lost while circuits moved is repeated after this time. With the
        # kernel's default of 1 s it made up most of the outage of a reconfiguration.
        settings[f"neigh/{netdev}/retrans_time_ms"] = _ARP_RETRANS_MS
    texts = {name: str(value) for name, value in settings.items()} | dict(further or {})
    return {f"/proc/sys/net/ipv4/{name}": text for name, text in texts.items()}


class Route(NamedTuple):
    """One route: packets for the address `to` leave by `netdev` for the next hop `via`.

    `via` is the server address of the neighbour, which replies to ARP on all its ports; where
    several of its ports receive the request, `via` is the address of a port, and each port replies
    only for its address. `source` is the source address of packets, None for the server's first.
    """

    to: str
    via: str
    netdev: str
    source: str | None = None


class ServerRoutes:
    """Sets addresses and routes on one server, with the program ip, and removes them again.

    One ip stays there for all changes of routes: on a server whose processors are busy, its start
    takes far longer than the changes.

    It creates devices with addresses and routes, and changes kernel settings, which it restores:
    forwarding, redirects, reverse-path filtering, which ports reply to ARP, ARP retransmission
    time, and what a caller adds. It needs root.

    Args:
        commands: runs programs on the server.
        devices: names of the devices, one per address.
    """

    def __init__(self, commands: Commands, devices: Sequence[str] = (DEVICE,)) -> None:
        self._commands = commands
        self._devices = devices
        self._addresses: Sequence[str] = ()
        self._found: Mapping[str, str] = {}
        self._routes: dict[str, Route] = {}
        self._ip: Started | None = None

    def open(
        self,
        address: str,
        netdevs: Sequence[str],
        *more: str,
        settings: Mapping[str, str] | None = None,
        found: Mapping[str, str] | None = None,
    ) -> None:
        """Create a device per address, `address` and `more`, and enable forwarding.

        settings: by path, those of `kernel_settings` for `netdevs` unless stated.
        found: by path, what `close` restores instead of what is there now.

        Raises:
            ToolMissingError: the server has no program ip.
            ToolFailedError: the kernel refused; root may be required.
        """
        values = kernel_settings(netdevs) if settings is None else settings
        present = self._sh("cat " + " ".join(values)).splitlines()
        self._found = {**dict(zip(values, present, strict=True)), **(found or {})}
        self._addresses = (address, *more)
        self._sh(
            *(
                line
                for name, each in zip(self._devices, self._addresses, strict=True)
                for line in _device_lines(name, each)
            ),
            *(f"echo {value} >{path}" for path, value in values.items()),
        )

    def set(self, routes: Sequence[Route]) -> None:
        """Replace the routes that were set here by `routes`."""
        wanted = {route.to: route for route in routes}
        lines = _removing(self._routes.keys() - wanted.keys())
        lines += [
            self._line(route) for to, route in wanted.items() if self._routes.get(to) != route
        ]
        if lines:
            self._change(lines)
        self._routes = wanted

    def present(self) -> list[str]:
        """Return all addresses and routes of the server, sorted, whether their links are up or not.

        Raises what `open` does.
        """
        listed = self._sh("ip -o -4 address show", "ip -4 route show table all")
        return sorted(line.replace(" linkdown", "").strip() for line in listed.splitlines())

    def invalidate(self) -> None:
        """Drop the list of present routes: the kernel removes routes over a port that goes down.

        A device of the same name may be another one by now, whose number ip does not know.
        """
        self._routes = {}
        self._end_ip()

    def close(self) -> None:
        """Remove addresses and routes and restore the settings."""
        self._end_ip()
        if not self._addresses:
            return
        self._sh(
            *self._batch(_removing(self._routes)),
            *(
                f"if ip link show {name} >/dev/null 2>&1; then ip link del {name}; fi"
                for name in self._devices
            ),
            *(f"echo {text} >{path}" for path, text in self._found.items()),
        )
        self._addresses, self._routes = (), {}

    def _change(self, lines: Sequence[str]) -> None:
        """Let ip carry out lines; the first failure ends it, and is raised."""
        if self._ip is None:
            self._ip = self._commands.start(["sh", "-c", f"{_PATH}; exec ip -o -batch -"])
        try:
            # Only the last line is answered, with the one link that every server has.
            self._ip.query([*lines, "link show dev lo"])
        except LightrigError:
            self._end_ip()
            raise

    def _end_ip(self) -> None:
        ip, self._ip = self._ip, None
        if ip is not None:
            ip.close()

    @staticmethod
    def _batch(lines: Sequence[str]) -> Sequence[str]:
        """Return shell lines that give `lines` to one `ip`."""
        return ("ip -batch - <<END", *lines, "END") if lines else ()

    def _line(self, route: Route) -> str:
        hop = "" if route.via == route.to else f"via {route.via} onlink "
        source = route.source or self._addresses[0]
        return f"route replace {route.to}/32 {hop}dev {route.netdev} src {source}"

    def _sh(self, *lines: str) -> str:
        """Run shell lines; the first failure ends them."""
        script = "\n".join((_PATH, f"command -v ip >/dev/null || exit {_NO_IP}", *lines))
        command = ["sh", "-ec", script]
        result = self._commands.run(command)
        if result.status == _NO_IP:
            raise ToolMissingError(self._commands.server, "ip", script)
        if result.status != 0:
            raise ToolFailedError(self._commands.server, result, script)
        return result.stdout


def _removing(addresses: Iterable[str]) -> list[str]:
    """Return lines for ip that remove routes, unless the kernel has: a port that goes down does."""
    return [f"route flush to exact {to}/32" for to in addresses]


def close_all(opened: Iterable[ServerRoutes]) -> None:
    """Close the routes of all servers even if one refuses; raise the first error."""
    errors: list[LightrigError] = []
    for routes in opened:
        try:
            routes.close()
        except LightrigError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _device_lines(name: str, address: str) -> Sequence[str]:
    """Return shell lines that create a device with an address."""
    return (
        f"ip link show {name} >/dev/null 2>&1 || ip link add {name} type bridge",
        f"ip address replace {address}/32 dev {name}",
        f"ip link set {name} up",
    )
