"""Threads of parallel sections: used again, ended, and unharmed by Ctrl-C at any place."""

import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.clock.workers import Workers


def wait_for_end(before: set[threading.Thread]) -> None:
    """Wait until every thread has ended that was not there before."""
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert before.issuperset(threading.enumerate())


def test_a_thread_is_used_again_and_ends_at_close():
    before = set(threading.enumerate())
    workers, ran = Workers(), []
    for _ in range(20):
        ended = threading.Event()

        def task(ended: threading.Event = ended) -> None:
            ran.append(threading.current_thread())
            ended.set()

        workers.run(task)
        assert ended.wait(10)
    # A thread that has set its event may not be idle yet.
    assert len(set(ran)) < 5
    workers.close()
    workers.close()
    wait_for_end(before)


def test_a_task_after_close_runs_and_leaves_no_thread():
    before = set(threading.enumerate())
    workers = Workers()
    workers.close()
    for _ in range(2):
        ended = threading.Event()
        workers.run(ended.set)
        assert ended.wait(10)
    wait_for_end(before)


def interrupted_at(place: int, clock: SystemClock | VirtualClock) -> bool:
    """Run a parallel section with a KeyboardInterrupt at its `place`-th place; whether it came.

    CPython handles signals where a function in Python begins and where one in C has returned. A
    profile function that raises there stands for the handler of Ctrl-C.
    """
    places = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal places
        if event in ("call", "c_return"):
            places += 1
            if places == place:
                raise KeyboardInterrupt

    former = sys.getprofile()
    sys.setprofile(profile)
    try:
        clock.parallel(*[partial(clock.sleep, 10)] * 2)
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(former)
    return False


@pytest.mark.parametrize("kind", [SystemClock, VirtualClock])
def test_an_interrupt_at_any_place_of_a_parallel_section_is_raised_as_such(kind):
    place, interrupted = 0, True
    while interrupted:
        place += 1
        clock = kind()
        interrupted = interrupted_at(place, clock)
        tasks = [partial(clock.sleep, 10), partial(clock.sleep, 20)]
        assert clock.parallel(*tasks) == [None, None]
        clock.close()
    assert place > 10
