"""What a thing on the bench can do: protocols, no code.

Measurements and the bench know these and never a driver. Power is in dBm, time in
integer nanoseconds of the bench's clock unless a name says otherwise.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from instruments.clock import Span
from testbeds import Circuit


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answered: what an instrument says of itself."""

    manufacturer: str
    model: str
    serial: str
    firmware: str

    @property
    def simulated(self) -> bool:
        """Whether the instrument declares itself simulated, by a serial starting with SIM."""
        return self.serial.upper().startswith("SIM")

    def __str__(self) -> str:
        return f"{self.manufacturer} {self.model}, serial {self.serial}, firmware {self.firmware}"


class Identified(Protocol):
    """Anything that can say what it is."""

    @property
    def name(self) -> str:
        """Its name in the testbed."""

    def identity(self) -> Identity:
        """Ask it who it is."""

    def wire(self) -> Sequence[str]:
        """The last lines that went over its wire, oldest first, secrets masked."""

    def close(self) -> None:
        """End every session with it."""


class Operation(Protocol):
    """A command that was sent and whose end can be waited for."""

    @property
    def sent(self) -> Span:
        """Between which stamps the command was written."""

    def done(self) -> Span:
        """Wait until the instrument has acknowledged; when that was."""


@dataclass(frozen=True, slots=True)
class PowerReading:
    """One reading of optical power at several ports, all in one sample.

    Attributes:
        asked: when the reading was requested; it was not taken before.
        answered: when the answer was there; it was not taken after.
        window: over how many ns before the sample the instrument averages.
        dbm: power by port.
    """

    asked: int
    answered: int
    window: int
    dbm: Mapping[int, float]


class OpticalSwitch(Identified, Protocol):
    """A switch of light from ingress ports to egress ports."""

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Start taking down `remove` and making `add`, in as few commands as the switch can.

        Returns at once; `Operation.done` raises what the switch objects to.
        """


class PowerMonitor(Protocol):
    """Optical power at the ports of a switch, or at the heads of a meter."""

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Power at `ports`, averaged over the instrument's own window."""


Stage = Literal["firmware", "carrier", "datagram"]
"""How far a NIC port's link has come: locked by the firmware, carrier in the kernel, in use."""


class LinkEvent(NamedTuple):
    """A NIC port's link went up or down.

    Attributes:
        port: the port's netdev on its server.
        stage: which of the link's states changed.
        up: its new state.
        at: when, on the bench's clock.
        source: who observed it: `sysfs`, `netlink` or `udp`.
    """

    port: str
    stage: Stage
    up: bool
    at: Span
    source: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What a server's links did since they were last asked.

    Attributes:
        events: all changes, oldest first.
        missing: netdev and stage of what did not come up in time.
        cross_checks: changes as netlink told them: delayed by the kernel, for comparison only.
        datagrams: by netdev, how many were sent and received since the watch began.
    """

    events: tuple[LinkEvent, ...]
    missing: tuple[tuple[str, Stage], ...]
    cross_checks: tuple[LinkEvent, ...]
    datagrams: Mapping[str, tuple[int, int]]


class PendingSettlement(Protocol):
    """A wait for links that was begun."""

    def result(self) -> Settled:
        """Wait for the server's answer."""


@dataclass(frozen=True, slots=True)
class PortWatch:
    """Which of a NIC port's states to observe.

    Attributes:
        netdev: the port's network device on its server.
        rdma: its RDMA device, whose state is the firmware's word, or None.
    """

    netdev: str
    rdma: str | None = None


class Server(Identified, Protocol):
    """A computer whose NIC ports are cabled to the fabric."""

    def watch(
        self, ports: Sequence[PortWatch], *, period: int, datagram_period: int | None
    ) -> frozenset[tuple[str, Stage]]:
        """Observe `ports` from now on, every `period` ns; send datagrams if a period is given.

        Returns netdev and stage of what is up already; datagrams are heard of by their first.
        """

    def settle(self, stages: Mapping[str, Sequence[Stage]], *, timeout: int) -> PendingSettlement:
        """Begin to wait until every named netdev has gone through every named stage.

        With no stages the answer comes at once: what happened since the last one.
        """
