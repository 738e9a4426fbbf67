"""Calls into a lab that may be closed meanwhile: counted while they run, refused after its end.

Names that a first cell has bound stay bound after the lab was closed, and a driver's session would
open its wire again with the next command. So what a lab gives out is wrapped: a call goes through
the lab's guard, an attribute that is no function is that of the object itself.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightrig.instruments.clock import SystemClock


class Guard:
    """Counts the calls that run.

    Args:
        check: is called before each call, and raises where none may begin.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._running = 0
        self._closed = False
        self._last = self._clock.now()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call as running; raises what `check` raises."""
        with self._lock:
            if not self._closed:
                self._running += 1
            closed = self._closed
        try:
            self._check()
            yield
        finally:
            with self._lock:
                self._running -= not closed
                self._last = self._clock.now()

    def close(self) -> None:
        """Let no later call count."""
        with self._lock:
            self._closed = True

    def close_if_idle(self, idle: int) -> int:
        """Close where no call has run for `idle` ns; return how long is left until then, in ns."""
        with self._lock:
            if self._running:
                return idle
            left = self._last + idle - self._clock.now()
            self._closed = self._closed or left <= 0
            return max(left, 0)

    def function(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` through the guard; wrapped arguments reach it without their wrapping."""

        @functools.wraps(call, updated=())
        def guarded(*given: Any, **named: Any) -> Any:
            with self.call():
                return call(*map(bare, given), **{name: bare(each) for name, each in named.items()})

        return guarded

    def wrapped(self, subject: Any, members: Mapping[str, Any] | None = None) -> Any:
        """Return an object whose methods go through the guard; a function, itself through it.

        members: attributes that it has instead of its own.
        """
        if isinstance(subject, functools.partial) or not hasattr(subject, "__dict__"):
            return self.function(subject) if callable(subject) else subject
        return _Wrapped(subject, self, members or {})


class _Wrapped:
    """An object whose methods go through a guard; for `isinstance` it is of its own class."""

    __slots__ = ("_guard", "_members", "_subject")

    def __init__(self, subject: Any, guard: Guard, members: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_subject", subject)
        object.__setattr__(self, "_guard", guard)
        object.__setattr__(self, "_members", members)

    def __getattribute__(self, name: str) -> Any:
        subject = object.__getattribute__(self, "_subject")
        if name == "__class__":
            return type(subject)
        members = object.__getattribute__(self, "_members")
        if name in members:
            return members[name]
        found = getattr(subject, name)
        if not callable(found) or isinstance(found, type) or name.startswith("__"):
            return found
        return object.__getattribute__(self, "_guard").function(found)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(bare(self), name, bare(value))

    def __repr__(self) -> str:
        return repr(bare(self))

    def __dir__(self) -> list[str]:
        return dir(bare(self))

    def __eq__(self, second: object) -> bool:
        return bool(bare(self) == bare(second))

    def __hash__(self) -> int:
        return hash(bare(self))


def bare(value: Any) -> Any:
    """Return what is wrapped; anything else as it is."""
    return object.__getattribute__(value, "_subject") if type(value) is _Wrapped else value
