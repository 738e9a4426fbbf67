"""A lock for threads that wait on a clock: in the order they came, whatever interrupts them."""

import signal
import threading

import pytest

from instruments.clock import SystemClock
from instruments.virtual_clock import VirtualClock
from instruments.wire.turns import Turns

MS = 1_000_000


def test_in_the_order_they_came():
    clock = VirtualClock(patience=20)
    turns, order = Turns(clock), []

    def visit(number):
        clock.sleep(number)
        with turns:
            order.append(number)
            clock.sleep(10 * MS)

    clock.parallel(*[lambda number=number: visit(number) for number in (3, 1, 4, 2, 5)])
    assert order == [1, 2, 3, 4, 5]
    assert clock.now() == 1 + 50 * MS
    clock.close()


def test_never_two_at_once_in_real_time():
    clock = SystemClock()
    turns, inside, most = Turns(clock), 0, 0

    def visit():
        nonlocal inside, most
        for _ in range(200):
            with turns:
                inside += 1
                most = max(most, inside)
                inside -= 1

    clock.parallel(*[visit] * 4)
    assert most == 1


def test_an_error_inside_ends_a_turn():
    turns = Turns(SystemClock())
    with pytest.raises(KeyError), turns:
        raise KeyError
    with turns:
        pass


def test_whoever_gives_up_waiting_is_passed_over(monkeypatch):
    clock = SystemClock()
    turns, came = Turns(clock), threading.Event()

    def enter():
        with turns:
            came.set()

    def give_up(timeout=None):
        raise KeyError

    with turns:
        with monkeypatch.context() as patched:
            impatient = clock.event()
            impatient.wait = give_up
            patched.setattr(clock, "event", lambda: impatient)
            raised = []

            def fail():
                with pytest.raises(KeyError), turns:
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
def test_ctrl_c_leaves_nobody_waiting(trial):
    """Whatever step it comes at, this thread goes on, and others get their turn."""
    clock, main = SystemClock(), threading.main_thread().ident
    turns, others, over = Turns(clock), 0, threading.Event()

    def other():
        nonlocal others
        while not over.is_set():
            with turns:
                others += 1

    thread = threading.Thread(target=other)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(
        0.001 + trial * 0.00007, lambda: signal.pthread_kill(main, signal.SIGINT)
    )
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at any point
            timer.start()
            while True:
                with turns:
                    pass
        with turns:
            seen = others
        while others == seen:
            with turns:
                pass
    finally:
        over.set()
        timer.join()
        thread.join()
        signal.signal(signal.SIGINT, before)
