"""Ctrl-C, whenever it comes, leaves a clock that can still be waited on."""

import gc
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
from clock_peers import timed_peers

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock


@pytest.fixture(autouse=True)
def _no_collector(ctrl_c_raises: None) -> Iterator[None]:
    gc.disable()  # Python prints an interrupt within a callback of the collector and goes on
    yield
    gc.enable()


def interrupt(step: Callable[[], object], after: float) -> None:
    """Do `step` again and again until Ctrl-C comes, `after` seconds from now."""
    main = threading.main_thread().ident
    assert main is not None
    asked: queue.SimpleQueue[float] = queue.SimpleQueue()

    def press() -> None:
        time.sleep(asked.get())
        signal.pthread_kill(main, signal.SIGINT)

    # Started before, since Ctrl-C is not safe in `Thread.start` itself.
    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at any point
        asked.put(after)
        while True:
            step()
    thread.join()


def check(clock: VirtualClock) -> None:
    now = clock.now()
    clock.sleep(50)
    assert clock.now() == now + 50
    assert clock.parallel(lambda: clock.sleep(10), lambda: clock.sleep(20)) == [None, None]
    assert clock.now() == now + 70
    done = clock.event()
    clock.schedule(clock.now() + 7, "a", done.set)
    assert done.wait(1000)
    assert clock.now() == now + 77


def tick(clock: VirtualClock, owner: str) -> None:
    """Give the clock something to do all the time."""
    clock.schedule(clock.now() + 1000, owner, lambda: tick(clock, owner))


@pytest.mark.parametrize("trial", range(40))
def test_while_sleeping_in_a_busy_world(trial):
    clock = VirtualClock(stall_timeout=20)
    tick(clock, "a")
    tick(clock, "b")
    interrupt(lambda: clock.sleep(20_000), 0.0005 + trial * 0.00005)
    check(clock)
    clock.close()


def test_while_blocked_on_a_slow_peer():
    clock = VirtualClock(stall_timeout=20)
    flight = clock.flight("slow")
    flight.sent(1)
    interrupt(lambda: clock.sleep(10), 0.03)
    flight.landed(1)
    check(clock)
    clock.close()


@pytest.mark.parametrize("trial", range(15))
def test_while_workers_come_and_go(trial):
    clock = VirtualClock(stall_timeout=20)
    interrupt(lambda: clock.parallel(*[lambda: clock.sleep(10)] * 3), 0.0005 + trial * 0.0002)
    clock.sleep(100)
    check(clock)
    clock.close()


@pytest.mark.parametrize("trial", range(15))
def test_while_asking_a_peer(trial):
    clock = VirtualClock(stall_timeout=20)
    with timed_peers(clock, 2) as (client, second):
        interrupt(lambda: client.ask("answer 1000 x").wait(), 0.0005 + trial * 0.0002)
        assert second.ask("answer 1000 x").wait()
        clock.sleep(2000)
        check(clock)
    clock.close()


def test_a_system_clock_too():
    clock = SystemClock()
    for wait in (clock.sleep, clock.event().wait):
        interrupt(partial(wait, 10_000_000_000), 0.02)
    interrupt(lambda: clock.parallel(*[lambda: clock.sleep(100_000_000)] * 2), 0.02)
    assert clock.parallel(lambda: 1) == [1]
    clock.close()


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
