"""Garbage collection that passes over what lives as long as a process or a run."""

import contextlib
import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterator

ALLOCATED = 10_000
"""Objects more than were freed, after which young garbage is looked for while some is excluded.

Python's 700 are fewer than one reconfiguration makes, whose objects reference counts free before
the next: looking through them after each takes a twentieth of its processor time.
"""

_lock = threading.Lock()
_thresholds: list[tuple[int, int, int]] = []
_holders: set[int] = set()
_numbers = itertools.count()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage in the block, whose objects live on: loaded modules, collected tests.

    Looking through them again and again takes a quarter of the collection of 10,000 tests.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def exclude_present(holders: set[int] = _holders) -> Callable[[], None]:
    """Exclude all present objects from garbage collection; return a function that undoes it.

    Traversing the objects of all loaded libraries takes a tenth of a simulated night. Garbage of
    this moment stays until then: finding it would be one more such traversal. Within another
    exclusion, such as a session's, nothing is done, so that what a bench leaves behind is found
    while the session goes on.

    holders: numbers of the exclusions within which this one is, those of this process.
    """
    number = next(_numbers)
    with _lock:
        if not holders:
            gc.freeze()
            _thresholds.append(gc.get_threshold())
            gc.set_threshold(ALLOCATED, *_thresholds[-1][1:])
        holders.add(number)

    def undo() -> None:
        with _lock:
            if number in holders:
                holders.remove(number)
                if not holders:
                    gc.unfreeze()
                    gc.set_threshold(*_thresholds.pop())

    return undo


def spare_last_collection() -> None:
    """Let the interpreter end without looking for garbage, of which no test has made any.

    With 10,000 collected tests that is a third of the processor time of collecting them.
    """
    if "duckdb" not in sys.modules:  # which reports objects that are not collected
        gc.freeze()
