"""Datagrams from ports of servers to others, as fast as the ports take them, all at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.core.loads import Flow, FlowRate
from lightrig.instruments.servers.host.linux import LinuxServer, this_boot_id
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program, ProgramRequest, ProgramRun
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds import Port

LOAD = Program(
    "lightrig-load",
    "the load's program",
    1,
    ("server_clock", "replies", "load_program"),
    "a python3 of 3.8 or newer",
    programs.__name__,
)

DURATION = 200_000_000
"""Time for which a load runs, in ns."""

_SIZE = 1400
_AT_ONCE_S, _MOST_AT_ONCE = 0.0005, 32
_LEAD_IN = 0.3
"""Share of the time at whose begin queues still fill."""


@dataclass(frozen=True, slots=True)
class LoadEnd:
    """A port of a server: its network device, its IP address and its rate in bit/s."""

    server: str
    netdev: str
    address: str
    rate_bps: int

    @property
    def at_once(self) -> int:
        """Number of datagrams that are sent by one call: half a millisecond of the port, or 32."""
        return min(max(round(self.rate_bps * _AT_ONCE_S / 8 / _SIZE), 1), _MOST_AT_ONCE)


class _End:
    """A program at a port, its clock, and the port of UDP at which it counts."""

    def __init__(self, server: LinuxServer, clock: Clock, end: LoadEnd) -> None:
        self.clocks = ClockMap(name=server.name)
        self.end = end
        self.run: ProgramRun = server.start(LOAD, Trace(clock), self.clocks)
        self.udp_port = 0

    def open(self, *, counts: bool) -> None:
        self.clocks.same_clock = self.run.submit("hello", {}).result()["boot"] == this_boot_id()
        if counts:
            at = {"address": self.end.address, "netdev": self.end.netdev}
            self.udp_port = int(self.run.submit("receive", at).result()["port"])

    def here(self, stamp: int) -> float:
        """Return a stamp of the program on the bench's clock, the middle of what it may be."""
        span = self.clocks.here(stamp)
        return (span.earliest + span.latest) / 2


class DatagramLoad:
    """Programs that send and count datagrams, one of each at every port, until `close`.

    Each is a process of its own, so that flows of a server do not wait for each other in it.

    Args:
        servers: by name.
        clock: the bench's clock.
        ends: network device, address and rate of each port.
        duration: of a load, in ns.

    Raises `InstrumentError` where a program does not start.
    """

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        clock: Clock,
        ends: Mapping[Port, LoadEnd],
        *,
        duration: int = DURATION,
    ) -> None:
        self._duration = duration
        self._clock = clock
        self._senders: dict[Port, _End] = {}
        self._counters: dict[Port, _End] = {}
        try:
            for port, end in ends.items():
                for made in (self._senders, self._counters):
                    made[port] = _End(servers[end.server], clock, end)
            for each in self._senders.values():
                each.open(counts=False)
            for each in self._counters.values():
                each.open(counts=True)
        except InstrumentError:
            self.close()
            raise

    def rates(self, flows: Sequence[Flow]) -> list[FlowRate]:
        """Run flows at once; return the rate of the data that arrived of each.

        It is taken where all of them were sending, after a time in which queues fill. Raises
        `InstrumentError`.
        """
        asked = [(flow, self._begin(flow)) for flow in flows]
        sent = [request.result() for _, request in asked]
        counted = [self._counters[flow.sink].run.submit("received", {}) for flow in flows]
        try:
            times = [
                [self._senders[flow.source].here(int(one[name])) for name in ("began", "ended")]
                for flow, one in zip(flows, sent, strict=True)
            ]
            began, ended = max(begin for begin, _ in times), min(end for _, end in times)
            waited = max(one["waited_ns"] / max(one["ended"] - one["began"], 1) for one in sent)
            began += _LEAD_IN * (ended - began)
        except (KeyError, TypeError, ValueError) as error:
            raise asked[0][1].run.garbled("no load", asked[0][1], sent) from error
        whole = ended - began >= self._duration * (1 - _LEAD_IN) / 2
        found = []
        for flow, request in zip(flows, counted, strict=True):
            given: Mapping[str, Any] = request.result()
            try:
                bps = self._rate(self._counters[flow.sink], given, began, ended) if whole else None
            except (KeyError, TypeError, ValueError) as error:
                raise request.run.garbled("no count of datagrams", request, given) from error
            found.append(FlowRate(bps, waited))
        return found

    def close(self) -> None:
        """End the programs on all servers."""
        ends = itertools.chain(self._senders.values(), self._counters.values())
        self._clock.parallel(*(each.run.close for each in ends))

    def _begin(self, flow: Flow) -> ProgramRequest:
        counter = self._counters[flow.sink]
        sender = self._senders[flow.source]
        body = {
            "address": counter.end.address,
            "port": counter.udp_port,
            "netdev": sender.end.netdev,
            "size": _SIZE,
            "at_once": sender.end.at_once,
            "duration_ns": self._duration,
        }
        return sender.run.submit("send", body, self._duration)

    @staticmethod
    def _rate(counter: _End, given: Mapping[str, Any], began: float, ended: float) -> float:
        width = int(given["bin_ns"])
        bins = sorted((counter.here(int(at)), int(count)) for at, count in given["bins"])
        if not bins:
            return 0.0
        # Bins that lie in the time as a whole, whether something came in them or not.
        first = bins[0][0] + math.ceil((began - bins[0][0]) / width) * width
        last = first + (ended - first) // width * width
        counted = sum(count for at, count in bins if first <= at and at + width <= last)
        return counted * 8e9 / (last - first)
