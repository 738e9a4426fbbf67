"""Simulated bench instruments in virtual and in real time."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from instrument_rig import Rig, simulated

from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock


@contextlib.contextmanager
def _rigs(clock: Clock) -> Iterator[Callable[..., Rig]]:
    with contextlib.ExitStack() as stack:
        yield lambda factory, **stated: stack.enter_context(simulated(factory, clock, **stated))
    clock.close()


@pytest.fixture
def in_virtual_time() -> Iterator[Callable[..., Rig]]:
    """An instrument in virtual time; all of a test's instruments share a clock."""
    with _rigs(VirtualClock(stall_timeout=20)) as rigs:
        yield rigs


@pytest.fixture
def in_real_time() -> Iterator[Callable[..., Rig]]:
    """An instrument in real time."""
    with _rigs(SystemClock()) as rigs:
        yield rigs
