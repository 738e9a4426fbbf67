"""Tolerances of real time on a slow and busy machine, for all tests in one place.

A virtual clock needs nothing of this: what takes no time there takes none, however slow the
machine is. In real time "at once" can only be told from "after its timeout": the timeout is
LONG then, and who is done SOON has not waited for it. Both are in ns.
"""

import contextlib
import os
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
    began, queue = time.monotonic_ns(), ProcessorQueue(os.getpid())
    yield
    took = time.monotonic_ns() - began
    assert after <= took < after + SOON + queue.waited(), f"it took {took / 1e9:g} s"


class ProcessorQueue:
    """For how long the threads of a process, and of those it has started, wait for a processor.

    Source: second field of /proc/PID/task/TID/schedstat (Linux, sched-stats.rst); a kernel that
    does not count this says nothing, which reads as no wait here.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = dict(self._waits(pid))

    def waited(self) -> int:
        """Return the ns that they were ready and did not run since this was made, all in all."""
        now = self._waits(self._pid)
        return sum(waits - self._before.get(thread, 0) for thread, waits in now)

    def _waits(self, pid: int) -> Iterator[tuple[str, int]]:
        with contextlib.suppress(OSError):  # what ends meanwhile
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    yield task.name, int((task / "schedstat").read_text().split()[1])
                    for child in (task / "children").read_text().split():
                        yield from self._waits(int(child))


def until(condition: Callable[[], object], clock: Clock, step: int = 1_000_000) -> None:
    """Wait for what comes about by itself, looking every `step` ns of the clock's time."""
    for _ in range(LONG // step):
        if condition():
            return
        clock.sleep(step)
    raise AssertionError("it has not come about")
