"""What nobody may interrupt."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Nobody's patience ends while the switches are put back."""
    ends = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ends}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
