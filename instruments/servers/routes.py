"""Addresses of a server's own, and routes to those of others over its NIC ports."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from instruments.servers.commands import Commands, ToolFailedError, ToolMissingError

DEVICE = "lightrig0"
"""The device that holds a server's own address: a bridge without ports, up whatever links do."""

_NO_IP = 44
_ASK_AGAIN_MS = 50


def _settings(netdevs: Sequence[str], *, by_port: bool) -> dict[str, int]:
    """What is set under /proc/sys/net/ipv4 on a server that forwards."""
    settings = {"ip_forward": 1, "conf/all/rp_filter": 0}
    if by_port:
        settings["conf/all/arp_ignore"] = 1
    for netdev in netdevs:
        # Packets may come by another port than the one that answers leave by.
        settings[f"conf/{netdev}/rp_filter"] = 0
        # A neighbour that was asked for while circuits moved is asked for again only after this;
        # a second, the kernel's own value, was most of what traffic lost to a reconfiguration.
        settings[f"neigh/{netdev}/retrans_time_ms"] = _ASK_AGAIN_MS
    return settings


class Route(NamedTuple):
    """One way: packets for the address `to` leave by `netdev` for the neighbour's address `via`.

    The neighbour's address is its own one: it answers on all its ports. Where several of these
    may hear the question, it is that of a port, and each port answers for itself alone. `own` is
    the server's address that its packets come from, None for its first.
    """

    to: str
    via: str
    netdev: str
    own: str | None = None


class ServerRoutes:
    """Sets routes on one server, with the program ip, and takes them away again.

    Nothing but devices of its own, their addresses, routes to the addresses given, forwarding,
    reverse-path filtering, which port answers for an address and how soon neighbours are asked
    for again is changed, and these four are put back. It needs root there.

    Args:
        commands: run there.
        devices: the names of those devices, one an address.
    """

    def __init__(self, commands: Commands, devices: Sequence[str] = (DEVICE,)) -> None:
        self._commands = commands
        self._devices = devices
        self._addresses: Sequence[str] = ()
        self._found: Mapping[str, str] = {}
        self._routes: dict[str, Route] = {}

    def open(
        self, address: str, netdevs: Sequence[str], *others: str, by_port: bool = False
    ) -> None:
        """Give the server `address`, and `others` on devices of their own, and let it forward.

        by_port: whether a port answers for its own address alone, not for all of the server's.

        Raises:
            ToolMissingError: the server has no program ip.
            ToolFailedError: it refused; it may need to be root.
        """
        settings = _settings(netdevs, by_port=by_port)
        paths = [f"/proc/sys/net/ipv4/{name}" for name in settings]
        found = self._sh("cat " + " ".join(paths)).split()
        self._found = dict(zip(paths, found, strict=True))
        self._addresses = (address, *others)
        self._sh(
            *(
                line
                for own in zip(self._devices, self._addresses, strict=True)
                for line in _own(*own)
            ),
            *(
                f"echo {value} >{path}"
                for path, value in zip(paths, settings.values(), strict=True)
            ),
        )

    def set(self, routes: Sequence[Route]) -> None:
        """From now on have these routes and no others of those that were set here."""
        wanted = {route.to: route for route in routes}
        lines = [f"route del {to}/32" for to in self._routes.keys() - wanted.keys()]
        lines += [
            self._line(route) for to, route in wanted.items() if self._routes.get(to) != route
        ]
        if lines:
            self._sh("ip -batch - <<END", *lines, "END")
        self._routes = wanted

    def forget(self) -> None:
        """Take the routes for gone: a port that goes down takes those over it along."""
        self._routes = {}

    def close(self) -> None:
        """Take everything away again and put back what was found."""
        if not self._addresses:
            return
        self.set(())
        self._sh(
            *(
                f"if ip link show {name} >/dev/null 2>&1; then ip link del {name}; fi"
                for name in self._devices
            ),
            *(f"echo {text} >{path}" for path, text in self._found.items()),
        )
        self._addresses = ()

    def _line(self, route: Route) -> str:
        way = "" if route.via == route.to else f"via {route.via} onlink "
        own = route.own or self._addresses[0]
        return f"route replace {route.to}/32 {way}dev {route.netdev} src {own}"

    def _sh(self, *lines: str) -> str:
        """Run shell lines until one fails."""
        path = "PATH=$PATH:/usr/sbin:/sbin"
        script = "\n".join((path, f"command -v ip >/dev/null || exit {_NO_IP}", *lines))
        command = ["sh", "-ec", script]
        result = self._commands.run(command)
        if result.status == _NO_IP:
            raise ToolMissingError(self._commands.server, "ip", script)
        if result.status != 0:
            raise ToolFailedError(self._commands.server, result, script)
        return result.stdout


def _own(name: str, address: str) -> Sequence[str]:
    """Lines that give the server an address on a device of its own."""
    return (
        f"ip link show {name} >/dev/null 2>&1 || ip link add {name} type bridge",
        f"ip address replace {address}/32 dev {name}",
        f"ip link set {name} up",
    )
