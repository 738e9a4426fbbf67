"""Servers, and what they observe of their NIC ports' links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from instruments.capabilities.instruments import Identified
from instruments.clock import Span

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


class Gap(NamedTuple):
    """A NIC port did not receive what was sent between two datagrams.

    Attributes:
        port: the receiving port's netdev on its server.
        last_stream, last_number: the last datagram that arrived: which stream it was of (see
            `Server.streams`), and its number in it.
        last_sent: it had not been sent before, on the bench's clock.
        first_stream, first_number: the first that arrived again.
        lost_sent: the one before that first one, which did not arrive, was not sent before.
        received: when the first one was there.
    """

    port: str
    last_stream: int
    last_number: int
    last_sent: Span
    first_stream: int
    first_number: int
    lost_sent: Span
    received: Span


@dataclass(frozen=True, slots=True)
class Settled:
    """What a server's links did since they were last asked.

    Attributes:
        events: all changes, oldest first.
        missing: netdev and stage of what did not come up in time.
        cross_checks: changes as netlink told them: delayed by the kernel, for comparison only.
        datagrams: by netdev, how many were sent and received since the watch began.
        gaps: what did not arrive, in the order in which something arrived again.
    """

    events: tuple[LinkEvent, ...]
    missing: tuple[tuple[str, Stage], ...]
    cross_checks: tuple[LinkEvent, ...]
    datagrams: Mapping[str, tuple[int, int]]
    gaps: tuple[Gap, ...] = ()


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

    def settle(
        self, stages: Mapping[str, Sequence[Stage]], *, timeout: int, gaps: bool = False
    ) -> PendingSettlement:
        """Begin to wait until every named netdev has gone through every named stage.

        `timeout` is in ns. With no stages the answer comes at once: what happened since the last
        one. Without `gaps` those until then are let go.
        """

    def streams(self) -> Mapping[int, str]:
        """Of the datagrams that this server sends: the netdev of each stream, by its number."""

    def departures(self, netdev: str, numbers: Sequence[int]) -> Sequence[Span | None]:
        """When each of those datagrams from `netdev` had been sent; None where nobody knows."""

    def unwatch(self) -> None:
        """Observe no more, and send no more datagrams."""
