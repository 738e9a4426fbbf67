"""The ports of all servers, watched for hours: each server by itself, so that one may fail."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lightrig.harness.bench import Bench
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import (
    LinkEvent,
    PortWatch,
    Reconnectable,
    Settled,
    Stage,
)
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import Port

POLL_PERIOD = 1_000_000
"""Period at which a server reads its ports' states, in ns.

A change between two readings shows in the kernel's count of changes, with bounds so far apart.
"""

DATAGRAM_PERIOD = 10_000_000
"""Period at which each port sends a datagram to the far end, in ns."""

RETRY = 10_000_000_000
"""Time after which a server that did not answer is asked again, in ns."""


class WatchBreak(NamedTuple):
    """A time in which the ports of a server were not watched, on the bench's clock.

    ended is None until they are watched again.
    """

    server: str
    began: int
    ended: int | None
    reason: str


@dataclass(slots=True)
class Looked:
    """Answers of all servers to one look.

    Attributes:
        events: changes of ports.
        broken: breaks that have begun; resumed: those that have ended.
        lost: datagrams that each port missed; doubtful: those of them that its own server may have
            lost.
        sent: datagrams that ports have sent.
    """

    events: list[tuple[Port, LinkEvent]] = field(default_factory=list)
    broken: list[WatchBreak] = field(default_factory=list)
    resumed: list[WatchBreak] = field(default_factory=list)
    lost: Counter[Port] = field(default_factory=Counter)
    doubtful: Counter[Port] = field(default_factory=Counter)
    sent: int = 0


@dataclass(slots=True)
class _Watched:
    """One server: what it was last seen to be."""

    since: int | None = None
    until: int = 0
    retry_at: int = 0
    reason: str = ""
    up: set[tuple[str, Stage]] = field(default_factory=set)
    sent: dict[str, int] = field(default_factory=dict)


class PortsWatch:
    """The NIC ports of a bench's servers, from `look` to `look`; nothing is stored in between.

    Attributes:
        until: until when the ports of each server were read, on the bench's clock, in ns.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._specs = {
            name: [spec for nic in server.nics.values() for spec in nic.ports]
            for name, server in bench.testbed.servers.items()
            if name in bench.servers
        }
        self._ports = {
            (name, spec.netdev): spec.port for name, specs in self._specs.items() for spec in specs
        }
        self._servers = {name: _Watched() for name in self._specs}

    @property
    def until(self) -> Mapping[str, int]:
        """Until when each server's ports were read; of those that are watched now."""
        return {n: each.until for n, each in self._servers.items() if each.since is not None}

    @property
    def since(self) -> Mapping[str, int]:
        """Since when each server's ports are watched; of those that are watched now."""
        return {n: each.since for n, each in self._servers.items() if each.since is not None}

    def begin(self) -> Looked:
        """Begin to watch all servers; what is down already is among the events."""
        found = Looked()
        for name, state in self._servers.items():
            state.until = self._bench.clock.now()
            state.up = {(spec.netdev, "carrier") for spec in self._specs[name]}
            state.up |= {(spec.netdev, "firmware") for spec in self._specs[name] if spec.rdma}
            try:
                self._start(name, found)
            except InstrumentError as error:
                self._break(name, error, found)
        return found

    def breaks(self) -> list[WatchBreak]:
        """Return the breaks that go on."""
        now = self._bench.clock.now()
        failed = ((name, each) for name, each in self._servers.items() if each.reason)
        return [WatchBreak(name, each.until, now, each.reason) for name, each in failed]

    def end(self) -> None:
        """Stop watching; a server that does not answer is left as it is."""
        for name, state in self._servers.items():
            if state.since is not None:
                state.since = None
                with contextlib.suppress(InstrumentError):
                    self._bench.servers[name].unwatch()

    def look(self) -> Looked:
        """Take what all servers have observed since the last look; try again those that failed."""
        found, pending = Looked(), {}
        for name, state in self._servers.items():
            server = self._bench.servers[name]
            try:
                if state.since is not None:
                    pending[name] = server.settle({}, timeout=0, gaps=True)
                elif self._bench.clock.now() >= state.retry_at:
                    if isinstance(server, Reconnectable):
                        server.reconnect()
                    with contextlib.suppress(InstrumentError):
                        server.unwatch()
                    self._start(name, found)
            except InstrumentError as error:
                self._break(name, error, found)
        for settlement in pending.values():
            with contextlib.suppress(InstrumentError):
                settlement.wait()  # replies of servers bound each other's clocks
        for name, settlement in pending.items():
            try:
                self._take(name, settlement.result(), found)
            except InstrumentError as error:
                self._break(name, error, found)
        return found

    def _start(self, name: str, found: Looked) -> None:
        state, clock = self._servers[name], self._bench.clock
        watched = [PortWatch(spec.netdev, spec.rdma) for spec in self._specs[name]]
        up = self._bench.servers[name].watch(
            watched, period=POLL_PERIOD, datagram_period=DATAGRAM_PERIOD
        )
        now = clock.now()
        began = state.until
        for netdev, stage in sorted(state.up ^ up):
            event = LinkEvent(netdev, stage, (netdev, stage) in up, Span(began, now), "sysfs")
            found.events.append((self._ports[name, netdev], event))
        if state.reason:
            found.resumed.append(WatchBreak(name, began, now, state.reason))
        state.since = state.until = now
        state.up, state.reason, state.sent = set(up), "", {}

    def _break(self, name: str, error: InstrumentError, found: Looked) -> None:
        state = self._servers[name]
        state.retry_at = self._bench.clock.now() + RETRY
        if not state.reason:
            state.reason = str(error).partition("\n")[0]
            found.broken.append(WatchBreak(name, state.until, None, state.reason))
        state.since = None

    def _take(self, name: str, settled: Settled, found: Looked) -> None:
        state = self._servers[name]
        state.until = max(state.until, settled.answered().earliest - settled.age)
        for event in settled.events:
            found.events.append((self._ports[name, event.port], event))
            if event.stage != "datagram":
                change = state.up.add if event.up else state.up.discard
                change((event.port, event.stage))
        for gap in settled.gaps:
            missing = gap.first_number - gap.last_number - 1
            if gap.first_stream == gap.last_stream and missing > 0:
                port = self._ports[name, gap.port]
                found.lost[port] += missing
                found.doubtful[port] += missing * gap.backlog
        for late in settled.late:  # it came after all
            found.lost[self._ports[name, late.port]] -= 1
        for netdev, (sent, _) in settled.datagrams.items():
            found.sent += sent - state.sent.get(netdev, 0)
            state.sent[netdev] = sent
