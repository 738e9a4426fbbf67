"""Simulated Polatis switches in virtual and in real time."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from switch_rig import LOGIN, QUICK, Line, Rig, simulated_switch

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock


@pytest.fixture
def virtual() -> Iterator[Callable[..., Rig]]:
    """A switch in virtual time; all of a test's switches share a clock."""
    clock = VirtualClock(stall_timeout=20)
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(
            simulated_switch(clock, *args, **options)
        )
    clock.close()


@pytest.fixture
def real() -> Iterator[Callable[..., Rig]]:
    """A quick switch in real time."""
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(simulated_switch(clock, QUICK, **options))
    clock.close()


@pytest.fixture
def type_in() -> Iterator[Callable[..., Line]]:
    """A line to a switch, logged in unless told otherwise."""
    lines = []

    def open_line(rig: Rig, *, log_in: bool = True) -> Line:
        line = Line(rig)
        lines.append(line)
        if log_in:
            assert line.ask(f"ACT-USER::{LOGIN[0]}:1::{LOGIN[1]};") == ["M  1 COMPLD"]
        return line

    yield open_line
    for line in lines:
        line.socket.close()
