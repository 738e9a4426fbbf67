"""A lock for threads that wait on a clock: fair, and robust against interrupts."""

import signal
import threading

import pytest

from lightrig.instruments.clock import FairLock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock

MS = 1_000_000


def test_lock_is_acquired_in_order_of_arrival():
    clock = VirtualClock(stall_timeout=20)
    lock, order = FairLock(clock), []

    def visit(number):
        clock.sleep(number)
        with lock:
            order.append(number)
            clock.sleep(10 * MS)

    clock.parallel(*[lambda number=number: visit(number) for number in (3, 1, 4, 2, 5)])
    assert order == [1, 2, 3, 4, 5]
    assert clock.now() == 1 + 50 * MS
    clock.close()


def test_lock_is_exclusive():
    clock = SystemClock()
    lock, inside, most = FairLock(clock), 0, 0

    def visit():
        nonlocal inside, most
        for _ in range(200):
            with lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    clock.parallel(*[visit] * 4)
    assert most == 1


def test_error_inside_releases_the_lock():
    lock = FairLock(SystemClock())
    with pytest.raises(KeyError), lock:
        raise KeyError
    with lock:
        pass


def test_aborted_waiter_is_skipped(monkeypatch):
    clock = SystemClock()
    lock, came = FairLock(clock), threading.Event()

    def enter():
        with lock:
            came.set()

    def give_up(timeout=None):
        raise KeyError

    with lock:
        with monkeypatch.context() as patched:
            aborted = clock.event()
            aborted.wait = give_up
            patched.setattr(clock, "event", lambda: aborted)
            raised = []

            def fail():
                with pytest.raises(KeyError), lock:
                    raised.append("never")

            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
            assert raised == []
        thread = threading.Thread(target=enter)
        thread.start()
        assert not came.wait(0.02)
    assert came.wait(30)
    thread.join()


@pytest.mark.parametrize("trial", range(30))
def test_ctrl_c_at_any_step_blocks_no_thread(trial, ctrl_c_raises):
    """Wherever the interrupt comes, this thread goes on and the second one gets the lock."""
    clock, main = SystemClock(), threading.main_thread().ident
    lock, entries, over = FairLock(clock), 0, threading.Event()

    def enter_repeatedly():
        nonlocal entries
        while not over.is_set():
            with lock:
                entries += 1

    thread = threading.Thread(target=enter_repeatedly)
    timer = threading.Timer(
        0.001 + trial * 0.00007, lambda: signal.pthread_kill(main, signal.SIGINT)
    )
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at any point
            timer.start()
            while True:
                with lock:
                    pass
        with lock:
            seen = entries
        while entries == seen:
            with lock:
                pass
    finally:
        over.set()
        timer.join()
        thread.join()
