"""A Linux server, observed by a small program that is sent there and needs only python3."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import (
    ClockStatus,
    Datagram,
    Diagnostic,
    FecSide,
    Gap,
    Identity,
    KernelReading,
    LateDatagram,
    LinkEvent,
    LinkUpTimes,
    ModuleLights,
    PortWatch,
    Settled,
    Stage,
)
from lightrig.instruments.core.errors import (
    CANNOT,
    ClockError,
    DeniedError,
    GarbledError,
    InstrumentError,
)
from lightrig.instruments.named_tuples import new_tuple
from lightrig.instruments.servers.host.commands import (
    DEFAULT_TIMEOUT,
    Commands,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.host.kernel_messages import LocalClock, kernel_lines
from lightrig.instruments.servers.host.offset import ClockMap, clock_error, jump_text
from lightrig.instruments.servers.host.program import GRACE, Program, ProgramRequest, ProgramRun
from lightrig.instruments.servers.ports.fec_errors import FecErrors
from lightrig.instruments.servers.ports.fec_histogram import FecHistogram
from lightrig.instruments.servers.ports.firmware_errors import FirmwareErrors
from lightrig.instruments.servers.ports.nic import NicTools
from lightrig.instruments.servers.ports.port_errors import PatternErrors, PortErrors, pattern_errors
from lightrig.instruments.servers.ports.traffic_counters import (
    TrafficCounts,
    read_counters,
    read_firmware_counters,
)
from lightrig.instruments.servers.tools import amd_violations, nvidia_clocks
from lightrig.instruments.servers.tools.gpu_clocks import GpuClocks
from lightrig.instruments.servers.tools.module_lights import (
    IDENTITY,
    MemoryReading,
    ModulePlace,
    lights,
    places_of,
)
from lightrig.instruments.wire.shell import (
    ForwardingShell,
    LocalShell,
    ReconnectingShell,
    Shell,
)
from lightrig.instruments.wire.trace import Trace

PROBE = Program(
    "lightrig-probe",
    "the probe",
    1,
    (
        "server_clock",
        "replies",
        "kernel_stamps",
        "probe_events",
        "probe_kernel",
        "probe_links",
        "probe_modules",
        "probe_datagrams",
        "probe",
    ),
    "a python3 of 3.8 or newer",
)

UDP_PORT = 47_000

_NOT_READABLE = "not_readable"
"""The kind of the probe's error, docs/probe.md."""

_NOTICED_TRANSIT = 1_000_000
"""Time on its way from which on a datagram may be lost long after it was sent, in ns."""


def transit_at_most(left: Span, came: Span) -> int:
    """Return how long a datagram was on its way at most, in ns; 0 for less than 1 ms.

    Where two clocks are not known well it may have been on its way for long: what has left before
    a change can be lost after it.
    """
    most = came.latest - left.earliest
    return most if most > _NOTICED_TRANSIT else 0


class LinuxServer:
    """A server whose links are watched by the probe program (docs/appendix/probe.md).

    Args:
        name: the server's name in the testbed.
        shell: starts programs there.
        clock: the bench's clock.
        neighbours: clock maps of all servers on the bench by boot id, shared by their drivers: a
            datagram carries its sender's stamps, which the receiver's driver has to map.
        become: whether tools run by `sudo -n`.
        first_answer_ns: time allowed for the probe's first answer.
        answer_ns: time allowed for each further answer, beside what the probe was asked to wait.
        program_ns: time allowed for a tool of which no other is stated.
    """

    def __init__(
        self,
        name: str,
        shell: Shell,
        clock: Clock,
        neighbours: dict[str, ClockMap],
        *,
        become: bool = False,
        first_answer_ns: int | None = None,
        answer_ns: int = GRACE,
        program_ns: int = DEFAULT_TIMEOUT,
    ) -> None:
        self._become = become
        self._first_answer = answer_ns if first_answer_ns is None else first_answer_ns
        self._answer = answer_ns
        self._program = program_ns
        self.name = name
        self._shell = shell
        self._clock = clock
        self._trace = Trace(clock)
        self._run: ProgramRun | None = None
        self._streams: dict[int, str] = {}
        self._clocks = ClockMap(name=self.name)
        self._neighbours = neighbours
        self._identity: Identity | None = None
        self.boot = ""
        self._kernel: _KernelLog | None = None
        self._commands: Commands | None = None

    def identity(self) -> Identity:
        """Return host name, kernel and Python of the server; starts the probe if necessary."""
        if self._identity is None or self._run is None or self._run.over:
            request = self._submit("hello", {}, self._first_answer - self._answer)
            hello = request.result()
            try:
                self.boot = boot = str(hello["boot"])
                self._identity = Identity(
                    "Linux",
                    f"kernel {hello['kernel']}",
                    str(hello["host"]),
                    f"python {hello['python']}",
                )
            except KeyError as error:
                raise request.run.garbled("no hello", request, hello) from error
            self.commands.greeting = next(iter(request.run.printed), "")
            self._clocks.same_clock = boot == this_boot_id()
            self._neighbours[boot] = self._clocks
        return self._identity

    def watch(
        self, ports: Sequence[PortWatch], *, period: int, datagram_period: int | None
    ) -> frozenset[tuple[str, Stage]]:
        """Start observing `ports`; see `instruments.capabilities.Server`."""
        datagrams = datagram_period and {"udp_port": UDP_PORT, "period_ns": datagram_period}
        request = self._submit(
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
        self,
        stages: Mapping[str, Sequence[Stage]],
        *,
        timeout: int,
        gaps: bool = False,
        departures: Mapping[str, Sequence[int]] | None = None,
    ) -> "PendingSettlement":
        """Start waiting for links; see `instruments.capabilities.Server`."""
        numbers = {netdev: list(each) for netdev, each in (departures or {}).items()}
        body: dict[str, Any] = {
            "ports": {port: list(wanted) for port, wanted in stages.items()},
            "timeout_ns": timeout,
        }
        if numbers:
            body["numbers"] = numbers
        request = self._submit("settle", body, timeout)
        return PendingSettlement(request, self._clocks, self._neighbours, numbers, gaps=gaps)

    def streams(self) -> Mapping[int, str]:
        """Return the netdev of each datagram stream; see `instruments.capabilities.Server`."""
        return self._streams

    def partners(self) -> Mapping[str, tuple[int, Span]]:
        """Return whose datagrams come to each netdev; see `HasPartners`."""
        request = self._submit("partners", {})
        answer = request.result()
        try:
            return {
                netdev: (int(found[0]), self._clocks.here(int(found[1])))
                for netdev, found in answer.items()
                if found is not None
            }
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise request.run.garbled("no partners of ports", request, answer) from error

    def unwatch(self) -> None:
        """Stop observing."""
        self._submit("unwatch", {}).result()
        self._streams = {}

    def reconnect(self) -> None:
        """Open a connection that has ended anew, and start the probe; see `Reconnectable`."""
        if isinstance(self._shell, ReconnectingShell):
            self._shell.reconnect()
        self._identity = None  # after a reboot it is another one, with a clock of its own
        self.identity()

    def clock_offset(self) -> tuple[Span, int]:
        """Return the server's clock minus the bench's, in ns, and the bench's time of that.

        The bounds are those of one request and reply, which take as long as they are apart.
        """
        request = self._submit("hello", {})
        request.result()
        sent, received_there, sent_there, received = self._clocks.last_exchange
        return Span(sent_there - received, received_there - sent), received

    @property
    def commands(self) -> Commands:
        """Runs programs on the server, one at a time."""
        if self._commands is None:
            become = ("sudo", "-n") if self._become else ()
            self._commands = Commands(
                self.name,
                self._shell,
                self._clock,
                become=become,
                supervises=True,
                timeout_ns=self._program,
            )
        return self._commands

    @property
    def nic(self) -> NicTools:
        """Readings of the server's NIC ports by its tools."""
        return NicTools(self.commands)

    def lit(self, netdevs: Sequence[str]) -> frozenset[str]:
        """Return the devices with a carrier; one that is missing has none."""
        request = self._submit("ports", {})
        answer = request.result()
        try:
            return frozenset(n for n in netdevs if n in answer and answer[n]["carrier"])
        except (KeyError, TypeError) as error:
            raise request.run.garbled("no list of ports", request, answer) from error

    def down(self, netdevs: Sequence[str]) -> frozenset[str]:
        """Return the devices that are administratively down or missing.

        Reading their carrier fails, so it is unknown whether they have light.
        """
        lines = (f"cat /sys/class/net/{n}/carrier >&2 || echo {n}" for n in netdevs)
        return frozenset(self.commands.run(["sh", "-c", "; ".join(lines)]).stdout.split())

    def kernel_messages(self) -> KernelReading:
        """Return what the kernel has logged since the last call; see `HasKernelMessages`.

        The probe reads it; where it may not and the server has `become`, another one by sudo.
        """
        if self._run is None:
            self.identity()
        log = self._kernel
        if log is None or (not log.separate and log.run is not self._run):
            self._close_kernel()
            log, request = self._open_kernel()
            self._kernel = log
        else:
            request = log.run.submit("messages", {}, self._answer - GRACE)
        answer = request.result()
        try:
            return kernel_lines(answer, log.local, self._clocks)
        except (KeyError, ValueError, TypeError) as error:
            raise log.run.garbled("no kernel messages", request, answer) from error

    def begin_module_reads(self, netdevs: Sequence[str], *, period: int) -> Mapping[str, str]:
        """Read transceivers over and over; see `HasModuleReads`."""
        asked: dict[str, list[list[int]]] = {}
        unread: dict[str, str] = {}
        for netdev in netdevs:
            request = self._submit("module", {"port": netdev, "read": list(IDENTITY)})
            try:
                (found,) = self._memory(request, [request.result().get("reading")])
            except InstrumentError as error:
                unread[netdev] = str(error).splitlines()[0]
                continue
            if places := places_of(found.data or b""):
                asked[netdev] = [list(place) for place in places]
            else:
                unknown = "it has neither CMIS pages, SFF-8636 nor SFF-8472"
                unread[netdev] = found.problem or unknown
        self._submit("read_modules", {"ports": asked, "period_ns": period}).result()
        return unread

    def end_module_reads(self) -> Mapping[str, ModuleLights]:
        """Read transceivers no more; see `HasModuleReads`."""
        request = self._submit("module_readings", {})
        found = self._memory(request, request.result().get("readings"))
        return {
            netdev: lights([one for one in found if one.netdev == netdev])
            for netdev in {one.netdev for one in found}
        }

    def _memory(self, request: ProgramRequest, found: Any) -> tuple[MemoryReading, ...]:
        try:
            return tuple(
                MemoryReading(
                    netdev,
                    ModulePlace(*place),
                    self._clocks.span(start, end),
                    None if text is None else bytes.fromhex(text),
                    problem,
                )
                for netdev, *place, start, end, text, problem in found
            )
        except (ValueError, TypeError) as error:
            raise request.run.garbled("no readings of modules", request, {}) from error

    def _open_kernel(self) -> "tuple[_KernelLog, ProgramRequest]":
        """Begin to read the kernel's log, by the account that may; raises `DeniedError`."""
        assert self._run is not None
        request = self._run.submit("messages", {}, self._first_answer - GRACE)
        try:
            request.result()
        except InstrumentError as error:
            if _NOT_READABLE not in str(error) or not self._become:
                raise _log_denied(self.name, error, become=self._become) from error
        else:
            return _KernelLog(self._run, LocalClock(), separate=False), request
        run = self.start(PROBE, self._trace, self._clocks, become=("sudo", "-n"))
        request = run.submit("messages", {}, self._first_answer - GRACE)
        try:
            request.result()
        except InstrumentError as error:
            run.close()
            raise _log_denied(self.name, error, become=True) from error
        return _KernelLog(run, LocalClock(), separate=True), request

    def _close_kernel(self) -> None:
        log, self._kernel = self._kernel, None
        if log is not None and log.separate:
            log.run.close()

    def start(
        self,
        program: Program,
        trace: Trace,
        clocks: ClockMap,
        on_event: Callable[[dict[str, Any], int], None] | None = None,
        become: Sequence[str] = (),
    ) -> ProgramRun:
        """Send `program` to the server and start it; see `ProgramRun`."""
        return ProgramRun(
            self.name, self._shell, self._clock, trace, clocks, program, on_event, become
        )

    def local_shell(self) -> LocalShell | None:
        """Return the shell with which a launcher here starts programs; None on another machine."""
        return self._shell if isinstance(self._shell, LocalShell) else None

    def forwarding_shell(self) -> ForwardingShell | None:
        """Return the shell whose programs can connect to this machine; None without SSH."""
        return self._shell if isinstance(self._shell, ForwardingShell) else None

    def gpu_clocks(self) -> tuple[GpuClocks, ...]:
        """Return why the GPUs' clocks are low, by nvidia-smi or, without it, amd-smi.

        Raises `ToolMissingError` without both, `ToolFailedError` where one does not reach the
        driver.
        """
        nvidia = [nvidia_clocks.command(field) for field in nvidia_clocks.FIELDS]
        amd = [amd_violations.command(option) for option in amd_violations.OPTIONS]
        try:
            return self._read_first(nvidia, nvidia_clocks.parse)
        except ToolMissingError:
            return self._read_first(amd, amd_violations.parse)

    def _read_first(
        self, commands: Sequence[list[str]], parse: Callable[[str], tuple[GpuClocks, ...]]
    ) -> tuple[GpuClocks, ...]:
        *newer, oldest = commands
        for command in newer:
            try:
                return self.commands.read(command, parse).value
            except ToolFailedError:
                pass  # unless the option was the reason, the next command fails as well
        return self.commands.read(oldest, parse).value

    def port_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> PortErrors:
        """Return the error counters of a NIC port's driver; see `PortErrorCounters`."""
        return PortErrors(port, self.nic, netdev, fec, rate_bps, self._clock)

    def port_counts(self, netdev: str, rdma: str | None) -> TrafficCounts:
        """Return what a NIC port has counted of its traffic; see `HasPortCounters`."""
        return read_counters(self.nic, netdev, rdma)

    def firmware_counts(self, rdma: str) -> TrafficCounts:
        """Return what a NIC's firmware has counted of its link; see `HasPortCounters`."""
        return read_firmware_counters(self.nic, rdma)

    def link_up_times(self, rdma: str) -> LinkUpTimes:
        """Return the firmware's timers of a port's last link-up; see `HasLinkUpTimes`."""
        return self.nic.link_up_times(rdma).value

    def fec_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> FecErrors:
        """Return the standard FEC counters of a NIC port; see `PortErrorCounters`."""
        return FecErrors(port, self.nic, netdev, fec, rate_bps, self._clock)

    def fec_histogram(self, port: str, netdev: str, rate_bps: float) -> FecHistogram:
        """Return the FEC histogram of a NIC port; see `HasFecHistograms`."""
        return FecHistogram(port, self.nic, netdev, rate_bps, self._clock)

    def module_diagnostics(self, port: str, netdev: str) -> tuple[tuple[Diagnostic, ...], Span]:
        """Return what the module of a NIC port measures; see `HasModuleDiagnostics`."""
        try:
            return self.nic.diagnostics(netdev)
        except (ToolFailedError, ToolMissingError) as error:
            text = f"the memory of its module cannot be read: {str(error).splitlines()[0]}"
            raise DeniedError(
                port, code=CANNOT, text=text, command=f"ethtool -m {netdev}"
            ) from error

    def firmware_errors(
        self, port: str, device: str, fec: FecSide, rate_bps: float
    ) -> FirmwareErrors:
        """Return the error counters of a NIC port's firmware; see `PortErrorCounters`."""
        return FirmwareErrors(port, self.nic, device, fec, rate_bps, self._clock)

    def pattern_errors(
        self, port: str, device: str, pattern: str, rate_bps: float
    ) -> AbstractContextManager[PatternErrors]:
        """Put two ports into test mode with a pattern; see `PortErrorCounters`."""
        return pattern_errors(port, self.nic, device, pattern, rate_bps, self._clock)

    def wire(self) -> list[str]:
        """Return the last lines exchanged with the probe."""
        return self._trace.tail(20)

    def close(self) -> None:
        """End the probe and close the connection to the server."""
        self._close_kernel()
        run, self._run = self._run, None
        if run is not None:
            run.close()
        self._shell.close()

    # ------------------------------------------------------------------------- inside

    def _submit(self, verb: str, body: Mapping[str, Any], duration: int = 0) -> ProgramRequest:
        run = self._run
        if run is None or run.over:
            self._clocks = ClockMap(
                name=self.name
            )  # the server may have rebooted, and its clock with it
            self._run = run = self.start(PROBE, self._trace, self._clocks)
        return run.submit(verb, body, duration + self._answer - GRACE)


class _KernelLog(NamedTuple):
    """What reads a server's kernel log. separate: whether it was started for that alone."""

    run: ProgramRun
    local: LocalClock
    separate: bool


def _log_denied(server: str, error: InstrumentError, *, become: bool) -> InstrumentError:
    """Return the error of a server whose kernel log cannot be read; others as they are."""
    text = str(error)
    if _NOT_READABLE not in text and not become:
        return error
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    labels = ("answered", "because", "printed")
    details = [(line[0], line[1]) for line in lines if len(line) > 1 and line[0] in labels]
    advice = (
        "`sysctl kernel.dmesg_restrict` there: where it is 1 this needs CAP_SYSLOG, as by "
        "`become: true` of the server in the testbed file"
    )
    return DeniedError(
        server,
        code=CANNOT,
        text="the log of its kernel is not readable by this account",
        command="messages",
        details=[*details[:2], ("try", advice)],
    )


class PendingSettlement:
    """A wait for links that is in progress on the server."""

    def __init__(
        self,
        request: ProgramRequest,
        clocks: ClockMap,
        neighbours: Mapping[str, ClockMap],
        numbers: Mapping[str, Sequence[int]],
        *,
        gaps: bool = False,
    ) -> None:
        self._request = request
        self._clocks = clocks
        self._neighbours = neighbours
        self._numbers = numbers
        self._gaps = gaps

    def wait(self) -> None:
        """Wait for the server's reply; raises `InstrumentError` if there is none."""
        self._request.result()

    def result(self) -> Settled:
        """Wait for the server's reply; return its events on the bench's clock."""
        answer = self._request.result()
        events: list[LinkEvent] = []
        cross_checks: list[LinkEvent] = []
        try:
            span = self._clocks.span
            for port, stage, up, earliest, latest, source, *datagram in answer["events"]:
                at = span(latest if earliest is None else earliest, latest)
                last = None
                if datagram and up:
                    at = self._not_before(at, *datagram[0])
                elif datagram:
                    last = self._datagram(*datagram[0])
                event = new_tuple(LinkEvent, (port, stage, up, at, source, last))
                (cross_checks if source == "netlink" else events).append(event)
            if self._gaps:
                self._check_steps(answer)
            return Settled(
                tuple(events),
                tuple((port, stage) for port, stage in answer["missing"]),
                tuple(cross_checks),
                {
                    port: (count["sent"], count["received"])
                    for port, count in answer.get("datagrams", {}).items()
                },
                partial(self._clocks.here, self._request.answered_there),
                tuple(filter(None, map(self._gap, answer.get("gaps", ()) if self._gaps else ()))),
                self._departures(answer["departures"]) if self._numbers else {},
                _clock_status(answer.get("clock")),
                {
                    port: {int(stream): n for stream, n in count.get("heard", {}).items()}
                    for port, count in answer.get("datagrams", {}).items()
                },
                tuple(LateDatagram(*each) for each in answer.get("late", ())),
                max(self._request.answered_there - int(answer.get("read", 1 << 62)), 0),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise self._request.run.garbled(
                "no settlement of links", self._request, answer
            ) from error

    def _check_steps(self, answer: Mapping[str, Any]) -> None:
        """Raise `ClockError` for a clock that stepped between the datagrams of an answer."""
        steps = answer.get("steps", ())
        if steps in ([], ()):
            return
        stamps = [gap[3] for gap in answer.get("gaps", ())]
        for _, stage, _, earliest, latest, *_ in answer["events"]:
            if stage == "datagram":
                stamps += earliest, latest
        for port, clock, earliest, latest, least, most in steps:
            if stamps and min(stamps) <= latest and earliest <= max(stamps):
                problem = f"stamps datagrams to {port} by {clock}, which {jump_text(least, most)}"
                raise clock_error(self._clocks.name, f"{problem} against its CLOCK_MONOTONIC")

    def _departures(
        self, stamps: Mapping[str, Sequence[int | None]]
    ) -> dict[str, list[Span | None]]:
        """Return when the wanted datagrams had been sent on the bench's clock."""
        found = {}
        for netdev, numbers in self._numbers.items():
            if len(stamps[netdev]) != len(numbers):
                raise ValueError("one stamp a number")
            found[netdev] = [None if at is None else self._clocks.here(at) for at in stamps[netdev]]
        return found

    def _datagram(self, stream: int, boot: str, number: int, sent: int) -> Datagram | None:
        """Return a datagram on the bench's clock; None if its sender is not on this bench."""
        sender = self._neighbours.get(boot)
        if sender is None:
            return None
        return new_tuple(Datagram, (stream, number, sender.here(sent)))

    def _gap(self, fields: Sequence[Any]) -> Gap | None:
        """Return a gap on the bench's clock; None if a sender is not on this bench."""
        port, last, (stream, boot, first, lost), received, backlog, *slowest = fields
        before, sender = self._datagram(*last), self._neighbours.get(boot)
        if before is None or sender is None:
            return None
        sent, came = sender.here(lost), self._clocks.here(received)
        transit = self._transit(last[1], *slowest[0]) if slowest else 0
        return Gap(port, *before, stream, first, sent, came, backlog, transit)

    def _transit(self, boot: str, sent: int, received: int) -> int:
        """Return how long a datagram was on its way at most, see `transit_at_most`."""
        try:
            left, came = self._neighbours[boot].here(sent), self._clocks.here(received)
        except ClockError:  # before a jump of a clock, which the gap may not be
            return 0
        return transit_at_most(left, came)

    def _not_before(self, at: Span, boot: str, sent: int) -> Span:
        """Tighten `at` by a lost datagram that another server sent at its stamp `sent`.

        The link was still down when that datagram was sent, so the change came later.
        """
        sender = self._neighbours.get(boot)
        if sender is None:
            return at
        return Span(max(at.earliest, sender.span(sent, sent).earliest), at.latest)


def this_boot_id() -> str:
    """Return the id of this boot of this machine: servers with the same id share a clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _clock_status(answer: Mapping[str, Any] | None) -> ClockStatus | None:
    """Return a kernel's status of its clock; raises KeyError, TypeError or ValueError."""
    if answer is None:
        return None
    if not isinstance(answer["synchronised"], bool):
        raise TypeError("synchronised is true or false")
    errors = int(answer["estimated_error_ns"]), int(answer["maximum_error_ns"])
    return ClockStatus(answer["synchronised"], float(answer["frequency_ppm"]), *errors)
