"""Signals that end a run or a command, and must not end its closing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block SIGINT, SIGTERM and SIGHUP, as while the switches are restored."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def postponed() -> Iterator[None]:
    """Postpone SIGINT, SIGTERM and SIGHUP; the first that came takes effect at the end."""
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number)) for number in ENDING
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
