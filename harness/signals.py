"""Signals that end a run or a command, and must not end its closing."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

TIME_LIMITS: list[Callable[[], AbstractContextManager[None]]] = []
"""Each suspends a time limit of what runs now, such as that of a test, while it is entered."""


@contextmanager
def _handled_by(handler: Any, numbers: tuple[int, ...] = ENDING) -> Iterator[None]:
    """Give signals to a handler."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block SIGINT, SIGTERM and SIGHUP, as while the switches are restored.

    `TIME_LIMITS` are suspended, and SIGALRM, by which others limit times, takes effect at the end.
    In a thread beside the main one no signal arrives, and nothing is blocked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with ExitStack() as stack:
        for suspended in TIME_LIMITS:
            stack.enter_context(suspended())
        stack.enter_context(postponed((signal.SIGALRM,)))
        stack.enter_context(_handled_by(signal.SIG_IGN))
        yield


@contextmanager
def postponed(numbers: tuple[int, ...] = ENDING) -> Iterator[None]:
    """Postpone signals; the first that came takes effect at the end."""
    came: list[int] = []
    try:
        with _handled_by(lambda number, _: came.append(number), numbers):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, for a service that ends by itself then."""
    over = threading.Event()
    with _handled_by(lambda *_: over.set(), (signal.SIGINT, signal.SIGTERM)):
        yield over
