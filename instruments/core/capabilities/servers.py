"""Servers, and their observation of the links of their NIC ports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities.instruments import Identified

if TYPE_CHECKING:
    from lightrig.instruments.servers.ports.nic import Nic

Stage = Literal["firmware", "carrier", "datagram"]
"""Stage of a NIC port's link: locked by the firmware, carrier in the kernel, datagrams arrive."""


class Datagram(NamedTuple):
    """A datagram that arrived.

    Attributes:
        stream: which stream it was of (see `Server.streams`).
        number: its number in it.
        sent: when it was sent, on the bench's clock: not before.
    """

    stream: int
    number: int
    sent: Span


class LinkEvent(NamedTuple):
    """A NIC port's link went up or down.

    Attributes:
        port: the port's netdev on its server.
        stage: which of the link's states changed.
        up: its new state.
        at: when, on the bench's clock.
        source: who observed it: `sysfs`, `netlink`, `udp`, or `idle` where datagrams go on after
            a silence in which none was lost: the sender had paused, and the link had not changed.
        last: the last datagram before a silence. The silence alone does not show when the link
            was lost, since its sender may have paused.
    """

    port: str
    stage: Stage
    up: bool
    at: Span
    source: str
    last: Datagram | None = None

    @property
    def resumed(self) -> bool:
        """Whether only the sender had paused."""
        return self.source == "idle"


class Gap(NamedTuple):
    """An interruption of the datagrams that a NIC port receives.

    Attributes:
        port: the receiving port's netdev on its server.
        last_stream, last_number: the last datagram that arrived: which stream it was of (see
            `Server.streams`), and its number in it.
        last_sent: it had not been sent before, on the bench's clock.
        first_stream, first_number: the first that arrived again.
        lost_sent: the one before that first one, which did not arrive, was not sent before.
        received: when the first one was there.
        backlog: whether the receiver may itself have lost what is missing, for want of space.
        transit: the longest time for which datagrams of `last_stream` were on their way lately, in
            ns; 0 where that is not longer than clocks tell.
    """

    port: str
    last_stream: int
    last_number: int
    last_sent: Span
    first_stream: int
    first_number: int
    lost_sent: Span
    received: Span
    backlog: bool = False
    transit: int = 0


class LateDatagram(NamedTuple):
    """A datagram that was overtaken on its way.

    Attributes:
        port: the receiving port's netdev on its server.
        stream: which stream it was of.
        number: its number in it.
        depth: by how many numbers the latest one before it was ahead.
    """

    port: str
    stream: int
    number: int
    depth: int


class ClockStatus(NamedTuple):
    """How a server's kernel disciplines its clocks, as the kernel reports it.

    Attributes:
        synchronised: whether its time daemon says so.
        frequency_ppm: correction of the rate.
        estimated_error, maximum_error: of its calendar clock, by the daemon's account, in ns.
    """

    synchronised: bool
    frequency_ppm: float
    estimated_error: int
    maximum_error: int

    def conditions(self) -> dict[str, bool | float]:
        """Return the conditions of a row that has this status."""
        return {
            "clock_synchronised": self.synchronised,
            "clock_frequency_ppm": round(self.frequency_ppm, 6),
            "clock_estimated_error_us": self.estimated_error / 1e3,
            "clock_maximum_error_us": self.maximum_error / 1e3,
        }


@dataclass(frozen=True, slots=True)
class Settled:
    """The link events of a server since the last query.

    Attributes:
        events: all changes, oldest first.
        missing: netdev and stage of every link that did not come up in time.
        cross_checks: changes as netlink reported them: delayed by the kernel, for comparison only.
        datagrams: by netdev, how many were sent and received since the watch began.
        heard: by netdev and stream, how many different datagrams it has received since then.
        answered: returns when the server answered, on the bench's clock; raises `ClockError`. Of
            most answers nobody asks.
        gaps: interruptions, in the order of their ends.
        departures: by netdev, when the datagrams that were asked for had been sent; None where
            that is not known.
        clock: how the kernel disciplines the server's clocks; None where it does not tell.
        late: datagrams that came late.
        age: how old its readings of the ports' states were then, in ns: a change before is in this
            answer or in one before.
    """

    events: tuple[LinkEvent, ...]
    missing: tuple[tuple[str, Stage], ...]
    cross_checks: tuple[LinkEvent, ...]
    datagrams: Mapping[str, tuple[int, int]]
    answered: Callable[[], Span]
    gaps: tuple[Gap, ...] = ()
    departures: Mapping[str, Sequence[Span | None]] = field(default_factory=dict)
    clock: ClockStatus | None = None
    heard: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    late: tuple[LateDatagram, ...] = ()
    age: int = 0


class PendingSettlement(Protocol):
    """A wait for links that was begun."""

    def wait(self) -> None:
        """Wait for the reply of the server."""

    def result(self) -> Settled:
        """Wait for the reply of the server; return it on the bench's clock.

        It has stamps of other servers too: where these are asked at the same time, their replies
        bound them, so wait for all before.
        """


@dataclass(frozen=True, slots=True)
class PortWatch:
    """A NIC port to observe.

    Attributes:
        netdev: the port's network device on its server.
        rdma: its RDMA device, whose state is that of the firmware, or None.
    """

    netdev: str
    rdma: str | None = None


class Server(Identified, Protocol):
    """A computer whose NIC ports are cabled to the fabric."""

    def watch(
        self, ports: Sequence[PortWatch], *, period: int, datagram_period: int | None
    ) -> frozenset[tuple[str, Stage]]:
        """Observe `ports` from now on, every `period` ns; send datagrams if a period is given.

        Returns netdev and stage of what is up already; for datagrams, the first one is awaited.
        """

    def settle(
        self,
        stages: Mapping[str, Sequence[Stage]],
        *,
        timeout: int,
        gaps: bool = False,
        departures: Mapping[str, Sequence[int]] | None = None,
    ) -> PendingSettlement:
        """Begin to wait until every named netdev has gone through every named stage.

        `timeout` is in ns. Without stages the reply comes at once, with the events since the last
        one. Without `gaps`, interruptions until then are discarded. departures: numbers of
        datagrams by the netdev that sent them, whose send times the reply brings.
        """

    def streams(self) -> Mapping[int, str]:
        """Return the netdev of each stream of datagrams that this server sends, by its number."""

    def unwatch(self) -> None:
        """Stop observing, and stop sending datagrams."""


@runtime_checkable
class HasNic(Protocol):
    """A server whose NIC ports its tools can read: link, transceiver, counters, FEC, firmware."""

    @property
    def nic(self) -> "Nic":
        """Readings of the NIC ports, each by netdev or device."""


@runtime_checkable
class HasPartners(Protocol):
    """A server that tells from whom the datagrams at its watched ports come."""

    def partners(self) -> Mapping[str, tuple[int, Span]]:
        """Return the stream of the last datagram at each netdev that had one, and when it came."""


@runtime_checkable
class Reconnectable(Protocol):
    """A server that can be reached again after its connection has ended, as after a reboot."""

    def reconnect(self) -> None:
        """Open a connection that has ended anew; what was watched or started there has ended."""


class KernelLine(NamedTuple):
    """A line of a server's kernel log.

    Attributes:
        text: as the kernel wrote it; what looks like a secret is masked.
        level: 0 (the system is unusable) to 7 (debugging), as syslog(2) counts.
        at: when it was written, on the bench's clock.
    """

    text: str
    level: int
    at: Span


@dataclass(frozen=True, slots=True)
class KernelReading:
    """What a server's kernel has logged since the last reading.

    Attributes:
        lines: in their order.
        lost: how many lines the kernel has overwritten before they were read.
        left_out: how many came that the server's program had no space for.
    """

    lines: tuple[KernelLine, ...] = ()
    lost: int = 0
    left_out: int = 0


@runtime_checkable
class HasKernelMessages(Protocol):
    """A server whose kernel's log can be read."""

    @property
    def boot(self) -> str:
        """What tells this boot of its machine from all others: servers with one share a log."""

    def kernel_messages(self) -> KernelReading:
        """Return what has been logged since the last call; the first one begins.

        Raises `DeniedError` where this account may not read the log.
        """


class CountGrowth(NamedTuple):
    """What a counter has counted between two readings.

    Attributes:
        least: what is certain.
        most: the same where the difference is known; None where more may have been counted.
        doubt: why it is not known, as a clause; None where it is.
    """

    least: int
    most: int | None
    doubt: str | None


class PortCounts(Protocol):
    """One reading of the counters of a NIC port's traffic."""

    def since(self, before: Any) -> Mapping[str, CountGrowth]:
        """Return what was counted since an earlier reading, by name, of counters in both."""

    def __bool__(self) -> bool:
        """Whether there is a counter."""


@runtime_checkable
class HasPortCounters(Protocol):
    """A server that reads what its NIC ports have counted of their traffic."""

    def port_counts(self, netdev: str, rdma: str | None) -> PortCounts:
        """Read the counters of a port; no module is asked, and none that is missing is zero."""

    def firmware_counts(self, rdma: str) -> PortCounts:
        """Read those of a NIC's firmware, which takes its tool some 100 ms; else the same."""


@dataclass(slots=True)
class Diagnostic:
    """One quantity that a module measures itself; None: the module does not tell it.

    Attributes:
        name: such as `prefec_ber`, `esnr` or `pam4_level_transition`.
        side: `media` (the fiber), `host` (the NIC or switch), or "" where the quantity has none.
        lane: number of the lane; None for the whole module.
        current: the latest value; `minimum` to `maximum` are since the host last asked.
        resolution: the smallest difference that the module can tell at this value; 0 if unknown.
        flags: `high alarm`, `low alarm`, `high warning`, `low warning`, of those that are latched.
    """

    name: str
    side: str = ""
    lane: int | None = None
    current: float | None = None
    minimum: float | None = None
    average: float | None = None
    maximum: float | None = None
    resolution: float = 0.0
    flags: frozenset[str] = frozenset()


@runtime_checkable
class HasModuleDiagnostics(Protocol):
    """A server whose transceivers may measure the quality of their signals."""

    def module_diagnostics(self, port: str, netdev: str) -> tuple[tuple[Diagnostic, ...], Span]:
        """Return the diagnostics of a NIC port's module, and when they were read.

        None where the module measures nothing. Raises `DeniedError` where its memory cannot be
        read, such as that of an empty cage.
        """
