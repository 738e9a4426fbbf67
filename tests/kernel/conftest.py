"""Servers that are namespaces, links among them, and probes on them."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.linux import PROBE
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks, KernelPort

SERVERS = ("a", "b", "c")
NETDEVS = ("fabric0", "fabric1")


class Probe:
    """The least that can talk to a probe."""

    def __init__(self, prefix: Callable[[list[str]], list[str]] = list) -> None:
        argv = prefix([sys.executable, "-u", "-c", PROBE.bootstrap, "lightrig-probe", "1"])
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.write(PROBE.packed().encode() + b"\n")
        self.number = 0

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def send(self, do: str, **fields: Any) -> int:
        self.number += 1
        self.write(json.dumps({"id": self.number, "do": do, **fields}).encode() + b"\n")
        return self.number

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def ask(self, do: str, **fields: Any) -> Any:
        number = self.send(do, **fields)
        reply = self.read()
        assert reply["id"] == number
        received, sent = reply["at"]
        assert received <= sent
        return reply["ok"]

    def refusal(self, do: str, **fields: Any) -> str:
        self.send(do, **fields)
        kind: str = self.read()["error"]["kind"]
        return kind

    def watch(self, *ports: str, datagrams: bool = False) -> Any:
        return self.ask(
            "watch",
            ports={port: {"rdma": None} for port in ports},
            period_ns=100_000,
            datagrams={"udp_port": 47000, "period_ns": 1_000_000} if datagrams else None,
        )

    def drain(self) -> Any:
        return self.ask("settle", ports={}, timeout_ns=0)

    def await_event(self, wanted: Callable[[list[Any]], bool]) -> tuple[list[Any], list[Any]]:
        """Drain until an event is wanted: that event, and all that came."""
        events: list[Any] = []
        for _ in range(5_000):
            events += self.drain()["events"]
            found = [event for event in events if wanted(event)]
            if found:
                return found[0], events
        raise AssertionError(f"it never came; there were {events}")

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        status = self.process.wait(60)
        self.process.stdout.close()
        return status


@pytest.fixture(scope="session", name="possible")
def _possible() -> None:
    reason = kernel.available()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def namespaces(possible: None) -> Iterator[kernel.Namespaces]:
    with kernel.Namespaces([*SERVERS, "plant"]) as spaces:
        yield spaces


@pytest.fixture(scope="module")
def _links(namespaces: kernel.Namespaces) -> Iterator[KernelLinks]:
    ports = [
        KernelPort(server, namespaces.pid(server), netdev, f"192.0.{subnet}.{host}/24")
        for host, server in enumerate(SERVERS, 1)
        for subnet, netdev in enumerate(NETDEVS, 2)
    ]
    with KernelLinks(namespaces.pid("plant"), ports, ["eps"]) as made:
        yield made


@pytest.fixture
def links(_links: KernelLinks) -> KernelLinks:
    """The links of all servers, and to a packet switch, dark and apart."""
    _links.apply(frozenset(), frozenset())
    return _links


@pytest.fixture
def brief_links(possible: None) -> Iterator[tuple[kernel.Namespaces, KernelLinks]]:
    """One port of one server, in namespaces of its own, for a test that ends it."""
    with kernel.Namespaces(["a", "plant"]) as spaces:
        port = KernelPort("a", spaces.pid("a"), "fabric0", "192.0.2.1/24", rate_bps=200_000_000)
        with KernelLinks(spaces.pid("plant"), [port]) as made:
            yield spaces, made


@pytest.fixture
def start_probe(request: pytest.FixtureRequest) -> Iterator[Callable[..., Probe]]:
    """Start a probe on the server called so."""
    with contextlib.ExitStack() as stack:

        def start(server: str, spaces: kernel.Namespaces | None = None) -> Probe:
            if spaces is None:
                spaces = request.getfixturevalue("namespaces")
            pid = spaces.pid(server)
            probe = Probe(lambda argv: kernel.enter_command(pid, argv))
            stack.callback(probe.close)
            return probe

        yield start


@pytest.fixture
def lone_probe() -> Iterator[Probe]:
    """A probe on this machine itself, that is asked nothing about its links."""
    probe = Probe()
    yield probe
    probe.close()


def run_in(pid: int, *argv: str) -> str:
    """Return the output of a command in the namespaces of `pid`."""
    command = kernel.enter_command(pid, argv)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def carrier(namespaces: kernel.Namespaces) -> Callable[[str, str], bool]:
    """Whether a server's port has carrier, by sysfs."""

    def read(server: str, netdev: str) -> bool:
        return run_in(namespaces.pid(server), "cat", f"/sys/class/net/{netdev}/carrier") == "1\n"

    return read


@pytest.fixture
def run() -> Callable[..., str]:
    return run_in
