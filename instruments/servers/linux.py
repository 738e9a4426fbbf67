"""A Linux server, observed by a small program that is sent there and needs only python3."""

import base64
import contextlib
import itertools
import json
import threading
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from instruments.capabilities import Identity, LinkEvent, PortWatch, Settled, Stage
from instruments.clock import Clock, Span
from instruments.errors import DisconnectedError, GarbledError, InstrumentError, NoReplyError
from instruments.servers.commands import Commands
from instruments.servers.nic import NicTools
from instruments.servers.offset import ClockMap
from instruments.wire.shell import Shell
from instruments.wire.trace import Trace

BOOTSTRAP = (
    "import base64,sys,zlib;"
    "exec(compile(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())),"
    "'lightrig-probe','exec'))"
)
"""Runs the program that arrives as the first line of its input."""

GRACE = 10_000_000_000
"""How long an answer may be late, in ns, beyond what the request itself may take."""

UDP_PORT = 47_000


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
        self._numbers = itertools.count(1)
        self._run: _Run | None = None
        self._clocks = ClockMap()
        self._neighbours = neighbours
        self._identity: Identity | None = None
        self._commands: Commands | None = None

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
            self._clocks.same_clock = boot == _boot_id()
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

    def settle(self, stages: Mapping[str, Sequence[Stage]], *, timeout: int) -> "PendingSettlement":
        """Begin to wait for links; see `instruments.capabilities.Server`."""
        body = {"ports": {port: list(wanted) for port, wanted in stages.items()}}
        request = self._ask("settle", {**body, "timeout_ns": timeout}, timeout)
        return PendingSettlement(request, self._clocks, self._neighbours)

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
    def nic(self) -> NicTools:
        """What the server's own tools say of its NIC ports."""
        return NicTools(self.commands)

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

    def _ask(self, verb: str, body: Mapping[str, Any], patience: int = 0) -> "_Request":
        run = self._run
        if run is None or run.over:
            self._clocks = ClockMap()  # the server may have been started anew meanwhile
            self._run = run = _Run(self.name, self._shell, self._clock, self._trace, self._clocks)
        number = next(self._numbers)
        text = json.dumps({"id": number, "do": verb, **body}, separators=(",", ":"))
        request = _Request(run, number, text, self._clock, patience + GRACE)
        run.ask(request)
        return request


class _Run:
    """One run of the probe: the requests that wait for it end with it, and no others."""

    def __init__(
        self, name: str, shell: Shell, clock: Clock, trace: Trace, clocks: ClockMap
    ) -> None:
        self.name = name
        self._clock = clock
        self._trace = trace
        self._clocks = clocks
        self._lock = threading.Lock()
        self._pending: dict[int, _Request] = {}
        self._end: str | None = None
        self._channel = shell.start(
            [shell.python, "-u", "-c", BOOTSTRAP, "lightrig-probe", "1"], self
        )
        self._send(_program())

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._end is not None

    def ask(self, request: "_Request") -> None:
        """Send `request`, or resolve it if nobody is there to answer it."""
        with self._lock:
            end = self._end
            if end is None:
                self._pending[request.number] = request
        self._trace.sent(request.text)
        request.sent = self._clock.now()
        if end is None:
            self._send(request.text)
        else:
            self._lose(request, end)

    def close(self) -> None:
        """End it."""
        self._channel.close()

    def line(self, text: str) -> None:
        """Take one line from the probe."""
        received = self._clock.now()
        self._trace.received(text)
        try:
            answer = json.loads(text)
            number = int(answer["id"])
            there = (int(answer["at"][0]), int(answer["at"][1]))
            if "ok" not in answer and "error" not in answer:
                raise KeyError("ok")
        except (ValueError, KeyError, TypeError, IndexError):
            self._trace.remarked("not an answer of the probe")
            return
        with self._lock:
            request = self._pending.pop(number, None)
        if request is None:
            self._trace.remarked("set aside: nobody waits for it")
            return
        self._clocks.exchanged(request.sent, there[0], there[1], received)
        if "error" in answer:
            request.resolve(
                self.error(
                    InstrumentError,
                    "could not do what the probe was asked",
                    request.text,
                    ("answered", str(answer["error"])),
                )
            )
        elif isinstance(answer["ok"], dict):
            request.resolve(answer["ok"])
        else:
            request.resolve(self.garbled("no answer to what was asked", request, answer["ok"]))

    def ended(self, reason: str) -> None:
        """Learn that the probe or the way to it is gone."""
        self._trace.remarked(reason)
        with self._lock:
            self._end = reason
            lost, self._pending = list(self._pending.values()), {}
        for request in lost:
            self._lose(request, reason)

    def forget(self, request: "_Request") -> bool:
        """Stop waiting for `request`; False if its answer came just now."""
        with self._lock:
            return self._pending.pop(request.number, None) is not None

    def garbled(self, what: str, request: "_Request", answer: object) -> InstrumentError:
        """An error about an answer that the probe's protocol does not allow."""
        details = ("answered", str(answer)[:300])
        return self.error(GarbledError, f"answered something that is {what}", request.text, details)

    def error(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """An error about this server with the last lines of its trace."""
        trace = [line if len(line) <= 500 else f"{line[:500]} ..." for line in self._trace.tail()]
        return kind(self.name, problem, command=command, details=details, trace=trace)

    def _send(self, text: str) -> None:
        # Where it cannot be written, whoever reads from the channel learns why.
        with contextlib.suppress(OSError):
            self._channel.send(text)

    def _lose(self, request: "_Request", reason: str) -> None:
        problem = "ended the probe before it had answered"
        request.resolve(self.error(DisconnectedError, problem, request.text, ("because", reason)))


class _Request:
    """One request that the probe has not yet answered."""

    def __init__(self, run: _Run, number: int, text: str, clock: Clock, patience: int) -> None:
        self.run = run
        self.number = number
        self.text = text
        self.sent = 0
        self._patience = patience
        self._answered = clock.event()
        self._outcome: dict[str, Any] | InstrumentError | None = None

    def resolve(self, outcome: dict[str, Any] | InstrumentError) -> None:
        self._outcome = outcome
        self._answered.set()

    def result(self) -> dict[str, Any]:
        if not self._answered.wait(self._patience):
            if self.run.forget(self):
                raise self.run.error(
                    NoReplyError,
                    f"did not answer within {self._patience / 1e9:g} s",
                    self.text,
                    ("try", "is the server reachable, is its python3 older than 3.8?"),
                )
            self._answered.wait()
        if isinstance(self._outcome, InstrumentError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class PendingSettlement:
    """A wait for links that was begun."""

    def __init__(
        self, request: _Request, clocks: ClockMap, neighbours: Mapping[str, ClockMap]
    ) -> None:
        self._request = request
        self._clocks = clocks
        self._neighbours = neighbours

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
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise self._request.run.garbled(
                "no settlement of links", self._request, answer
            ) from error

    def _not_before(self, at: Span, boot: str, sent: int) -> Span:
        """Tighten `at`: a datagram that another server sent at its stamp `sent` did not arrive."""
        sender = self._neighbours.get(boot)
        if sender is None:
            return at
        return Span(max(at.earliest, sender.span(sent, sent).earliest), at.latest)


def _program() -> str:
    source = resources.files("instruments.servers").joinpath("probe.py").read_bytes()
    return base64.b64encode(zlib.compress(source)).decode()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
