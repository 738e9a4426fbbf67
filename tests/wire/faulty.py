"""An instrument that fails by plan, on a real socket or a real serial line, on any clock.

Every query carries a number and its reply repeats it, so that a reply taken for another query's is
seen. Like an instrument, it answers one query after the other.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection

MS = 1_000_000
TIMEOUT = 50 * MS
"""Time that the tests allow for a reply, in the clock's time."""
DELAY = 2 * MS


class Dialect(Protocol):
    """Format of queries and replies in one protocol."""

    junk: bytes

    def split(self, buffer: bytes) -> tuple[Sequence[bytes], bytes]:
        """Return the whole queries, and the bytes of the next one."""

    def answer(self, question: bytes) -> bytes:
        """Return the right reply; empty for a command without one."""


class Lines:
    """`Q17?` is answered by `A17`, *IDN? and ID, ID0 to ID9 by an identity, SET by nothing."""

    junk = b"JUNK JUNK\n"

    def split(self, buffer: bytes) -> tuple[Sequence[bytes], bytes]:
        *lines, rest = buffer.split(b"\n")
        return [line for line in lines if line], rest

    def answer(self, question: bytes) -> bytes:
        if question == b"SET":
            return b""
        return b";".join(map(self._one, question.split(b";"))) + b"\n"

    def _one(self, question: bytes) -> bytes:
        if number := re.fullmatch(rb"Q(\d+)\??", question):
            return b"A" + number[1]
        if which := re.fullmatch(rb"ID(\d?)", question):
            return b"IDENTITY" + which[1]
        return {b"*IDN?": b"Maker,Model,SIM-1,1.0", b"*ESE?": b"0"}[question]


class Bracketed:
    """`<Q17>` is answered by `<A17>`."""

    junk = b"<JUNK>\r\n"

    def split(self, buffer: bytes) -> tuple[Sequence[bytes], bytes]:
        *questions, rest = buffer.split(b">")
        return questions, rest

    def answer(self, question: bytes) -> bytes:
        return question.replace(b"Q", b"A") + b">"


class Sized:
    """Six bytes: `Q` or `A`, a number in four, the sum of these four."""

    junk = b"\0\1\2"
    SIZE = 6

    @staticmethod
    def question(number: int) -> bytes:
        data = number.to_bytes(4)
        return b"Q" + data + bytes([sum(data) % 256])

    @classmethod
    def number(cls, answer: bytes) -> int | None:
        """Return the number of a whole reply, None if it is garbled."""
        number = int.from_bytes(answer[1:5])
        return number if answer == b"A" + cls.question(number)[1:] else None

    def split(self, buffer: bytes) -> tuple[Sequence[bytes], bytes]:
        whole = len(buffer) // self.SIZE * self.SIZE
        return [buffer[at : at + self.SIZE] for at in range(0, whole, self.SIZE)], buffer[whole:]

    def answer(self, question: bytes) -> bytes:
        return b"A" + question[1:]


class Tl1:
    """`RTRV-X::17:ctag:;` is answered by a line with the number, under the same ctag."""

    junk = b'\r\n\n   ocs 26-01-02 03:04:05\r\nA  1 REPT EVT EQPT\r\n   "JUNK"\r\n;'

    def split(self, buffer: bytes) -> tuple[Sequence[bytes], bytes]:
        *questions, rest = buffer.split(b";")
        return questions, rest

    def answer(self, question: bytes) -> bytes:
        _, _, number, tag, *_ = question.split(b":")
        head = b"\r\n\n   ocs 26-01-02 03:04:05\r\n"
        return head + b'M  %b COMPLD\r\n   "A%b"\r\n;' % (tag, number)


@dataclass(frozen=True)
class Fault:
    """The fault of one reply.

    Attributes:
        kind: `none`, `silent`, `slow` (in pieces), `closes`, `resets`, `truncates`, `garbles`,
            `repeats`, `holds back` (until the next query, whose place it takes), `mixes in`.
        after: delay of the reply, in ns.
        at: index of the affected byte, modulo the length of the reply.
        gap: ns between its pieces, or before it is repeated.
        times: number of pieces or repetitions.
    """

    kind: str = "none"
    after: int = DELAY
    at: int = 0
    gap: int = 0
    times: int = 1


class Faulty:
    """One instrument; unanswered queries outlive a connection only behind a `gateway`.

    Attributes:
        heard: the queries that it has begun to answer.
        regaining: number of resync queries received.
        repeats_until: time of the last repetition of a reply.
        done: number of queries that are fully answered.
    """

    def __init__(
        self, clock: Clock, dialect: Dialect, plan: Iterable[Fault], *, gateway: bool = False
    ) -> None:
        self.clock = clock
        self.dialect = dialect
        self.heard: list[bytes] = []
        self.regaining = 0
        self.repeats_until = 0
        self.done = 0
        self._plan: Iterator[Fault] = iter(plan)
        self.gateway = gateway
        self._connections: list[Connection] = []

    def session(self, connection: DeviceConnection, index: int) -> "Connection":
        if self.gateway and self._connections:
            self._connections[0].connection = connection
            return self._connections[0]
        self._connections.append(
            Connection(self, connection, f"faulty#{len(self._connections):06d}")
        )
        return self._connections[-1]

    def fault(self) -> Fault:
        return next(self._plan, Fault())

    def behave(self) -> None:
        """Drop the rest of the plan: answer correctly from now on."""
        self._plan = iter(())


class Connection:
    """One connection: takes queries and answers them in order."""

    def __init__(self, owner: Faulty, connection: DeviceConnection, name: str) -> None:
        self.connection = connection
        self._owner = owner
        self._name = name
        self._buffer = b""
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._lock = threading.Lock()
        self._delayed: deque[bytes] = deque()

    def received(self, data: bytes) -> None:
        questions, self._buffer = self._owner.dialect.split(self._buffer + data)
        self._owner.regaining += sum(b"ID" in question for question in questions)
        with self._lock:
            self._waiting += questions
            idle = not self._busy and bool(self._waiting)
            self._busy = self._busy or idle
        if idle:
            self._next()

    def closed(self) -> None:
        if not self._owner.gateway:
            self._waiting.clear()

    def _next(self) -> None:
        with self._lock:
            self._busy = bool(self._waiting)
            if not self._busy:
                return
            question = self._waiting.popleft()
        self._owner.heard.append(question)
        fault = self._owner.fault()
        answer = self._owner.dialect.answer(question)
        if self._delayed or fault.kind == "holds back":
            self._delayed.append(answer)
            answer = self._delayed.popleft() if len(self._delayed) > 1 else b""
        steps = self._steps(fault, answer) if answer else [(fault.after, lambda: None)]
        self._carry_out(list(steps))

    def _carry_out(self, steps: list[tuple[int, Callable[[], None]]]) -> None:
        if not steps:
            self._owner.done += 1
            self._next()
            return
        wait, act = steps.pop(0)

        def then() -> None:
            act()
            self._carry_out(steps)

        self._owner.clock.schedule(self._owner.clock.now() + wait, self._name, then)

    def _send(self, data: bytes) -> Callable[[], None]:
        return lambda: self.connection.send(data)

    def _steps(self, fault: Fault, answer: bytes) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield delays in ns, each with the action that follows it."""
        cut = fault.at % len(answer)
        match fault.kind:
            case "silent":
                yield fault.after, lambda: None
            case "slow":
                size = -(-len(answer) // max(1, fault.times))
                for at in range(0, len(answer), size):
                    yield fault.gap if at else fault.after, self._send(answer[at : at + size])
            case "truncates":
                yield fault.after, self._send(answer[:cut])
            case "closes" | "resets":
                yield fault.after, self._send(answer[:cut])
                yield 0, lambda: self.connection.close(abruptly=fault.kind == "resets")
            case "garbles":
                yield fault.after, self._send(answer[:cut] + b"#" + answer[cut + 1 :])
            case "repeats" if not fault.gap:
                yield fault.after, self._send(answer * (1 + fault.times))
            case "repeats":
                over = fault.after + fault.gap * fault.times
                self._owner.repeats_until = self._owner.clock.now() + over
                yield fault.after, self._send(answer)
                for _ in range(fault.times):
                    yield fault.gap, self._send(answer)
            case "mixes in":
                pieces = [self._owner.dialect.junk] * fault.times
                pieces.insert(fault.at % (fault.times + 1), answer)
                yield fault.after, self._send(b"".join(pieces))
            case _:
                yield fault.after, self._send(answer)
