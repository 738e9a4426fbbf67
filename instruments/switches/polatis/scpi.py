"""A Polatis over SCPI (TCP 5025, or a serial line)."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, NoReplyError
from lightrig.instruments.switches.polatis.session import (
    WINDOWS,
    PatchOperation,
    Readings,
    Received,
    ReroutingSession,
    Voa,
    garbled,
    level,
    monitored_by_code,
    not_replaced,
)
from lightrig.instruments.wire.framing import Lines, Scpi
from lightrig.instruments.wire.pipelined import Pipeline, PipelinedReply
from lightrig.instruments.wire.scpi import ScpiReply, ScpiResync, ScpiSession
from lightrig.instruments.wire.session import PendingReply
from lightrig.instruments.wire.stream import serial_stream
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds import Circuit

PORT = 5025
MOST_READINGS = 256
"""Largest number of ports in one power query."""

_IN_USE = (
    "a port in the command is in use",
    "take its circuit down, or say `options: {rerouting: true}` if this switch moves it",
)
_MEANINGS = {
    -221: _IN_USE,
    -222: (
        "a port in the command does not exist on this switch",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    -241: ("a port in the command has no power monitor", "options: {monitors: ...}"),
}
"""Meaning of the error codes at the bench and what to try."""

_LIST = r"\(@([\d,\s]*)\)"


class PolatisScpi(ReroutingSession):
    """One SCPI session.

    A change is one message, `conn:sub` and `conn:add` with their lists, which name the testbed's
    ports and no others. `conn:only` would be one command too, but it takes down every circuit that
    it does not name, also those that another program has made since the switch was read. Set
    commands have no reply, so `*OPC?` follows them in the same message and is answered when they
    were carried out; the error queue, cleared before, tells whether they were accepted.

    There are no published commands for the monitors' averaging, which is taken as stated, and
    for attenuators, which need another wire.

    Source: commands as six independent drivers use them. Unconfirmed: the codes of errors.
    """

    unrelated_codes = frozenset({"-109", "-113", "-220", "-222"})

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        clock: Clock,
        *,
        rerouting: bool | None,
        averaging: int,
        baud: int,
    ) -> None:
        self._name = name
        self._clock = clock
        super().__init__(rerouting)
        self._window = WINDOWS[averaging]
        self._pipeline: Pipeline | None = None
        if endpoint.scheme == "serial":
            self._scpi = ScpiSession(
                name,
                lambda: serial_stream(name, endpoint.resource, clock, baud=baud),
                clock,
                meanings=_MEANINGS,
                end="\r\n",
                resync=ScpiResync(end="\r\n"),
                wire=str(endpoint),
                framing=Lines(b"\r"),  # a line feed behind it begins the next line, and is skipped
                timeouts=endpoint.timeouts,
            )
            return
        host, port = endpoint.host, endpoint.port or PORT
        connecting = endpoint.timeouts.connect_seconds(CONNECT_TIMEOUT)
        self._pipeline = Pipeline(name, host, port, clock, Scpi(), connect_timeout=connecting)
        self._scpi = ScpiSession(
            name,
            self._pipeline.open,
            clock,
            meanings=_MEANINGS,
            wire=f"scpi://{host}:{port}",
            timeouts=endpoint.timeouts,
        )

    @property
    def trace(self) -> Trace:
        """Trace of what went over the wire."""
        return self._scpi.trace

    def ask(self, command: str) -> str:
        """See `ScpiSession.ask`."""
        return self._scpi.ask(command)

    def identity(self) -> Identity:
        """Return manufacturer, product code, serial number and software version."""
        fields = [field.strip() for field in self._query("*IDN?").text.split(",")]
        if len(fields) != 4:
            raise self._garbled(fields, "identity")
        return Identity(*fields)

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress and of egress ports."""
        answer = self._query(":OXC:SWIT:SIZE?").text
        size = re.fullmatch(r"(\d+)\s*,\s*(\d+)", answer)
        if size is None:
            raise self._garbled(answer, "size")
        return int(size[1]), int(size[2])

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit that the switch reports now."""
        answer = self._query(":OXC:SWIT:CONN:STAT?").text
        lists = re.fullmatch(rf"{_LIST}\s*,\s*{_LIST}", answer)
        sides = [_numbers(side) for side in lists.groups()] if lists else [[], [0]]
        if len(sides[0]) != len(sides[1]):
            raise self._garbled(answer, "list of circuits")
        return frozenset(Circuit(*pair) for pair in zip(*sides, strict=True))

    def _change(
        self, remove: Collection[Circuit], add: Collection[Circuit], *, rerouting: bool
    ) -> PatchOperation:
        dropped = not_replaced(remove, add) if rerouting else sorted(remove)
        commands = [
            f":OXC:SWIT:CONN:{what} {_list(pair.ingress for pair in pairs)},"
            f"{_list(pair.egress for pair in pairs)}"
            for what, pairs in (("SUB", dropped), ("ADD", sorted(add)))
            if pairs
        ]
        return PatchOperation([self._begin(";".join(commands))] if commands else [], self._clock)

    def monitored(self) -> frozenset[int]:
        """Return the ports that have a power monitor, by the product code."""
        return monitored_by_code(self.identity().model, self.size())

    def powers(self, ports: Sequence[int]) -> Readings:
        """Return the power at `ports`; a long list takes several queries."""
        dbm: dict[int, float] = {}
        received = self._clock.now()
        for begin in range(0, len(ports), MOST_READINGS):
            some = ports[begin : begin + MOST_READINGS]
            reply = self._query(f":PMON:POW? {_list(some)}")
            shown = re.fullmatch(r"\((.*)\)", reply.text)
            try:
                readings = [level(each) for each in (shown[1] if shown else "?").split(",")]
                dbm.update(zip(some, readings, strict=True))
            except ValueError as error:
                raise self._garbled(reply.text, "power reading") from error
            received = reply.received
        return Readings(dbm, received)

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Return the averaging window of each monitor in ns, as stated: there is no query."""
        return dict.fromkeys(ports, self._window)

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether each shutter is open; one that has failed is not."""
        answer = self._query(f":OXC:SWIT:PORT:STAT? {_list(ports)}").text
        states = answer.strip("()").replace(" ", "").split(",")
        if len(states) != len(ports) or not {"E", "D", "F"} >= set(states):
            raise self._garbled(answer, "state of shutters")
        return {port: state == "E" for port, state in zip(ports, states, strict=True)}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open or close shutters."""
        self._begin(f":OXC:SWIT:PORT:{'ENAB' if is_open else 'DIS'} {_list(ports)}").result()

    def attenuation_kind(self) -> str | None:
        """Return None: this wire has no query for it."""
        return None

    def voa(self, egress: int) -> Voa:
        """Raise `DeniedError`: no command for it is published."""
        raise self._without_voa(egress)

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Raise `DeniedError`: no command for it is published."""
        raise self._without_voa(egress)

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _query(self, query: str) -> ScpiReply:
        """Return the reply to `query`; where none comes, the error queue may tell why."""
        try:
            return self._scpi.query(query)
        except NoReplyError as silence:
            self._raise_on_error(query, silence)
            raise

    def _begin(self, commands: str) -> "_Acknowledgement":
        """Send commands that have no reply, with `*OPC?` behind them as acknowledgement."""
        message = f"*CLS;{commands};*OPC?"
        reply: PipelinedReply | PendingReply
        if self._pipeline is None:
            reply = self._scpi.submit(message)
        else:
            reply = self._pipeline.submit(self._scpi, lambda: self._scpi.write(message), commands)
        return _Acknowledgement(reply, commands, self._check)

    def _check(self, answer: bytes, commands: str) -> None:
        if answer.strip() != b"1":
            self._scpi.close()
            raise self._garbled(answer.decode("ascii", "backslashreplace"), "acknowledgement")
        self._raise_on_error(commands)

    def _raise_on_error(self, commands: str, cause: Exception | None = None) -> None:
        """Raise `DeniedError` for the oldest entry of the error queue, if there is one."""
        for code, text in self._scpi.errors()[:1]:
            raise self._scpi.denied(code, text, commands) from cause

    def _without_voa(self, egress: int) -> DeniedError:
        return DeniedError(
            self._name,
            code=CANNOT,
            text="no SCPI command for attenuators is published",
            command=f"attenuation at {egress}",
            details=[("try", "address: tl1://, netconf:// or restconf://")],
        )

    def _garbled(self, answered: object, what: str) -> GarbledError:
        return garbled(self._name, self.trace, answered, what)


class _Acknowledgement:
    """A message whose `*OPC?` is answered when all of it was carried out."""

    def __init__(
        self,
        reply: PipelinedReply | PendingReply,
        commands: str,
        check: Callable[[bytes, str], None],
    ) -> None:
        self._reply = reply
        self._commands = commands
        self._check = check
        self.sent: Span = reply.sent

    def result(self) -> Received:
        """Wait for the reply; raises `DeniedError` for an entry of the error queue."""
        answer = self._reply.result()
        self._check(answer.data, self._commands)
        return answer


def _list(ports: Iterable[int]) -> str:
    return f"(@{','.join(map(str, ports))})"


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each.strip()]
