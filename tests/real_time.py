"""Tolerances of real time on a slow and busy machine, for all tests in one place.

A virtual clock needs nothing of this: what takes no time there takes none, however slow the
machine is. In real time "at once" can only be told from "after its timeout": the timeout is
LONG then, and who is done SOON has not waited for it. Both are in ns.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lightrig.instruments.clock import Clock

SOON = 5_000_000_000
LONG = 30_000_000_000


def slack(clock: Clock) -> int:
    """Return the time in ns that a wait may last beyond the event it waits for."""
    return 0 if clock.virtual else SOON


@contextlib.contextmanager
def over_soon(*, after: int = 0) -> Iterator[None]:
    """Check that the body waits for `after` ns of real time, and for nothing else.

    What the threads of this process have waited for a processor is no wait of theirs.
    """
    began, waited = time.monotonic_ns(), waited_for_a_processor()
    yield
    took = time.monotonic_ns() - began
    queued = sum(
        waits - waited.get(thread, 0) for thread, waits in waited_for_a_processor().items()
    )
    assert after <= took < after + SOON + queued, f"it took {took / 1e9:g} s"


def waited_for_a_processor() -> dict[str, int]:
    """Return for how many ns each thread of this process was ready and did not run.

    Second field of /proc/PID/task/TID/schedstat (Linux, sched-stats.rst); empty without it.
    """
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends, a kernel that does not count
            found[task.name] = int((task / "schedstat").read_text().split()[1])
    return found


def until(condition: Callable[[], object], clock: Clock, step: int = 1_000_000) -> None:
    """Wait for what comes about by itself, looking every `step` ns of the clock's time."""
    for _ in range(LONG // step):
        if condition():
            return
        clock.sleep(step)
    raise AssertionError("it has not come about")
