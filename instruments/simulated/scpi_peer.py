"""An instrument's end of SCPI: program messages, headers, the error queue, answers.

What commands do is a model's part. Written from SCPI-99 and IEEE 488.2.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from instruments.clock import Clock
from instruments.simulated.peer_server import PeerConnection
from instruments.simulated.scpi_status import OPERATION_COMPLETE, StatusRegisters

PROCESSING = 200_000
"""How long an instrument takes over one command, in ns, unless its model says otherwise."""


@dataclass(frozen=True, slots=True)
class ScpiRequest:
    """One command of a program message.

    Attributes:
        header: as it came, in upper case, without leading colon and question mark.
        suffixes: the numbers at the header's nodes marked `#` in the pattern, 1 where left out.
        arguments: what follows, split at commas outside quotes and parentheses.
    """

    header: str
    suffixes: tuple[int, ...]
    arguments: tuple[str, ...]


class ScpiError(Exception):
    """The instrument objects: an entry for its error queue."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


UNDEFINED_HEADER = (-113, "Undefined header")
MISSING_PARAMETER = (-109, "Missing parameter")
OUT_OF_RANGE = (-222, "Data out of range")
ILLEGAL_VALUE = (-224, "Illegal parameter value")


@dataclass(frozen=True, slots=True)
class Later:
    """An answer, or the end of a command without one, that takes its time.

    Attributes:
        after: in how many ns.
        text: the answer, None for a command that has none.
        then: what happens at that moment, before the answer is written.
    """

    after: int
    text: str | bytes | None = None
    then: Callable[[], None] = lambda: None


Handler: TypeAlias = Callable[[ScpiRequest], str | bytes | Later | None]


class ErrorQueue:
    """The error queue: first in, first out, and the last entry says when it was too many."""

    def __init__(self, depth: int = 30, *, form: str = '{code:+d},"{text}"') -> None:
        self._depth = depth
        self._form = form
        self._entries: deque[tuple[int, str]] = deque()

    def put(self, code: int, text: str) -> None:
        """Add an entry; a full queue notes an overflow in its last place."""
        if len(self._entries) < self._depth:
            self._entries.append((code, text))
        else:
            self._entries[-1] = (-350, "Queue overflow")

    def take(self) -> str:
        """The oldest entry, as the instrument words it."""
        code, text = self._entries.popleft() if self._entries else (0, "No error")
        return self._form.format(code=code, text=text)

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class ScpiCommands:
    """What an instrument understands: handlers by header pattern.

    A pattern is written as manuals do: `SENSe#:POWer[:DC]:WAVelength`. Capitals are the short
    form, `#` marks a node that may carry a number, brackets a node that may be left out.
    Queries have a pattern of their own, which ends with `?`.

    Args:
        identity: what `*IDN?` answers.
        reset: what `*RST` does.
        errors: the queue; sessions share it.
    """

    def __init__(
        self,
        identity: str,
        *,
        reset: Callable[[], None] = lambda: None,
        errors: ErrorQueue | None = None,
        error_query: str = "SYSTem:ERRor[:NEXT]?",
    ) -> None:
        self.errors = ErrorQueue() if errors is None else errors
        self.status = StatusRegisters()
        self._patterns: list[tuple[re.Pattern[str], Handler]] = []
        self._found: dict[str, tuple[Handler, tuple[int, ...]]] = {}
        self.add("*IDN?", lambda _: identity)
        self.add("*OPC?", lambda _: "1")
        self.add("*OPC", lambda _: self._complete())
        self.add("*WAI", lambda _: None)
        self.add("*CLS", lambda _: self._clear())
        self.add("*RST", lambda _: reset())
        self.add("*TST?", lambda _: "0")
        self.add("*ESR?", lambda _: str(self.status.take_events()))
        self.add("*STB?", lambda _: str(self.status.byte(errors=bool(self.errors))))
        for name, register in (("*ESE", "enabled"), ("*SRE", "requesting")):
            self.add(f"{name}?", partial(self._register, register))
            self.add(name, partial(self._set_register, register))
        self.add(error_query, lambda _: self.errors.take())

    def failed(self, error: ScpiError) -> None:
        """Note what went wrong in the queue and in the registers."""
        self.errors.put(error.code, error.text)
        self.status.failed(error.code)

    def _complete(self) -> None:
        self.status.events |= OPERATION_COMPLETE

    def _clear(self) -> None:
        self.errors.clear()
        self.status.take_events()

    def _register(self, register: str, _: ScpiRequest) -> str:
        return str(getattr(self.status, register))

    def _set_register(self, register: str, request: ScpiRequest) -> None:
        value = round(number(one(request)))
        if not 0 <= value <= 255:
            raise ScpiError(*OUT_OF_RANGE)
        setattr(self.status, register, value)

    def add(self, pattern: str, handler: Handler) -> None:
        """Understand `pattern` by `handler`, which may raise `ScpiError`."""
        self._patterns.append((_compiled(pattern), handler))

    def find(self, header: str) -> tuple[Handler, tuple[int, ...]]:
        """The handler of a header in upper case, and its numbers; raises `ScpiError`."""
        if header not in self._found:
            self._found[header] = self._search(header)
        return self._found[header]

    def _search(self, header: str) -> tuple[Handler, tuple[int, ...]]:
        for pattern, handler in self._patterns:
            match = pattern.fullmatch(header)
            if match is not None:
                return handler, tuple(int(number or 1) for number in match.groups())
        raise ScpiError(*UNDEFINED_HEADER)


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


class ScpiDialogue:
    """One client's SCPI session: commands are carried out one after the other.

    Args:
        connection: where answers go.
        owner: the session's name on the clock's agenda.
        commands: what the instrument understands.
        end: what ends an answer.
        takes: how long one command takes, in ns.
    """

    def __init__(
        self,
        connection: PeerConnection,
        clock: Clock,
        owner: str,
        commands: ScpiCommands,
        *,
        end: bytes = b"\n",
        takes: int = PROCESSING,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._owner = owner
        self._commands = commands
        self._end = end
        self._takes = takes
        self._buffer = b""
        self._waiting: deque[str] = deque()
        self._answers: list[bytes] = []
        self._busy = False
        self._lock = threading.Lock()  # in real time commands end on the clock's own thread

    def received(self, data: bytes) -> None:
        """Take bytes; a line feed or a carriage return ends a program message."""
        *messages, self._buffer = re.split(rb"[\r\n]+", self._buffer + data)
        with self._lock:
            for message in filter(None, messages):
                self._waiting += _absolute(message.decode("ascii", "replace"))
            idle = not self._busy and bool(self._waiting)
            self._busy = self._busy or idle
        if idle:
            self._next()

    def closed(self) -> None:
        """Forget what the client still wanted."""
        self._waiting.clear()

    def _next(self) -> None:
        with self._lock:
            self._busy = bool(self._waiting)
            if not self._busy:
                return
            command = self._waiting.popleft()
        self._clock.schedule(
            self._clock.now() + self._takes, self._owner, lambda: self._carry_out(command)
        )

    def _carry_out(self, command: str) -> None:
        if command == _MESSAGE_ENDS:
            if self._answers:
                self._connection.send(b";".join(self._answers) + self._end)
                self._answers = []
            self._next()
            return
        header, _, rest = command.partition(" ")
        outcome: str | bytes | Later | None = None
        try:
            handler, suffixes = self._commands.find(header.upper())
            request = ScpiRequest(header.upper().rstrip("?"), suffixes, split_arguments(rest))
            outcome = handler(request)
        except ScpiError as error:
            self._commands.failed(error)
        if isinstance(outcome, Later):
            later = outcome
            self._clock.schedule(
                self._clock.now() + later.after, self._owner, lambda: self._end_of(later)
            )
            return
        self._keep(outcome)
        self._next()

    def _end_of(self, later: Later) -> None:
        later.then()
        self._keep(later.text)
        self._next()

    def _keep(self, answer: str | bytes | None) -> None:
        if answer is not None:
            self._answers.append(answer.encode() if isinstance(answer, str) else answer)


_MESSAGE_ENDS = "\n"


def _absolute(message: str) -> list[str]:
    """The commands of one program message with full headers, and its end.

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
    return [*commands, _MESSAGE_ENDS]


def split_arguments(text: str) -> tuple[str, ...]:
    """Split at commas that are not within quotes or parentheses."""
    parts = re.findall(r"(?:\([^)]*\)|\"[^\"]*\"|'[^']*'|[^,])+", text.strip())
    return tuple(part.strip() for part in parts)


def block(data: bytes) -> bytes:
    """`data` as a definite-length block (IEEE 488.2, section 8.7.9)."""
    length = str(len(data)).encode()
    return b"#" + str(len(length)).encode() + length + data


def number(text: str) -> float:
    """A decimal argument; raises `ScpiError`."""
    try:
        return float(text)
    except ValueError as error:
        raise ScpiError(-121, "Invalid character in number") from error


def one(request: ScpiRequest) -> str:
    """The only argument of a request; raises `ScpiError`."""
    arguments: Sequence[str] = request.arguments
    if len(arguments) != 1:
        raise ScpiError(*MISSING_PARAMETER if not arguments else (-108, "Parameter not allowed"))
    return arguments[0]
