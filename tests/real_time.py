"""Tolerances of real time on a slow and busy machine, for all tests in one place.

A virtual clock needs nothing of this: what takes no time there takes none, however slow the
machine is. In real time "at once" can only be told from "after its timeout": the timeout is
LONG then, and who is done SOON has not waited for it. Both are in ns.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from lightrig.instruments.clock import Clock

SOON = 5_000_000_000
LONG = 30_000_000_000


def slack(clock: Clock) -> int:
    """Return the time in ns that a wait may last beyond the event it waits for."""
    return 0 if clock.virtual else SOON


@contextlib.contextmanager
def over_soon(*, after: int = 0) -> Iterator[None]:
    """Check that the body waits for `after` ns of real time, and for nothing else."""
    began = time.monotonic_ns()
    yield
    took = time.monotonic_ns() - began
    assert after <= took < after + SOON, f"it took {took / 1e9:g} s"


def until(condition: Callable[[], object], clock: Clock, step: int = 1_000_000) -> None:
    """Wait for what comes about by itself, looking every `step` ns of the clock's time."""
    for _ in range(LONG // step):
        if condition():
            return
        clock.sleep(step)
    raise AssertionError("it has not come about")
