"""Common parts of command-driven simulated devices: declared command tables, and a command queue.

A device class declares its commands as its manual lists them, by decorating methods:

    @command("READ?")
    def read(self) -> str: ...

One whose reply is known, or follows from one expression, is declared without a method:

    layout = Constant("SYSTem:LAYout?", reply="2x1")
    output = Query("OUTPut:STATe?", reply=lambda self: self._lit)
    abort = Ignored("ABORt")

Protocols give the patterns their meaning: SCPI headers, TL1 verbs, regular expressions of a line.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from lightrig.instruments.clock import Clock

Method = TypeVar("Method", bound=Callable[..., Any])
T = TypeVar("T")

_DECLARED = "_declared_commands"


def command(*patterns: str) -> Callable[[Method], Method]:
    """Declare a method as the handler of the commands that match one of `patterns`."""

    def declare(method: Method) -> Method:
        setattr(method, _DECLARED, patterns)
        return method

    return declare


class Query:
    """A query without arguments, declared by its reply as a function of the device.

    A reply that is a number or a truth value is sent as an integer.
    """

    def __init__(self, *patterns: str, reply: Callable[[Any], str | int | None]) -> None:
        self._reply = reply
        setattr(self, _DECLARED, patterns)

    def __call__(self, device: object) -> str | None:
        """Return the reply of `device`; None for a command that has none."""
        reply = self._reply(device)
        return str(int(reply)) if isinstance(reply, int) else reply

    def __get__(self, device: object | None, owner: type) -> Callable[..., str | None]:
        return self if device is None else partial(self, device)


class Constant(Query):
    """A query without arguments whose reply is always the same."""

    def __init__(self, *patterns: str, reply: str) -> None:
        super().__init__(*patterns, reply=lambda _: reply)


class Ignored(Query):
    """A command without arguments and reply that changes nothing in the simulated device."""

    def __init__(self, *patterns: str) -> None:
        super().__init__(*patterns, reply=lambda _: None)


def declared_commands(device: type) -> dict[str, str]:
    """Return the name of the handling method for each pattern that `device` declares.

    A subclass comes before its bases: its patterns are tried first and replace equal ones.
    """
    table: dict[str, str] = {}
    for cls in device.__mro__:
        for name, member in vars(cls).items():
            for pattern in getattr(member, _DECLARED, ()):
                table.setdefault(pattern, name)
    return table


class CommandQueue(Generic[T]):
    """The commands of one session, executed one after the other in the clock's time.

    Commands arrive on the server's thread; in real time they end on the clock's own thread.
    Between the two stands a lock, so that a command that arrives while the last one ends is
    neither lost nor started twice.

    Args:
        owner: name of the session on the clock's agenda; ties in time are broken by it.
        processing: time that the device takes to read one command, in ns.
        execute: begin a command; `done` must be called once it has ended.
    """

    def __init__(
        self, clock: Clock, owner: str, processing: int, execute: Callable[[T], None]
    ) -> None:
        self._clock = clock
        self._owner = owner
        self._processing = processing
        self._execute = execute
        self._waiting: deque[T] = deque()
        self._busy = False
        self._lock = threading.Lock()

    def add(self, commands: Iterable[T]) -> None:
        """Append `commands`, and begin the first one if none is being executed."""
        with self._lock:
            self._waiting.extend(commands)
            begin = not self._busy and bool(self._waiting)
            self._busy = self._busy or begin
        if begin:
            self.done()

    def done(self) -> None:
        """Begin the next command, if one waits."""
        with self._lock:
            self._busy = bool(self._waiting)
            if not self._busy:
                return
            next_command = self._waiting.popleft()
        self._clock.schedule(
            self._clock.now() + self._processing,
            self._owner,
            lambda: self._execute(next_command),
        )

    def clear(self) -> None:
        """Discard the commands that wait."""
        with self._lock:
            self._waiting.clear()
