"""Packets go through a server that forwards, and nothing is left of it afterwards."""

import contextlib
import sys
from collections.abc import Callable, Iterator

import pytest

from instruments import kernel
from instruments.clock import SystemClock
from instruments.errors import InstrumentError
from instruments.servers.commands import ToolFailedError, ToolMissingError
from instruments.servers.linux import LinuxServer
from instruments.servers.routes import Route, ServerRoutes
from instruments.simulated.kernel_links import KernelLinks
from instruments.wire.namespace import NamespaceShell

ADDRESS = {"a": "198.18.0.1", "b": "198.18.0.2", "c": "198.18.0.3"}
CHAIN = frozenset((frozenset(("a.fabric0", "b.fabric0")), frozenset(("b.fabric1", "c.fabric1"))))
LIT = frozenset(key for link in CHAIN for key in link)
CONNECT = (
    "import socket,sys\ns=socket.socket()\ns.settimeout(3)\n"
    "try: s.connect((sys.argv[1],9))\nexcept OSError as error: print(type(error).__name__)"
)
STATE = (
    "ls /sys/class/net; cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/rp_filter "
    "/proc/sys/net/ipv4/neigh/*/retrans_time_ms; cat /proc/net/route"
)


@pytest.fixture
def servers(namespaces: kernel.Namespaces, links: KernelLinks) -> Iterator[dict[str, LinuxServer]]:
    with contextlib.ExitStack() as stack:
        clock = SystemClock()
        made = {}
        for name in ADDRESS:
            server = LinuxServer(name, NamespaceShell(namespaces.pid(name)), clock, {})
            stack.callback(server.close)
            made[name] = server
        yield made


def test_a_server_in_between_passes_packets_on(
    servers: dict[str, LinuxServer],
    links: KernelLinks,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
) -> None:
    def state() -> list[str]:
        return [run(namespaces.pid(name), "sh", "-c", STATE) for name in servers]

    def reaches(address: str) -> str:
        return run(namespaces.pid("a"), sys.executable, "-c", CONNECT, address).strip()

    links.apply(LIT, CHAIN)
    before = state()
    a, b, c = ADDRESS.values()
    try:
        for name, server in servers.items():
            server.routes.open(ADDRESS[name], ["fabric0", "fabric1"])
        waiting = "/proc/sys/net/ipv4/neigh/fabric1/retrans_time_ms"
        assert run(namespaces.pid("a"), "cat", waiting).strip() in (
            "50",
            "52",
        )  # the kernel counts in ticks
        servers["b"].routes.set([Route(a, a, "fabric0"), Route(c, c, "fabric1")])
        servers["a"].routes.set([Route(b, b, "fabric0"), Route(c, b, "fabric0")])
        servers["c"].routes.set([Route(b, b, "fabric1"), Route(a, b, "fabric1")])
        # Who refuses has been reached.
        assert reaches(c) == "ConnectionRefusedError"
        servers["a"].routes.set([Route(b, b, "fabric0")])
        assert reaches(b) == "ConnectionRefusedError"
        assert reaches(c) in ("OSError", "TimeoutError")
    finally:
        for server in servers.values():
            server.routes.close()
    assert state() == before


def test_what_the_kernel_refuses_is_told_with_the_command(servers: dict[str, LinuxServer]) -> None:
    routes = servers["a"].routes
    routes.open(ADDRESS["a"], ["fabric0"])
    try:
        with pytest.raises(ToolFailedError, match="no_such"):
            routes.set([Route(ADDRESS["b"], ADDRESS["b"], "no_such")])
    finally:
        routes.close()
    with pytest.raises(InstrumentError):
        routes.open(ADDRESS["a"], ["no_such"])
    routes.close()


def test_a_server_without_ip_is_named(
    servers: dict[str, LinuxServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ServerRoutes._sh
    monkeypatch.setattr(ServerRoutes, "_sh", lambda self, *lines: whole(self, "exit 44", *lines))
    with pytest.raises(ToolMissingError, match="a has no program ip"):
        servers["a"].routes.open(ADDRESS["a"], [])
