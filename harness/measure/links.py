"""The links of all servers, observed from the servers themselves."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lightrig.harness.bench import Bench
from lightrig.harness.findings import (
    LINK_DOWN,
    NO_LIGHT,
    SWAPPED_FIBERS,
    Finding,
    FoundError,
    each_at,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import (
    ClockStatus,
    Gap,
    LateDatagram,
    LinkEvent,
    PortWatch,
    Settled,
    Stage,
)
from lightrig.instruments.core.errors import ClockError
from lightrig.testbeds import Link, Port

POLL_PERIOD = 100_000
"""Period at which a server polls its ports' states, in ns."""

DATAGRAM_PERIOD = 1_000_000
"""Period at which each port sends a datagram to the far end, in ns."""

UNNOTICED = 10_000_000_000
"""Timeout for a port whose carrier loss has not been seen, in ns."""

TRANSIT = 100_000_000
"""Longest way of a datagram that arrives, in ns: twice what the queues of kernel links hold."""

LINK_TIMEOUT = 60_000_000_000
"""Timeout for links to come up, in ns; the slowest recorded firmware took 25 s."""

UNSEEN = 50_000_000
"""Longest time before a server's answer that a change may be that is not in it, in ns.

The server reads its ports in turn, declares a silence after some periods, and may itself have to
wait for a processor.
"""

_CARRIER_PERIOD = 10_000_000
"""Time between two queries of the servers' carriers, in ns."""

_SWAPPED = "light leads to all of them: are their fibers swapped, or do rate or FEC differ?"

_LATELY = 5_000_000
"""Age of readings of ports, in ns, from which on their server is asked again."""

_LOOK_AGAIN = 1_000_000
"""Period of queries for carrier loss, in ns."""


class LinksDownError(FoundError):
    """Links that a plan closes did not come up within `timeout` ns; 0 for links known to be down.

    ports: those that are down. stages: each of theirs that is. limit: the time, in ns.
    dark: ports of switches that should light them and do not; None
    where nothing says. reasons: what drivers and firmware say of ports.
    in_preparation: whether they were brought up for what follows, and nothing was measured of them.
    """

    in_preparation = False

    def __init__(
        self,
        down: Iterable[tuple[Port, Stage]],
        timeout: int,
        dark: Sequence[str] | None = None,
        reasons: Mapping[Port, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.stages, self.limit = [*down], timeout
        self.ports = [*dict.fromkeys(port for port, _ in self.stages)]
        waited = f"did not come up within {timeout / 1e9:g} s" if timeout else "are down still"
        sentence = f"links {waited}: " + ", ".join(
            f"{port} ({stage})" for port, stage in self.stages
        )
        if dark is not None:
            sentence += f"; no light at {', '.join(dark)}" if dark else f"; {_SWAPPED}"
        names = [str(port) for port in self.ports]
        found = each_at(LINK_DOWN, names) + each_at(NO_LIGHT, dark or ())
        swapped = dark is not None and not dark
        if swapped:
            found = [Finding(SWAPPED_FIBERS, "", tuple(names))]
        lines = [f"  vendor    {port}: {each}" for port, of in reasons.items() for each in of]
        if lines and found:
            vendors = "; ".join(line.removeprefix("  vendor").strip() for line in lines)
            found[0] = replace(found[0], evidence=f"{sentence}; {vendors}")
        super().__init__("\n".join([sentence, *lines]), found)

    def with_causes(
        self, dark: Sequence[str] | None, reasons: Mapping[Port, Sequence[str]]
    ) -> "LinksDownError":
        """Return the error with what is known of the light, and what drivers and firmware say."""
        found = LinksDownError(self.stages, self.limit, dark, reasons)
        found.in_preparation = self.in_preparation
        return found


def await_carriers(
    bench: Bench,
    dark: Callable[[Collection[Port]], Collection[Port]],
    ports: Collection[Port],
    timeout: int = LINK_TIMEOUT,
) -> None:
    """Wait until all of `ports` have carrier, where servers are queried and not watched.

    dark: returns those of some ports that have no carrier now. timeout: in ns.

    Raises `LinksDownError`.
    """
    deadline = bench.clock.now() + timeout
    while down := dark(ports):
        if bench.clock.now() > deadline:
            bench.check_world()
            raise LinksDownError([(port, "carrier") for port in sorted(down)], timeout)
        bench.clock.sleep(_CARRIER_PERIOD)


@dataclass(slots=True)
class ObservedEvent:
    """Answers of servers while one event is observed.

    Attributes:
        changes: of any port, in the order of the answers.
        gaps: what each port misses of the datagrams sent to it.
        late: datagrams of each port that were overtaken on their way.
        received: how many datagrams of each stream each port has received.
        answered: returns when each server answered last, on the bench's clock.
        clocks: how the kernels of servers that tell discipline their clocks, by their last answers.
        ages: how old each server's readings of its ports were when it answered last, in ns.
    """

    changes: list[tuple[Port, LinkEvent]] = field(default_factory=list)
    gaps: list[tuple[Port, Gap]] = field(default_factory=list)
    late: list[tuple[Port, LateDatagram]] = field(default_factory=list)
    received: defaultdict[tuple[Port, int], int] = field(default_factory=lambda: defaultdict(int))
    answered: dict[str, Callable[[], Span]] = field(default_factory=dict)
    clocks: dict[str, ClockStatus] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)

    def slow(self, allowed: int = UNSEEN) -> dict[str, int]:
        """Return the ages of readings that are older than `allowed` ns, by server."""
        return {server: age for server, age in self.ages.items() if age > allowed}

    def watched(self) -> dict[str, Span]:
        """Return until when the ports of each server were watched: see `Watch.until`.

        Raises `ClockError` for a server whose clock tells no time of its last answer.
        """
        found = {}
        for server, answered in self.answered.items():
            earliest, latest = answered()
            found[server] = Span(earliest - max(UNSEEN, self.ages[server]), latest)
        return found


class LinkObservation:
    """Link events of the servers' ports since the observation was created.

    Stages of each port: firmware (where an RDMA device reports it), carrier,
    and datagrams received from the other end, sent every `datagram_period` ns. Files of the kernel
    are read every `poll_period` ns: a slow period leaves the processors to the jobs that run.

    Attributes:
        up: ports and stages that were last seen to be up.
    """

    def __init__(
        self,
        bench: Bench,
        datagram_period: int = DATAGRAM_PERIOD,
        poll_period: int = POLL_PERIOD,
    ) -> None:
        self._bench = bench
        self.datagram_period = datagram_period
        self._poll_period = poll_period
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.working_ports}
        self._ports = {(port.owner, netdev): port for port, netdev in self._netdevs.items()}
        self._stages: dict[Port, tuple[Stage, ...]] = {
            spec.port: ("firmware", "carrier", "datagram") if spec.rdma else ("carrier", "datagram")
            for spec in bench.testbed.working_ports
        }
        self.up: set[tuple[Port, Stage]] = set()
        self._cross_checks: list[tuple[Port, LinkEvent]] = []
        self._event: ObservedEvent | None = None
        self._silences: dict[Port, LinkEvent] = {}
        self._received: dict[tuple[Port, int], int] = {}
        self._watching = False
        self.begin()

    def set_datagram_period(self, period: int) -> None:
        """From now on send datagrams every `period` ns; what is up is heard of anew."""
        if period != self.datagram_period:
            self.pause()
            self.datagram_period = period
        self.begin()

    def pause(self) -> None:
        """Observe nothing until `begin`, or until something is asked: servers do nothing for us."""
        if self._watching:
            self._watching = False
            for server in self._bench.servers.values():
                server.unwatch()
            self.up.clear()
            self._silences.clear()
            self._received.clear()

    def begin(self) -> None:
        """Observe, if that was paused; what happened meanwhile is unknown."""
        if self._watching:
            return
        self._watching = True
        for name, server in self._bench.servers.items():
            watched = [
                PortWatch(spec.netdev, spec.rdma)
                for nic in self._bench.testbed.servers[name].nics.values()
                for spec in nic.ports
                if spec.port in self._netdevs
            ]
            up = server.watch(
                watched, period=self._poll_period, datagram_period=self.datagram_period
            )
            self.up |= {(self._ports[name, netdev], stage) for netdev, stage in up}

    def begin_again(self, plan_links: Iterable[Link], timeout: int = LINK_TIMEOUT) -> None:
        """Observe anew, and wait until both ends of each link are up, at most `timeout` ns.

        For changes that no clock tells: each port's state is read again, and what happened
        meanwhile is unknown. Raises `LinksDownError`, and `ClockError` where stamps have no time
        until the end.
        """
        ports = {port for link in plan_links for port in (link.a, link.b)}
        clock = self._bench.clock
        deadline = clock.now() + timeout
        while True:
            self.pause()
            self.begin()
            try:
                self.await_up(ports, deadline - clock.now())
                break
            except ClockError:  # a clock that was set back shows some stamps twice
                if clock.now() >= deadline:
                    raise
                clock.sleep(_LOOK_AGAIN)
        self.take_cross_checks()

    def stages(self, port: Port) -> tuple[Stage, ...]:
        """The stages that can be observed at `port`, in the order in which they come up."""
        return self._stages[port]

    def take_cross_checks(self) -> list[tuple[Port, LinkEvent]]:
        """Return the netlink events since the last call."""
        taken, self._cross_checks = self._cross_checks, []
        return taken

    @contextlib.contextmanager
    def observing(self) -> Iterator[ObservedEvent]:
        """Meanwhile collect all that servers answer."""
        self._event = ObservedEvent()
        try:
            yield self._event
        finally:
            self._event = None

    def catch_up(self) -> bool:
        """Ask servers that had not read their ports lately, until they have; whether any was asked.

        A server that answers once it is scheduled again may have read nothing yet. Readings that
        are still older than `UNSEEN` after `UNNOTICED` stay so: see `ObservedEvent.slow`.
        """
        clock, event, asked = self._bench.clock, self._event, False
        begun, lately = clock.now(), max(_LATELY, 2 * self._poll_period)
        while event is not None and (late := event.slow(lately)):
            passed = clock.now() - begun
            if passed > (UNNOTICED if event.slow() else UNSEEN):
                break
            if asked:
                clock.sleep(_LOOK_AGAIN)
            self._ask({name: {} for name in late}, 0)
            asked = True
        return asked

    @property
    def gaps(self) -> Sequence[tuple[Port, Gap]]:
        """The gaps of each port that servers have answered, while an event is observed."""
        return self._event.gaps if self._event is not None else ()

    @property
    def late(self) -> Sequence[tuple[Port, LateDatagram]]:
        """The datagrams that were overtaken on their way, while an event is observed."""
        return self._event.late if self._event is not None else ()

    def await_late(self) -> None:
        """Where datagrams were overtaken, wait for those that may still be on their way."""
        if self.late:
            self._bench.clock.sleep(TRANSIT)
            self._ask({name: {} for name in self._bench.servers}, 0)

    @property
    def received(self) -> Mapping[tuple[Port, int], int]:
        """How many datagrams of each stream each port has received, while an event is observed."""
        return self._event.received if self._event is not None else {}

    def silences(self) -> Mapping[Port, LinkEvent]:
        """Return the ports to which no datagrams come, by what was seen of it."""
        return self._silences

    def silences_after(self, moment: int) -> Mapping[Port, LinkEvent]:
        """Return the silences that last for `TRANSIT` ns and more after `moment` (bench's clock).

        A datagram that was sent then and belongs to one of them was lost, not late.
        """
        self._bench.clock.sleep(max(moment + TRANSIT - self._bench.clock.now(), 0))
        self._ask({name: {} for name in self._bench.servers}, 0)
        return self._silences

    def departures(self, wanted: Mapping[Port, Sequence[int]]) -> dict[tuple[Port, int], Span]:
        """Times when numbered datagrams from ports had been sent, where that is still known.

        Every server is asked, and answers with the gaps until then too.
        """
        by_server: defaultdict[str, dict[str, Sequence[int]]] = defaultdict(dict)
        for port, numbers in wanted.items():
            by_server[port.owner][self._netdevs[port]] = numbers
        everyone: dict[str, dict[str, Sequence[Stage]]] = {n: {} for n in self._bench.servers}
        known = {}
        for name, settled in self._settle(everyone, 0, by_server):
            for netdev, stamps in settled.departures.items():
                port = self._ports[name, netdev]
                for number, at in zip(by_server[name][netdev], stamps, strict=True):
                    if at is not None:
                        known[port, number] = at
        return known

    def senders(self) -> dict[int, Port]:
        """From which port each stream of datagrams comes."""
        return {
            stream: self._ports[name, netdev]
            for name, server in self._bench.servers.items()
            for stream, netdev in server.streams().items()
        }

    def await_up(self, ports: Collection[Port], timeout: int) -> None:
        """Wait until `ports` are up in every stage; raises `LinksDownError` after `timeout` ns."""
        deadline = self._bench.clock.now() + timeout
        self._ask({name: {} for name in self._bench.servers}, 0)
        # While some are waited for, others may still lose what they had before.
        while down := self._down(ports):
            left = deadline - self._bench.clock.now()
            if left <= 0:
                raise LinksDownError(down, timeout)
            self._ask(self._by_server(down), left)

    def lost(self, ports: Collection[Port], since: int, timeout: int) -> dict[Port, Span]:
        """Wait until all of `ports` have lost their carriers after `since`, at most `timeout` ns.

        Returns when each that has lost it did.
        """
        clock = self._bench.clock
        names = {port.owner for port in ports} or self._bench.servers.keys()
        deadline, found = clock.now() + timeout, dict[Port, Span]()
        while True:
            for port, event in self._ask({name: {} for name in names}, 0):
                if event.stage == "carrier" and not event.up and event.at.latest > since:
                    found.setdefault(port, event.at)
            if found.keys() >= set(ports) or clock.now() >= deadline:
                return {port: at for port, at in found.items() if port in ports}
            clock.sleep(_LOOK_AGAIN)

    def changes(
        self, ports: Collection[Port], since: int, timeout: int
    ) -> tuple[list[tuple[Port, LinkEvent]], list[tuple[Port, Stage]]]:
        """Wait until `ports` have come up after `since`.

        Returns every change of any port after it, and what has not come back in time. A port
        that nobody saw go down within `UNNOTICED` has passed without an outage that could be
        observed, and is not waited for.
        """
        wanted = [(port, stage) for port in sorted(ports) for stage in self._stages[port]]
        now = self._bench.clock.now
        noticed_by, deadline = now() + min(UNNOTICED, timeout), now() + timeout
        seen: list[tuple[Port, LinkEvent]] = []
        while wanted and now() < deadline:
            until = noticed_by if now() < noticed_by else deadline
            answer = self._ask(self._by_server(wanted), until - now())
            seen += [(port, event) for port, event in answer if event.at.latest > since]
            up = {(port, event.stage) for port, event in seen if event.up and not event.resumed}
            wanted = [pair for pair in wanted if pair not in up]
            if now() >= noticed_by:
                wanted = [pair for pair in wanted if pair not in self.up]
        return seen, [pair for pair in wanted if pair not in self.up]

    def _down(self, ports: Iterable[Port]) -> list[tuple[Port, Stage]]:
        return [
            (port, stage)
            for port in sorted(ports)
            for stage in self._stages[port]
            if (port, stage) not in self.up
        ]

    def _by_server(
        self, wanted: Iterable[tuple[Port, Stage]]
    ) -> Mapping[str, Mapping[str, Sequence[Stage]]]:
        stages: defaultdict[str, defaultdict[str, list[Stage]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for port, stage in wanted:
            stages[port.owner][self._netdevs[port]].append(stage)
        return stages

    def _ask(
        self, stages: Mapping[str, Mapping[str, Sequence[Stage]]], timeout: int
    ) -> list[tuple[Port, LinkEvent]]:
        """Ask the named servers side by side; their changes in the servers' order."""
        return [
            (self._ports[name, event.port], event)
            for name, settled in self._settle(stages, timeout, {})
            for event in settled.events
        ]

    def _settle(
        self,
        stages: Mapping[str, Mapping[str, Sequence[Stage]]],
        timeout: int,
        numbers: Mapping[str, Mapping[str, Sequence[int]]],
    ) -> list[tuple[str, Settled]]:
        """Ask the named servers side by side, and note what they have seen.

        numbers: of datagrams, by server and netdev, whose send times are asked for too.
        """
        self.begin()
        servers, observed = self._bench.servers, self._event
        gaps = observed is not None
        pending = []
        for name, wanted in stages.items():
            asked = numbers.get(name)
            settlement = servers[name].settle(wanted, timeout=timeout, gaps=gaps, departures=asked)
            pending.append((name, settlement))
        for _, settlement in pending:
            settlement.wait()  # a slew since another server's last reply shows in its next one
        answers = [(name, settlement.result()) for name, settlement in pending]
        for name, settled in answers:
            for event in settled.events:
                port = self._ports[name, event.port]
                if event.up:
                    self.up.add((port, event.stage))
                else:
                    self.up.discard((port, event.stage))
                if event.stage == "datagram" and event.up:
                    self._silences.pop(port, None)
                elif event.stage == "datagram":
                    self._silences[port] = event
            if observed is not None:
                observed.answered[name] = settled.answered
                observed.ages[name] = settled.age
                if settled.clock is not None:
                    observed.clocks[name] = settled.clock
                observed.changes += [(self._ports[name, e.port], e) for e in settled.events]
                observed.gaps += [(self._ports[name, gap.port], gap) for gap in settled.gaps]
                observed.late += [(self._ports[name, one.port], one) for one in settled.late]
            for netdev, heard in settled.heard.items():
                for stream, count in heard.items():
                    of = self._ports[name, netdev], stream
                    if observed is not None:
                        observed.received[of] += count - self._received.get(of, 0)
                    self._received[of] = count
            self._cross_checks += [
                (self._ports[name, event.port], event) for event in settled.cross_checks
            ]
        return answers


def await_packets(bench: Bench, plan_links: Iterable[Link], timeout: int = LINK_TIMEOUT) -> None:
    """Wait until both ends of each link hear the other's datagrams, at most `timeout` ns.

    For what connects over them next. A switch has done its part long before: `Fabric.apply` knows
    circuits alone, and may be used without servers. A connection that is begun too early repeats
    its first packet after 1, 3 and 7 s only (RFC 6298).

    Raises `LinksDownError`.
    """
    links = LinkObservation(bench)
    try:
        links.await_up({port for link in plan_links for port in (link.a, link.b)}, timeout)
    finally:
        links.pause()
