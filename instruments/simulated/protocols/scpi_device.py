"""Device side of SCPI: a base class for instruments, declared by command table.

A device class lists its parameters and commands as its manual does:

    class Meter(ScpiDevice):
        wavelength = Number("SENSe:WAVelength", default=1550e-9, ..., units=METRES)

        @command("READ?")
        def read(self) -> str: ...

A pattern is written as in manuals: `SENSe#[:CHANnel#]:POWer[:DC]:WAVelength`. Capitals are the
short form, `#` is a numeric suffix, brackets are a node that may be left out. Queries end with
`?`. A handler gets the arguments of its command as strings; too few or too many are answered by
the errors of the standard. Written from SCPI-99 and IEEE 488.2.
"""

import inspect
import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.commands import (
    CommandQueue,
    Constant,
    Ignored,
    Query,
    command,
    declared_commands,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection, SessionFactory
from lightrig.instruments.simulated.protocols.scpi_values import (
    OUT_OF_RANGE,
    Parameter,
    ScpiError,
    ScpiNode,
    number,
)

PROCESSING = 200_000
"""Time that an instrument takes for one command, in ns, unless its model states another."""

MISSING_PARAMETER = (-109, "Missing parameter")
NOT_ALLOWED = (-108, "Parameter not allowed")
UNDEFINED_HEADER = (-113, "Undefined header")

_OPERATION_COMPLETE, _POWER_ON = 1, 1 << 7
_ERROR_BITS = {1: 1 << 5, 2: 1 << 4, 3: 1 << 3, 4: 1 << 2}
"""Command, execution, device-dependent and query errors, by the hundreds of their codes."""
_ERRORS_QUEUED, _EVENT_SUMMARY = 1 << 2, 1 << 5


@dataclass(frozen=True, slots=True)
class DelayedReply:
    """Reply, or end of a command without one, that comes later.

    Attributes:
        after: delay in ns.
        finish: called at that moment; returns the reply, None for a command that has none.
    """

    after: int
    finish: Callable[[], str | bytes | None] = lambda: None


Reply: TypeAlias = str | bytes | DelayedReply | None


class ErrorQueue:
    """The error queue: first in, first out; the last entry of a full one reports the overflow."""

    def __init__(
        self, depth: int = 30, *, form: str = '{code:+d},"{text}"', empty: str = "No error"
    ) -> None:
        self._depth = depth
        self._form = form
        self._empty = empty
        self._entries: deque[tuple[int, str]] = deque()

    def put(self, code: int, text: str) -> None:
        """Append an entry; a full queue replaces its last one by an overflow."""
        if len(self._entries) < self._depth:
            self._entries.append((code, text))
        else:
            self._entries[-1] = (-350, "Queue overflow")

    def take(self) -> str:
        """Remove and return the oldest entry, in the instrument's format."""
        code, text = self._entries.popleft() if self._entries else (0, self._empty)
        return self._form.format(code=code, text=text)

    def clear(self) -> None:
        """Discard all entries."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class StatusRegisters:
    """The status registers of every IEEE 488.2 instrument (section 11).

    Attributes:
        events: standard event status register, read and cleared by *ESR?.
        event_enable: events that are summed up in the status byte (*ESE).
        service_enable: bits of the status byte that request service (*SRE).
    """

    def __init__(self) -> None:
        self.events = _POWER_ON
        self.event_enable = 0
        self.service_enable = 0

    def set_error(self, code: int) -> None:
        """Set the event bit of an entry of the error queue."""
        self.events |= _ERROR_BITS.get(abs(code) // 100, _ERROR_BITS[3])

    def take_events(self) -> int:
        """Read the events, which clears them."""
        events, self.events = self.events, 0
        return events

    def status_byte(self, *, errors: bool) -> int:
        """Return the status byte; `errors` is whether the error queue has entries."""
        summary = _EVENT_SUMMARY if self.events & self.event_enable else 0
        return summary | (_ERRORS_QUEUED if errors else 0)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One pattern of a command table.

    Attributes:
        of_channel: whether it belongs to the channel that the suffixes select, not to the device.
        arguments: least and greatest number of arguments.
        run: carries the command out on the device or the channel.
    """

    pattern: re.Pattern[str]
    of_channel: bool
    arguments: tuple[int, float]
    run: Callable[[ScpiNode, tuple[str, ...]], Reply]


class ScpiDevice(ScpiNode):
    """Base of simulated SCPI instruments: sessions, common commands, status and error queue.

    Subclasses declare parameters and commands; those of a `channel_type` belong to the channel
    that the numeric suffixes of a header select.

    Args:
        name: name of the instrument in the testbed.
        identity: reply to `*IDN?`.
    """

    channel_type: ClassVar[type[ScpiNode] | None] = None
    schemes: ClassVar[tuple[str, ...]] = ("scpi",)
    session_mark: str = "#"
    reply_end: bytes = b"\n"
    processing: ClassVar[int] = PROCESSING
    error_queue_depth: ClassVar[int] = 30
    error_format: ClassVar[str] = '{code:+d},"{text}"'
    no_error: ClassVar[str] = "No error"
    _table: ClassVar[tuple[_Entry, ...]] = ()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._table = _table(cls, cls.channel_type)

    def __init__(self, name: str, clock: Clock, identity: str) -> None:
        super().__init__()
        self.name = name
        self.clock = clock
        self.identity = identity
        self.errors = ErrorQueue(
            self.error_queue_depth, form=self.error_format, empty=self.no_error
        )
        self.status = StatusRegisters()
        self._found: dict[str, tuple[_Entry, tuple[int, ...]]] = {}

    # -------------------------------------------------------------------------- to override

    def channel(self, suffixes: tuple[int, ...]) -> ScpiNode:
        """Return the channel that a header's suffixes select; raise `ScpiError`."""
        raise NotImplementedError

    def reset(self) -> None:
        """Carry out `*RST`: all parameters to their defaults."""
        self.reset_parameters()

    def response(self, replies: Sequence[bytes]) -> bytes:
        """Return the response to a message whose queries have `replies`."""
        return b";".join(replies) + self.reply_end

    def about_to_send(self, reply: bytes) -> None:
        """Take note of a reply at the moment at which it is written."""

    # ----------------------------------------------------------------------------- sessions

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of each wire scheme; HiSLIP may carry SCPI as well."""
        return dict.fromkeys(self.schemes, self.session)

    def session(self, connection: DeviceConnection, index: int) -> "ScpiServerSession":
        """Open the session of a new client."""
        return ScpiServerSession(self, connection, f"{self.name}{self.session_mark}{index:04d}")

    def execute(self, header: str, arguments: tuple[str, ...]) -> Reply:
        """Carry out one command; `header` is in upper case. Raises `ScpiError`."""
        entry, suffixes = self._find(header)
        node = self.channel(suffixes) if entry.of_channel else self
        least, greatest = entry.arguments
        if len(arguments) < least:
            raise ScpiError(*MISSING_PARAMETER)
        if len(arguments) > greatest:
            raise ScpiError(*NOT_ALLOWED)
        return entry.run(node, arguments)

    def report(self, error: ScpiError) -> None:
        """Put an error into the queue and set its status bit."""
        self.errors.put(error.code, error.text)
        self.status.set_error(error.code)

    def _find(self, header: str) -> tuple[_Entry, tuple[int, ...]]:
        """Return the table's entry for a header, and its suffixes, 1 where left out."""
        if header not in self._found:
            for entry in self._table:
                match = entry.pattern.fullmatch(header)
                if match is not None:
                    suffixes = tuple(int(suffix or 1) for suffix in match.groups())
                    self._found[header] = entry, suffixes
                    break
            else:
                raise ScpiError(*UNDEFINED_HEADER)
        return self._found[header]

    # ---------------------------------------------------------------------- common commands

    _query_identity = Query("*IDN?", reply=lambda self: self.identity)
    _query_operation_complete = Constant("*OPC?", reply="1")

    @command("*OPC")
    def _set_operation_complete(self) -> None:
        self.status.events |= _OPERATION_COMPLETE

    _wait = Ignored("*WAI")
    """Do nothing: commands are carried out one after the other anyway."""

    @command("*CLS")
    def _clear_status(self) -> None:
        self.errors.clear()
        self.status.take_events()

    @command("*RST")
    def _reset(self) -> None:
        self.reset()

    _self_test = Constant("*TST?", reply="0")
    _query_events = Query("*ESR?", reply=lambda self: self.status.take_events())

    @command("*STB?")
    def _query_status_byte(self) -> str:
        return str(self.status.status_byte(errors=bool(self.errors)))

    _query_event_enable = Query("*ESE?", reply=lambda self: self.status.event_enable)

    @command("*ESE")
    def _set_event_enable(self, text: str) -> None:
        self.status.event_enable = _byte(text)

    _query_service_enable = Query("*SRE?", reply=lambda self: self.status.service_enable)

    @command("*SRE")
    def _set_service_enable(self, text: str) -> None:
        self.status.service_enable = _byte(text)

    @command("SYSTem:ERRor[:NEXT]?")
    def next_error(self) -> str:
        """Remove and return the oldest entry of the error queue."""
        return self.errors.take()


def _byte(text: str) -> int:
    value = round(number(text))
    if not 0 <= value <= 255:
        raise ScpiError(*OUT_OF_RANGE)
    return value


# ------------------------------------------------------------------------- the command table


def _table(device: type, channel: type | None) -> tuple[_Entry, ...]:
    """Return all patterns that a device class and its channel class declare."""
    nodes = [(device, False), *([] if channel is None else [(channel, True)])]
    entries = [
        _Entry(_compiled(pattern), of_channel, _argument_count(getattr(node, name)), _call(name))
        for node, of_channel in nodes
        for pattern, name in declared_commands(node).items()
    ]
    # Parameters come last, so that a command may replace the query or the setting of one.
    for node, of_channel in nodes:
        for _, member in inspect.getmembers(node, lambda each: isinstance(each, Parameter)):
            for pattern in member.patterns:
                query = _compiled(f"{pattern}?")
                entries.append(_Entry(_compiled(pattern), of_channel, (1, 1), member.write))
                entries.append(_Entry(query, of_channel, (0, math.inf), member.query))
    return tuple(entries)


def _call(name: str) -> Callable[[ScpiNode, tuple[str, ...]], Reply]:
    """Return what calls the method of that name, found when it is called: it may be overridden."""

    def call(node: ScpiNode, arguments: tuple[str, ...]) -> Reply:
        reply: Reply = getattr(node, name)(*arguments)
        return reply

    return call


def _argument_count(method: Callable[..., object]) -> tuple[int, float]:
    if isinstance(method, Query):
        return 0, 0
    parameters = list(inspect.signature(method).parameters.values())[1:]
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return len(needed), math.inf
    return len(needed), len(parameters)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = re.sub(r"^\[:([^]]*)\]:", r"[\1:]", pattern)  # a header begins with no colon
    text = ""
    for piece in re.findall(r"\[:?[A-Za-z#]+:?\]|[*A-Za-z]+#?|[:?]", pattern):
        if piece in {":", "?"}:
            text += re.escape(piece)
        elif piece.startswith("["):
            inner = piece[1:-1]
            colons = ":" if inner.startswith(":") else "", ":" if inner.endswith(":") else ""
            text += f"(?:{colons[0]}{_node(inner.strip(':'))}{colons[1]})?"
        else:
            text += _node(piece)
    return re.compile(text)


def _node(name: str) -> str:
    number = r"(\d*)" if name.endswith("#") else ""
    name = name.removesuffix("#")
    short = re.match(r"[*A-Z]*", name)
    assert short is not None
    forms = {re.escape(name.upper()), re.escape(short[0] or name.upper())}
    return f"(?:{'|'.join(sorted(forms, key=len, reverse=True))}){number}"


class ScpiServerSession:
    """Device end of one client's SCPI session.

    Args:
        connection: where replies are written.
        owner: name of the session on the clock's agenda.
    """

    def __init__(self, device: ScpiDevice, connection: DeviceConnection, owner: str) -> None:
        self._device = device
        self._connection = connection
        self._owner = owner
        self._buffer = b""
        self._replies: list[bytes] = []
        self._queue = CommandQueue(device.clock, owner, device.processing, self._execute)

    def received(self, data: bytes) -> None:
        """Take bytes; a line feed or a carriage return ends a program message."""
        *messages, self._buffer = re.split(rb"[\r\n]+", self._buffer + data)
        for message in filter(None, messages):
            self._queue.add(_absolute(message.decode("ascii", "replace")))

    def closed(self) -> None:
        """Discard commands that were not begun."""
        self._queue.clear()

    def _execute(self, text: str) -> None:
        if text == _MESSAGE_END:
            if self._replies:
                response = self._device.response(self._replies)
                self._replies = []
                self._device.about_to_send(response)
                self._connection.send(response)
            self._queue.done()
            return
        header, _, rest = text.partition(" ")
        reply: Reply = None
        try:
            reply = self._device.execute(header.upper(), split_arguments(rest))
        except ScpiError as error:
            self._device.report(error)
        if isinstance(reply, DelayedReply):
            delayed = reply
            clock = self._device.clock
            clock.schedule(clock.now() + delayed.after, self._owner, lambda: self._finish(delayed))
            return
        self._collect(reply)
        self._queue.done()

    def _finish(self, delayed: DelayedReply) -> None:
        self._collect(delayed.finish())
        self._queue.done()

    def _collect(self, reply: str | bytes | None) -> None:
        """Keep a reply until the end of its message: one message has one response."""
        if reply is not None:
            self._replies.append(reply.encode() if isinstance(reply, str) else reply)


_MESSAGE_END = "\n"


def _absolute(message: str) -> list[str]:
    """Return the commands of one program message with absolute headers, and an end mark.

    After a semicolon a header without a leading colon goes on from the path before it
    (SCPI-99 volume 1, section 6.2.4).
    """
    path = ""
    commands = []
    for unit in re.split(r";(?=(?:[^\"']|\"[^\"]*\"|'[^']*')*$)", message):
        text = unit.strip()
        if not text:
            continue
        header, space, rest = text.partition(" ")
        if header.startswith("*"):
            commands.append(text)
            continue
        full = header[1:] if header.startswith(":") else path + header
        path = full.rpartition(":")[0] + ":" if ":" in full else ""
        commands.append(f"{full}{space}{rest}")
    return [*commands, _MESSAGE_END]


def split_arguments(text: str) -> tuple[str, ...]:
    """Split at commas that are not within quotes or parentheses."""
    parts = re.findall(r"(?:\([^)]*\)|\"[^\"]*\"|'[^']*'|[^,])+", text.strip())
    return tuple(part.strip() for part in parts)


def block(data: bytes) -> bytes:
    """`data` as a definite-length block (IEEE 488.2, section 8.7.9)."""
    length = str(len(data)).encode()
    return b"#" + str(len(length)).encode() + length + data
