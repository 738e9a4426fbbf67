"""Links between servers that are namespaces: real carrier and real packets.

Every port is a veth pair. One end is the server's netdev; the other, in the plant's namespace,
is the fiber's end: set up, it gives the port light (carrier), and two of them in one bridge are
a link. A bridge of more is a packet switch, whose ports are those at the other ends. An agent
process inside the plant's namespace makes and switches them.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.agent_process import AgentError, AgentProcess
from lightrig.testbeds.errors import LightrigError


class KernelLinksError(LightrigError):
    """Raised when the kernel refuses a link, or the agent in the plant's namespace has ended."""


@dataclass(frozen=True, slots=True)
class KernelPort:
    """A port of a server that is a namespace, or of one behind an interface that exists.

    `server_pid` is a process in the server's namespaces, `address` its IPv4 address with
    the prefix length ("192.0.2.1/24"), `rate_bps` the link's rate in bit/s in either
    direction, None for as fast as the machine.

    `interface` is an interface of this process's network, such as the tap of a virtual machine.
    It is moved into the plant's namespace, where it is the fiber's end, and is moved back by
    `KernelLinks.close`, or when this process has ended; `server_pid` is None and the other fields
    but `server` and `netdev` mean nothing then.
    """

    server: str
    server_pid: int | None
    netdev: str
    address: str
    rate_bps: int | None = None
    interface: str | None = None

    @property
    def key(self) -> str:
        """Name of this port in `KernelLinks.apply`: "server.netdev"."""
        return f"{self.server}.{self.netdev}"


class CarrierChange(NamedTuple):
    """A change of the carrier of port `key`; CLOCK_MONOTONIC in ns.

    `sent_ns` is just before the request to the kernel, `done_ns` just after its reply.
    """

    key: str
    up: bool
    sent_ns: int
    done_ns: int


class PortReady(NamedTuple):
    """A side of port `key` has become ready for packets; CLOCK_MONOTONIC in ns.

    The side `bridge` passes packets in both directions, the side `server` sends them. At
    `not_yet_ns` it was not ready, or was just being switched, and at `since_ns` it was.
    """

    key: str
    side: str
    not_yet_ns: int
    since_ns: int


class Applied(NamedTuple):
    """Effects of a new state of the links, which were switched between the two stamps `at`."""

    changes: list[CarrierChange]
    ready: list[PortReady]
    at: tuple[int, int]


class KernelLinks(AgentProcess):
    """The links among `ports` and to packet `switches`, until closed; at first there are none.

    `plant_pid` is a process in the namespace that stands for everything between the servers.
    Interfaces that exist are refused where they are in use: they have an address, or are in a
    bridge or bond.
    Raises `KernelLinksError`, naming the port, when the kernel refuses one.
    """

    def __init__(
        self, plant_pid: int, ports: Sequence[KernelPort], switches: Sequence[str] = ()
    ) -> None:
        self._keys = frozenset(port.key for port in ports)
        self._switches = tuple(switches)
        self.plant_pid = plant_pid
        if len(self._keys) != len(ports):
            raise KernelLinksError("two of the ports have the same server and netdev")
        agent = [sys.executable, "-m", "lightrig.instruments.simulated.namespaces.kernel_agent"]
        super().__init__(
            kernel.enter_command(plant_pid, agent), "the agent that switches the kernel's links"
        )
        try:
            described = [asdict(port) | {"key": port.key} for port in ports]
            self._switch({"ports": described, "switches": self._switches, "home_pid": os.getpid()})
        except KernelLinksError:
            self.close()
            raise

    @property
    def keys(self) -> frozenset[str]:
        """Keys of all ports."""
        return self._keys

    def apply(
        self,
        lit: frozenset[str],
        joined: frozenset[frozenset[str]],
        switched: Mapping[str, frozenset[str]] | None = None,
    ) -> Applied:
        """Bring the kernel to this state; ports that are in it already are not touched.

        `lit` are the keys of ports that have carrier, `joined` the pairs of ports that
        exchange packets while both are lit, `switched` the ports at each packet switch. Ports
        that must go dark do so first, then links are taken apart and made, then the other ports
        are lit. Returns the changes of carrier, in their order, once packets pass.

        Raises `KernelLinksError` for an unknown port or switch, a link that is not between two
        ports, a port in two links or in a link and at a switch, or a refusal by the kernel.
        """
        at = {name: sorted(keys) for name, keys in (switched or {}).items()}
        if unknown_switches := at.keys() - set(self._switches):
            raise KernelLinksError(f"no such packet switch: {', '.join(sorted(unknown_switches))}")
        ends = [key for keys in (*joined, *at.values()) for key in keys]
        if unknown := (lit | frozenset(ends)) - self._keys:
            raise KernelLinksError(f"no such port: {', '.join(sorted(unknown))}")
        if any(len(link) != 2 for link in joined) or len(set(ends)) != len(ends):
            raise KernelLinksError("a link joins two ports, and a port is in one link at most")
        links = sorted(sorted(link) for link in joined)
        wanted = {"lit": sorted(lit), "joined": links, "switched": at}
        return self._switch(wanted)

    def _switch(self, request: dict[str, object]) -> Applied:
        try:
            done = self.request(request)["ok"]
        except AgentError as error:
            raise KernelLinksError(str(error)) from error
        return Applied(
            [CarrierChange(*row) for row in done["changes"]],
            [PortReady(*row) for row in done["ready"]],
            (done["at"][0], done["at"][1]),
        )
