"""A Linux server, observed by a small program that is sent there and needs only python3."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from instruments.capabilities import FecSide, Gap, Identity, LinkEvent, PortWatch, Settled, Stage
from instruments.clock import Clock, Span
from instruments.errors import GarbledError
from instruments.servers.commands import Commands
from instruments.servers.firmware_errors import FirmwareErrors
from instruments.servers.nic import NicTools
from instruments.servers.offset import ClockMap
from instruments.servers.port_errors import PatternErrors, PortErrors, pattern_errors
from instruments.servers.program import Program, ProgramRequest, ProgramRun
from instruments.servers.routes import ServerRoutes
from instruments.wire.shell import Shell
from instruments.wire.trace import Trace

PROBE = Program("lightrig-probe", "the probe", 1, "probe.py", "a python3 of 3.8 or newer")

UDP_PORT = 47_000

_SELDOM = 20_000_000
"""How often ports are read that are watched for a moment only, in ns."""


class LinuxServer:
    """A server whose links are watched by the probe program (docs/probe.md).

    Args:
        name: the server's name in the testbed.
        shell: how programs are started there.
        clock: the bench's clock.
        neighbours: the clocks of all servers on the bench by boot id, shared by their drivers,
            since a datagram carries its sender's stamps.
    """

    def __init__(
        self, name: str, shell: Shell, clock: Clock, neighbours: dict[str, ClockMap]
    ) -> None:
        self.name = name
        self._shell = shell
        self._clock = clock
        self._trace = Trace(clock)
        self._run: ProgramRun | None = None
        self._streams: dict[int, str] = {}
        self._clocks = ClockMap()
        self._neighbours = neighbours
        self._identity: Identity | None = None
        self._commands: Commands | None = None
        self._routes: ServerRoutes | None = None

    def identity(self) -> Identity:
        """Host name, kernel and Python of the server; starts the probe if it is not running."""
        if self._identity is None or self._run is None or self._run.over:
            request = self._ask("hello", {})
            hello = request.result()
            try:
                boot: str = hello["boot"]
                self._identity = Identity(
                    "Linux",
                    f"kernel {hello['kernel']}",
                    str(hello["host"]),
                    f"python {hello['python']}",
                )
            except KeyError as error:
                raise request.run.garbled("no hello", request, hello) from error
            self._clocks.same_clock = boot == this_boot_id()
            self._neighbours[boot] = self._clocks
        return self._identity

    def watch(
        self, ports: Sequence[PortWatch], *, period: int, datagram_period: int | None
    ) -> frozenset[tuple[str, Stage]]:
        """Observe `ports` from now on; see `instruments.capabilities.Server`."""
        datagrams = datagram_period and {"udp_port": UDP_PORT, "period_ns": datagram_period}
        request = self._ask(
            "watch",
            {
                "ports": {port.netdev: {"rdma": port.rdma} for port in ports},
                "period_ns": period,
                "datagrams": datagrams or None,
            },
        )
        answer = request.result()
        self._streams = {token: netdev for netdev, token in answer.get("tokens", {}).items()}
        first: tuple[Stage, ...] = ("carrier", "firmware")
        try:
            return frozenset(
                (port.netdev, stage)
                for port in ports
                for stage in first
                if answer["state"][port.netdev][stage]
            )
        except (KeyError, TypeError) as error:
            raise GarbledError(
                self.name,
                "answered something that is no state of ports",
                command=request.text,
                details=[("answered", str(answer)[:300])],
            ) from error

    def settle(
        self, stages: Mapping[str, Sequence[Stage]], *, timeout: int, gaps: bool = False
    ) -> "PendingSettlement":
        """Begin to wait for links; see `instruments.capabilities.Server`."""
        body = {"ports": {port: list(wanted) for port, wanted in stages.items()}}
        request = self._ask("settle", {**body, "timeout_ns": timeout}, timeout)
        return PendingSettlement(request, self._clocks, self._neighbours, gaps=gaps)

    def streams(self) -> Mapping[int, str]:
        """Which netdev sends which stream of datagrams; see `instruments.capabilities.Server`."""
        return self._streams

    def departures(self, netdev: str, numbers: Sequence[int]) -> list[Span | None]:
        """When datagrams had been sent; see `instruments.capabilities.Server`."""
        request = self._ask("departures", {"port": netdev, "numbers": list(numbers)})
        answer = request.result()
        try:
            stamps = answer["at"]
            if len(stamps) != len(numbers):
                raise ValueError("one stamp a number")
            return [None if at is None else self._clocks.here(at) for at in stamps]
        except (KeyError, ValueError, TypeError) as error:
            raise request.run.garbled("no departures", request, answer) from error

    def unwatch(self) -> None:
        """Observe no more."""
        self._ask("unwatch", {}).result()
        self._streams = {}

    def clock_offset(self) -> tuple[Span, int]:
        """The server's clock minus the bench's, in ns, and when on the bench's clock that was.

        Bounds of one exchange alone: half as wide as it took.
        """
        request = self._ask("hello", {})
        request.result()
        sent, received_there, sent_there, received = self._clocks.last_exchange
        return Span(sent_there - received, received_there - sent), received

    @property
    def commands(self) -> Commands:
        """Programs on the server, run one at a time."""
        if self._commands is None:
            self._commands = Commands(self.name, self._shell, self._clock)
        return self._commands

    @property
    def routes(self) -> ServerRoutes:
        """An address of the server's own, and routes to those of others."""
        if self._routes is None:
            self._routes = ServerRoutes(self.commands)
        return self._routes

    @property
    def nic(self) -> NicTools:
        """What the server's own tools say of its NIC ports."""
        return NicTools(self.commands)

    def lit(self, netdevs: Sequence[str]) -> frozenset[str]:
        """Those of the devices that have a carrier now; what was watched is watched no more."""
        ports = [PortWatch(netdev, None) for netdev in netdevs]
        state = self.watch(ports, period=_SELDOM, datagram_period=None)
        self.unwatch()
        return frozenset(netdev for netdev, stage in state if stage == "carrier")

    def gone(self, netdevs: Sequence[str]) -> frozenset[str]:
        """Those of the devices that are down, or not there: nobody can say if they have light."""
        lines = (f"cat /sys/class/net/{n}/carrier >&2 || echo {n}" for n in netdevs)
        return frozenset(self.commands.run(["sh", "-c", "; ".join(lines)]).stdout.split())

    def start(
        self,
        program: Program,
        trace: Trace,
        clocks: ClockMap,
        told: Callable[[dict[str, Any], int], None] | None = None,
    ) -> ProgramRun:
        """Send `program` there and start it; see `ProgramRun`."""
        return ProgramRun(self.name, self._shell, self._clock, trace, clocks, program, told)

    def port_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> PortErrors:
        """What a NIC port's own counters say of wrong bits; see `PortErrorCounters`."""
        return PortErrors(port, self.nic, netdev, fec, rate_bps, self._clock)

    def firmware_errors(
        self, port: str, device: str, fec: FecSide, rate_bps: float
    ) -> FirmwareErrors:
        """What the firmware of a NIC port says of wrong bits; see `PortErrorCounters`."""
        return FirmwareErrors(port, self.nic, device, fec, rate_bps, self._clock)

    def pattern_errors(
        self, port: str, device: str, pattern: str, rate_bps: float
    ) -> AbstractContextManager[PatternErrors]:
        """A test pattern that two ports send each other; see `PortErrorCounters`."""
        return pattern_errors(port, self.nic, device, pattern, rate_bps, self._clock)

    def wire(self) -> list[str]:
        """The last lines exchanged with the probe."""
        return self._trace.tail(20)

    def close(self) -> None:
        """End the probe and the way to the server."""
        run, self._run = self._run, None
        if run is not None:
            run.close()
        self._shell.close()

    # ------------------------------------------------------------------- the exchange

    def _ask(self, verb: str, body: Mapping[str, Any], patience: int = 0) -> ProgramRequest:
        run = self._run
        if run is None or run.over:
            self._clocks = ClockMap()  # the server may have been started anew meanwhile
            self._run = run = self.start(PROBE, self._trace, self._clocks)
        return run.ask(verb, body, patience)


class PendingSettlement:
    """A wait for links that was begun."""

    def __init__(
        self,
        request: ProgramRequest,
        clocks: ClockMap,
        neighbours: Mapping[str, ClockMap],
        *,
        gaps: bool = False,
    ) -> None:
        self._request = request
        self._clocks = clocks
        self._neighbours = neighbours
        self._gaps = gaps

    def result(self) -> Settled:
        """Wait for the server's answer; its stamps mapped to the bench's clock."""
        answer = self._request.result()
        events: list[LinkEvent] = []
        cross_checks: list[LinkEvent] = []
        try:
            for port, stage, up, earliest, latest, source, *lost in answer["events"]:
                at = self._clocks.span(latest if earliest is None else earliest, latest)
                if lost:
                    at = self._not_before(at, *lost[0])
                event = LinkEvent(port, stage, up, at, source)
                (cross_checks if source == "netlink" else events).append(event)
            return Settled(
                tuple(events),
                tuple((port, stage) for port, stage in answer["missing"]),
                tuple(cross_checks),
                {
                    port: (count["sent"], count["received"])
                    for port, count in answer.get("datagrams", {}).items()
                },
                tuple(filter(None, map(self._gap, answer.get("gaps", ()) if self._gaps else ()))),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise self._request.run.garbled(
                "no settlement of links", self._request, answer
            ) from error

    def _gap(self, fields: Sequence[Any]) -> Gap | None:
        """A gap on the bench's clock; None where a sender is not of this bench."""
        port, (last_stream, last_boot, last, sent), (stream, boot, first, lost), received = fields
        old, new = self._neighbours.get(last_boot), self._neighbours.get(boot)
        if old is None or new is None:
            return None
        return Gap(
            port,
            last_stream,
            last,
            old.here(sent),
            stream,
            first,
            new.here(lost),
            self._clocks.here(received),
        )

    def _not_before(self, at: Span, boot: str, sent: int) -> Span:
        """Tighten `at`: a datagram that another server sent at its stamp `sent` did not arrive."""
        sender = self._neighbours.get(boot)
        if sender is None:
            return at
        return Span(max(at.earliest, sender.span(sent, sent).earliest), at.latest)


def this_boot_id() -> str:
    """What tells this machine's clock, since it was started, from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
