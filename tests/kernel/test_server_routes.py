"""Packets go through a server that forwards, and nothing is left of it afterwards."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.traffic.server_routes import (
    Route,
    ServerRoutes,
    close_all,
    kernel_settings,
)
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.commands import (
    CommandResult,
    Commands,
    Started,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks
from lightrig.instruments.wire.namespace import NamespaceShell

ADDRESS = {"a": "198.18.0.1", "b": "198.18.0.2", "c": "198.18.0.3"}
CHAIN = frozenset((frozenset(("a.fabric0", "b.fabric0")), frozenset(("b.fabric1", "c.fabric1"))))
LIT = frozenset(key for link in CHAIN for key in link)
CONNECT = (
    "import socket,sys\ns=socket.socket()\ns.settimeout(3)\n"
    "try: s.connect((sys.argv[1],9))\nexcept OSError as error: print(type(error).__name__)"
)
STATE = (
    "ls /sys/class/net; cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/rp_filter "
    "/proc/sys/net/ipv4/conf/*/arp_ignore /proc/sys/net/ipv4/conf/*/arp_filter "
    "/proc/sys/net/ipv4/conf/*/accept_redirects /proc/sys/net/ipv4/conf/*/forwarding "
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


@pytest.mark.long
def test_a_server_in_between_passes_packets_on(
    servers: dict[str, LinuxServer],
    links: KernelLinks,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
) -> None:
    def state() -> list[str]:
        return [run(namespaces.pid(name), "sh", "-c", STATE) for name in servers]

    def reaches(address: str) -> str:
        return run(namespaces.pid("a"), sys.executable, "-I", "-S", "-c", CONNECT, address).strip()

    routes = {name: ServerRoutes(server.commands) for name, server in servers.items()}
    links.apply(LIT, CHAIN)
    before = state()
    a, b, c = ADDRESS.values()
    try:
        for name in servers:
            routes[name].open(ADDRESS[name], ["fabric0", "fabric1"])
        waiting = "/proc/sys/net/ipv4/neigh/fabric1/retrans_time_ms"
        assert run(namespaces.pid("a"), "cat", waiting).strip() in (
            "50",
            "52",
        )  # the kernel counts in ticks
        routes["b"].set([Route(a, a, "fabric0"), Route(c, c, "fabric1")])
        routes["a"].set([Route(b, b, "fabric0"), Route(c, b, "fabric0")])
        routes["c"].set([Route(b, b, "fabric1"), Route(a, b, "fabric1")])
        # Who refuses has been reached.
        assert reaches(c) == "ConnectionRefusedError"
        routes["a"].set([Route(b, b, "fabric0")])
        assert reaches(b) == "ConnectionRefusedError"
        assert reaches(c) in ("OSError", "TimeoutError")
    finally:
        for each in routes.values():
            each.close()
    assert state() == before


MULTI_RAIL = {
    "all/arp_ignore": 1, "fabric0/arp_ignore": 2, "fabric1/arp_ignore": 2,
    "all/arp_announce": 2, "all/arp_filter": 1, "all/rp_filter": 1, "all/accept_redirects": 0,
}  # fmt: skip
"""Usual on servers with several ports in one subnet, so that each port speaks for itself alone."""


def test_packets_pass_servers_that_answer_for_a_port_alone(
    servers: dict[str, LinuxServer],
    links: KernelLinks,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
) -> None:
    folder = "/proc/sys/net/ipv4/conf"
    links.apply(LIT, CHAIN)
    found = {}
    for name in servers:
        pid = namespaces.pid(name)
        for setting, value in MULTI_RAIL.items():
            found[name, setting] = run(pid, "cat", f"{folder}/{setting}").strip()
            run(pid, "sh", "-c", f"echo {value} >{folder}/{setting}")
    before = [run(namespaces.pid(name), "sh", "-c", STATE) for name in servers]
    routes = {name: ServerRoutes(server.commands) for name, server in servers.items()}
    a, b, c = ADDRESS.values()
    try:
        for name in servers:
            routes[name].open(ADDRESS[name], ["fabric0", "fabric1"])
        routes["a"].set([Route(b, b, "fabric0"), Route(c, b, "fabric0")])
        routes["b"].set([Route(a, a, "fabric0"), Route(c, c, "fabric1")])
        routes["c"].set([Route(b, b, "fabric1"), Route(a, b, "fabric1")])
        for address in (b, c):
            printed = run(
                namespaces.pid("a"), sys.executable, "-I", "-S", "-c", CONNECT, address
            ).strip()
            assert printed == "ConnectionRefusedError"
    finally:
        close_all(routes.values())
        after = [run(namespaces.pid(name), "sh", "-c", STATE) for name in servers]
        for (name, setting), value in found.items():
            run(namespaces.pid(name), "sh", "-c", f"echo {value} >{folder}/{setting}")
    assert after == before


@pytest.mark.long
def test_each_address_is_routed_over_its_port(
    servers: dict[str, LinuxServer],
    links: KernelLinks,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
) -> None:
    """At a packet switch any port of a server could answer for another, and be sent its packets."""
    ports = frozenset(f"{name}.fabric{n}" for name in "ab" for n in (0, 1))
    links.apply(ports, frozenset(), {"eps": ports})
    lanes = {"a": ("198.19.0.1", "198.19.1.1"), "b": ("198.19.0.2", "198.19.1.2")}
    beside = {"a": ("192.0.2.1", "192.0.3.1"), "b": ("192.0.2.2", "192.0.3.2")}
    shell = "for n in 0 1; do cat /sys/class/net/fabric$n/address; done"
    before = run(namespaces.pid("a"), "sh", "-c", STATE)
    made = {name: ServerRoutes(servers[name].commands, ["lane0", "lane1"]) for name in "ab"}

    def lead(name: str, second: str) -> None:
        ways = zip(lanes[second], beside[second], ("fabric0", "fabric1"), lanes[name], strict=True)
        made[name].set([Route(*route) for route in ways])

    try:
        for name, second in ("ab", "ba"):
            settings = kernel_settings(["fabric0", "fabric1"], by_port=True)
            made[name].open(lanes[name][0], (), lanes[name][1], settings=settings)
            lead(name, second)
        for address in lanes["b"]:
            printed = run(
                namespaces.pid("a"), sys.executable, "-I", "-S", "-c", CONNECT, address
            ).strip()
            assert printed == "ConnectionRefusedError"
        neighbours = run(namespaces.pid("a"), "cat", "/proc/net/arp").splitlines()[1:]
        heard = {fields[0]: fields[3] for fields in map(str.split, neighbours)}
        macs = run(namespaces.pid("b"), "sh", "-c", shell).split()
        assert [heard[address] for address in beside["b"]] == macs
        # A port that goes down takes its routes along; they are set anew if one says so.
        run(namespaces.pid("a"), "ip", "link", "set", "fabric1", "down")
        run(namespaces.pid("a"), "ip", "link", "set", "fabric1", "up")
        made["a"].invalidate()
        lead("a", "b")
        printed = run(
            namespaces.pid("a"), sys.executable, "-I", "-S", "-c", CONNECT, lanes["b"][1]
        ).strip()
        assert printed == "ConnectionRefusedError"
    finally:
        for routes in made.values():
            routes.close()
    assert run(namespaces.pid("a"), "sh", "-c", STATE) == before


def test_present_lists_addresses_and_routes_until_they_are_closed(
    servers: dict[str, LinuxServer],
    links: KernelLinks,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
) -> None:
    links.apply(LIT, CHAIN)
    routes = ServerRoutes(servers["a"].commands)
    before = routes.present()
    assert any("inet 192.0.2.1/24" in line and "fabric0" in line for line in before)
    try:
        routes.open(ADDRESS["a"], ["fabric0"])
        routes.set([Route(ADDRESS["b"], ADDRESS["b"], "fabric0")])
        added = set(routes.present()) - set(before)
        assert any(f"inet {ADDRESS['a']}/32" in line for line in added)
        assert any(line.startswith(f"{ADDRESS['b']} dev fabric0") for line in added)
    finally:
        routes.close()
    assert routes.present() == before
    # The kernel removes routes over a port that goes down; all else is restored all the same.
    state = run(namespaces.pid("a"), "sh", "-c", STATE)
    routes.open(ADDRESS["a"], ["fabric0"])
    try:
        routes.set([Route(ADDRESS["b"], ADDRESS["b"], "fabric0")])
        run(namespaces.pid("a"), "ip", "link", "set", "fabric0", "down")
        run(namespaces.pid("a"), "ip", "link", "set", "fabric0", "up")
    finally:
        routes.close()
    assert run(namespaces.pid("a"), "sh", "-c", STATE) == state
    # An address of another program is listed whether its link is up or not.
    run(namespaces.pid("a"), "ip", "address", "add", "198.18.7.7/32", "dev", "fabric1")
    try:
        assert any("198.18.7.7/32" in line for line in routes.present())
    finally:
        run(namespaces.pid("a"), "ip", "address", "del", "198.18.7.7/32", "dev", "fabric1")
    assert routes.present() == before


def test_further_settings_are_restored(
    servers: dict[str, LinuxServer], namespaces: kernel.Namespaces, run: Callable[..., str]
) -> None:
    paths = ["/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_congestion_control"]
    routes = ServerRoutes(servers["a"].commands)
    before = run(namespaces.pid("a"), "cat", *paths).split()
    further = {"tcp_wmem": "4096 65536 65536", "tcp_congestion_control": "reno"}
    try:
        routes.open(ADDRESS["a"], (), settings=kernel_settings(["fabric0"], further=further))
        present = run(namespaces.pid("a"), "cat", *paths).split()
        assert present == ["4096", "65536", "65536", "reno"]
        assert present != before
    finally:
        routes.close()
    assert run(namespaces.pid("a"), "cat", *paths).split() == before


def test_one_ip_changes_all_routes_until_ports_went_down(
    servers: dict[str, LinuxServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    routes, started = ServerRoutes(servers["a"].commands), list[str]()
    whole = Commands.start

    def start(self: Commands, command: Sequence[str], limit_ns: int | None = None) -> Started:
        if "batch" in command[-1]:
            started.append(command[-1])
        return whole(self, command, limit_ns)

    monkeypatch.setattr(Commands, "start", start)
    routes.open(ADDRESS["a"], ["fabric0", "fabric1"])
    try:
        for netdev in ("fabric0", "fabric1"):
            routes.set([Route(ADDRESS["b"], ADDRESS["b"], netdev)])
            (line,) = (one for one in routes.present() if one.startswith(ADDRESS["b"]))
            assert netdev in line
        assert len(started) == 1
        routes.invalidate()
        routes.set([Route(ADDRESS["b"], ADDRESS["b"], "fabric0")])
        assert len(started) == 2
    finally:
        routes.close()


def test_a_refusal_of_the_kernel_names_the_command(servers: dict[str, LinuxServer]) -> None:
    routes = ServerRoutes(servers["a"].commands)
    routes.open(ADDRESS["a"], ["fabric0"])
    try:
        with pytest.raises(ToolFailedError, match="no_such"):
            routes.set([Route(ADDRESS["b"], ADDRESS["b"], "no_such")])
    finally:
        routes.close()
    with pytest.raises(InstrumentError):
        routes.open(ADDRESS["a"], ["no_such"])
    routes.close()


class Shell:
    """Runs commands of routes on no server: they are noted, and all end with `status`."""

    def __init__(self, server: str) -> None:
        self.server, self.status, self.scripts = server, 0, list[str]()
        self.ended = False

    def start(self, _: Sequence[str]) -> "Shell":
        return self

    def query(self, _: Sequence[str]) -> str:
        return "1: lo"

    def close(self) -> None:
        self.ended = True

    def run(self, command: Sequence[str]) -> CommandResult:
        self.scripts.append(command[-1])
        settings = "0\n" * command[-1].count("/proc/sys/")
        return CommandResult(settings, "Operation not permitted", self.status, Span(0, 0))


def test_a_server_without_ip_is_named() -> None:
    shell = Shell("a")
    shell.status = 44  # of the script where it finds no ip
    with pytest.raises(ToolMissingError, match="a has no program ip"):
        ServerRoutes(shell).open(ADDRESS["a"], [])  # type: ignore[arg-type]


def test_routes_are_closed_on_all_servers_though_one_refuses() -> None:
    shells = [Shell(name) for name in "abc"]
    opened = [ServerRoutes(shell) for shell in shells]  # type: ignore[arg-type]
    for routes in opened:
        routes.open("198.18.0.1", ["fabric0"])
        routes.set([Route("198.18.0.2", "198.18.0.2", "fabric0")])
    for shell in shells:
        shell.status, shell.scripts = 2 * (shell.server != "b"), []
    with pytest.raises(ToolFailedError) as caught:
        close_all(opened)
    assert caught.value.instrument == "a"
    # Routes, devices and settings in one command: five seconds are left after a signal.
    assert [len(shell.scripts) for shell in shells] == [1, 1, 1]
    lines = shells[1].scripts[0].splitlines()
    assert lines.index("route flush to exact 198.18.0.2/32") < lines.index("END")
    assert "ip link del lightrig0" in shells[1].scripts[0]
    assert all(shell.ended for shell in shells)
