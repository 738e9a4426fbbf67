"""Ends of a run that are not its tests' ends, and what must be taken down at any end."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lightrig.harness.plugin.keys import UNRECORDED
from lightrig.harness.record import RecordError
from lightrig.harness.signals import ENDING

LAB_ERROR = 3
"""Exit status when hardware was asked for and did not answer, or nothing can be recorded."""


class EndShield:
    """Ignores SIGINT, SIGTERM and SIGHUP from the end of a run on, until the process exits.

    A terminated run is often signalled again and again. A signal that came after the switches
    were restored would end the process by itself, and its exit status would not be the run's.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}

    def handle(self, number: int, handler: Any) -> None:
        """Give a signal to a handler for the run alone."""
        self._handlers.setdefault(number, signal.signal(number, handler))

    def begin(self) -> None:
        """Ignore the signals from now on; no effect the second time."""
        while True:
            try:
                for number in ENDING:
                    handler = signal.signal(number, signal.SIG_IGN)
                    self._handlers.setdefault(number, handler)
            except KeyboardInterrupt:  # a repeated signal that came just before
                continue
            return

    def end(self) -> None:
        """Restore the handlers for a program that goes on after `pytest.main` has returned."""
        frame = sys._getframe()  # noqa: SLF001 - the one way to know who has called pytest
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code is pytest.console_main.__code__:
                return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


@contextmanager
def ending_unrecorded(config: pytest.Config) -> Iterator[None]:
    """End the run with one sentence where nothing more can be recorded, as on a full disk."""
    try:
        yield
    except RecordError as error:
        config.stash[UNRECORDED] = True
        pytest.exit(f"nothing more can be recorded: {error}", LAB_ERROR)
