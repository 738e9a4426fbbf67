"""Links between servers that are namespaces: real carrier and real packets.

Every port is a veth pair. One end is the server's netdev; the other, in the plant's
namespace, is where the fibers are: set up it is light at the port (carrier), and two of
them in one bridge are a link. A bridge of more is a packet switch, whose own ports are those
at the other ends. An agent process inside the plant's namespace does the work.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, NamedTuple

from instruments import kernel
from testbeds.errors import LightrigError

_END_SECONDS = 10.0


class KernelLinksError(LightrigError):
    """The kernel refused a link, or the agent in the plant's namespace has ended."""


@dataclass(frozen=True, slots=True)
class KernelPort:
    """A port of a server that is a namespace.

    `server_pid` is a process in the server's namespaces, `address` its IPv4 address with
    the prefix length ("192.0.2.1/24"), `rate_bps` the link's rate in bit/s in either
    direction, None for as fast as the machine.
    """

    server: str
    server_pid: int
    netdev: str
    address: str
    rate_bps: int | None = None

    @property
    def key(self) -> str:
        """What `KernelLinks.apply` calls this port: "server.netdev"."""
        return f"{self.server}.{self.netdev}"


class CarrierChange(NamedTuple):
    """The carrier of port `key` was moved; CLOCK_MONOTONIC in ns.

    `sent_ns` is just before the kernel was told, `done_ns` just after it acknowledged.
    """

    key: str
    up: bool
    sent_ns: int
    done_ns: int


class KernelLinks:
    """The links among `ports` and to packet `switches`, all dark and apart at first, until closed.

    `plant_pid` is a process in the namespace that stands for everything between the
    servers. Raises `KernelLinksError`, naming the port, when the kernel refuses one.
    """

    def __init__(
        self, plant_pid: int, ports: Sequence[KernelPort], switches: Sequence[str] = ()
    ) -> None:
        self._keys = frozenset(port.key for port in ports)
        self._switches = tuple(switches)
        if len(self._keys) != len(ports):
            raise KernelLinksError("two of the ports have the same server and netdev")
        self._turn = threading.Lock()
        agent = [sys.executable, "-m", "instruments.simulated.kernel_agent"]
        self._agent = subprocess.Popen(
            kernel.enter_command(plant_pid, agent),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            named = [asdict(port) | {"key": port.key} for port in ports]
            self._ask({"ports": named, "switches": self._switches})
        except KernelLinksError:
            self.close()
            raise

    def apply(
        self,
        lit: frozenset[str],
        joined: frozenset[frozenset[str]],
        switched: Mapping[str, frozenset[str]] | None = None,
    ) -> list[CarrierChange]:
        """Bring the kernel to this state; what is so already is left alone.

        `lit` are the keys of ports that have carrier, `joined` the pairs of ports that
        exchange packets while both are lit, `switched` the ports at each packet switch. Ports
        that must go dark do so first, then ports are parted and joined, then the others are
        lit. Returns the carriers that were moved, in the order they were.

        Raises `KernelLinksError` for a key that is no port, a switch that is none, a link that
        is not between two ports, a port in two links or at a switch besides, or a refusal by
        the kernel.
        """
        at = {name: sorted(keys) for name, keys in (switched or {}).items()}
        if strangers := at.keys() - set(self._switches):
            raise KernelLinksError(f"no such packet switch: {', '.join(sorted(strangers))}")
        ends = [key for keys in (*joined, *at.values()) for key in keys]
        if unknown := (lit | frozenset(ends)) - self._keys:
            raise KernelLinksError(f"no such port: {', '.join(sorted(unknown))}")
        if any(len(link) != 2 for link in joined) or len(set(ends)) != len(ends):
            raise KernelLinksError("a link joins two ports, and a port is in one link at most")
        links = sorted(sorted(link) for link in joined)
        wanted = {"lit": sorted(lit), "joined": links, "switched": at}
        return [CarrierChange(*row) for row in self._ask(wanted)]

    def close(self) -> None:
        """Take all links away and end the agent. May be called twice."""
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        self._agent.stdin.close()
        try:
            self._agent.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()
        self._agent.stdout.close()

    def __enter__(self) -> "KernelLinks":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> list[tuple[str, bool, int, int]]:
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        with self._turn:
            try:
                self._agent.stdin.write(json.dumps(request) + "\n")
                self._agent.stdin.flush()
                line = self._agent.stdout.readline()
            except (BrokenPipeError, ValueError):  # ValueError: closed by us
                line = ""
        if not line:
            raise KernelLinksError("the agent that moves the kernel's links has ended")
        reply = json.loads(line)
        if "error" in reply:
            raise KernelLinksError(reply["error"])
        changes: list[tuple[str, bool, int, int]] = reply["ok"]
        return changes
