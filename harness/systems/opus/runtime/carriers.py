"""Whether links are back once circuits have moved: what a rank waits for besides its switch."""

import threading
from collections.abc import Collection, Mapping, Sequence

from lightrig.harness.bench.bench import Bench
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent, PortWatch, Stage
from lightrig.testbeds import LightrigError, Port

POLL_PERIOD = 1_000_000
"""Period at which a server reads its ports' carriers, in ns."""

UNNOTICED = 100_000_000
"""Time within which a carrier loss is seen, in ns; none is awaited after it."""

LOOK_AGAIN = 10_000_000
"""After how long a port that is still down is looked at again, in ns."""

BACK = 30_000_000_000
"""Timeout of carriers that come back, in ns; NIC firmware can take ten seconds."""


class CarriersDownError(LightrigError):
    """Circuits were made and carry no link."""


class Carriers:
    """The carriers of all NIC ports of a bench, watched by their servers until closed.

    Attributes:
        seen: their changes, in the order in which they were heard of.
        longest: the longest time from the begin of a change of circuits until its links were back.
        abandoned: whether waits for links end at once, with an error.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.nic_ports}
        self.seen: list[tuple[Port, LinkEvent]] = []
        self.longest = 0
        self.abandoned = False
        self._up: set[Port] = set()
        self._fell: dict[Port, Span] = {}
        self._rose: dict[Port, int] = {}
        self._turn = threading.Lock()
        self._awaiting = 0
        self._ports = {(port.owner, netdev): port for port, netdev in self._netdevs.items()}
        for name, server in bench.servers.items():
            watched = [
                PortWatch(netdev, None)
                for port, netdev in self._netdevs.items()
                if port.owner == name
            ]
            up = server.watch(watched, period=POLL_PERIOD, datagram_period=None)
            self._up |= {self._ports[name, netdev] for netdev, stage in up if stage == "carrier"}

    def await_back(self, ports: Collection[Port], since: int) -> int | None:
        """Wait until `ports` have come up after `since`, when their circuits began to move.

        Return when the last of them did, by its server; None where none was seen to.

        One that has carrier and that nobody has seen without within `UNNOTICED` is not waited
        for any longer. Raises `CarriersDownError` after `BACK`, or once `abandoned`.
        """
        clock, wanted = self._bench.clock, set(ports)
        with self._turn:  # no look is under way: it would take a rise that is awaited
            self._awaiting += 1
        try:
            while wanted := {port for port in wanted if self._rose.get(port, -1) < since}:
                missing = ", ".join(map(str, sorted(wanted)))
                if self.abandoned:
                    raise CarriersDownError(f"no longer awaited: {missing}")
                if clock.now() >= since + BACK:
                    raise CarriersDownError(f"no carrier within {BACK / 1e9:g} s: {missing}")
                left = since + UNNOTICED - clock.now()
                self._ask(wanted, max(left, LOOK_AGAIN))
                if clock.now() >= since + UNNOTICED:
                    wanted -= self._up
            self.longest = max(self.longest, clock.now() - since)
            rises = [self._rose.get(port, -1) for port in ports]
            return max((rise for rise in rises if rise >= since), default=None)
        finally:
            with self._turn:
                self._awaiting -= 1

    def dark(self, ports: Collection[Port]) -> Mapping[Port, Span]:
        """Return those of `ports` without carrier, and when each lost it, as far as that was seen.

        Read anew, unless links are awaited: then as last read for that.
        """
        with self._turn:
            if not self._awaiting:
                self._ask((), 0)
            return {port: self._fell.get(port, Span(0, 0)) for port in {*ports} - self._up}

    def _ask(self, ports: Collection[Port], timeout: int) -> None:
        """Take the changes so far, once `ports` all have come up or `timeout` has passed."""
        asked = {name: dict[str, Sequence[Stage]]() for name in self._bench.servers}
        for port in ports:
            asked[port.owner][self._netdevs[port]] = ("carrier",)
        pending = [
            (name, self._bench.servers[name].settle(wanted, timeout=timeout))
            for name, wanted in asked.items()
            if wanted or not ports
        ]
        for name, settlement in pending:
            for event in settlement.result().events:
                port = self._ports[name, event.port]
                self.seen.append((port, event))
                (self._up.add if event.up else self._up.discard)(port)
                if event.up:
                    self._rose[port] = max(self._rose.get(port, -1), event.at.latest)
                else:
                    self._fell[port] = event.at

    def outages(self) -> list[tuple[Port, Span]]:
        """Outages of each port that are over, as times without carrier and with it again."""
        down: dict[Port, Span] = {}
        found = []
        for port, event in self.seen:
            if not event.up:
                down[port] = event.at
            elif port in down:
                found.append((port, Span(down.pop(port).latest, event.at.latest)))
        return found

    def close(self) -> None:
        """Watch no more."""
        for server in self._bench.servers.values():
            server.unwatch()
