"""Ends of a run that are not its tests' ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lightrig.harness.plugin.keys import UNRECORDED
from lightrig.harness.record import RecordError

LAB_ERROR = 3
"""Exit status when hardware was asked for and did not answer, or nothing can be recorded."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block SIGINT, SIGTERM and SIGHUP, as while the switches are restored."""
    ends = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ends}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def ending_unrecorded(config: pytest.Config) -> Iterator[None]:
    """End the run with one sentence where nothing more can be recorded, as on a full disk."""
    try:
        yield
    except RecordError as error:
        config.stash[UNRECORDED] = True
        pytest.exit(f"nothing more can be recorded: {error}", LAB_ERROR)
