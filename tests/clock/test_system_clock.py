"""The system's clock: what is due happens in order, not before its time, and can be cancelled."""

import threading
import time

import pytest
from real_time import LONG, SOON

from lightrig.instruments.clock import Span, SystemClock

MS = 1_000_000


@pytest.fixture
def clock(system_clock):
    return system_clock


def test_it_is_the_monotonic_clock(clock):
    before = time.monotonic_ns()
    now = clock.now()
    assert before <= now <= time.monotonic_ns()
    assert not clock.virtual


def test_sleeping_takes_its_time(clock):
    began = clock.now()
    clock.sleep(20 * MS)
    clock.sleep(0)
    clock.sleep(-MS)
    assert 20 * MS <= clock.now() - began < SOON


def test_due_actions_run_in_order_and_not_early(clock):
    happened = []
    done, reported = clock.event(), clock.event()
    clock.schedule(clock.now(), "a", reported.wait)  # else what is reported first may happen first
    start = clock.now() + 20 * MS
    for name, owner, delay in [("d", "z", 20), ("c", "y", 10), ("a", "x", 0), ("b", "y", 0)]:
        at = start + delay * MS
        clock.schedule(at, owner, lambda n=name, at=at: happened.append((n, clock.now() - at)))
    clock.schedule(start + 20 * MS, "z", done.set)
    reported.set()
    assert done.wait(LONG)
    assert [name for name, _ in happened] == ["a", "b", "c", "d"]
    assert all(0 <= late < SOON for _, late in happened)


def test_earlier_action_does_not_wait_for_a_later_one(clock):
    late, soon = clock.event(), clock.event()
    clock.schedule(clock.now() + 60_000 * MS, "a", late.set)
    clock.schedule(clock.now() + 5 * MS, "b", soon.set)
    clock.schedule(clock.now() - 5 * MS, "c", soon.set)
    assert soon.wait(LONG)
    assert not late.is_set()


def test_cancelled_action_does_not_run(clock):
    happened = []
    done = clock.event()
    soon = clock.now() + 200 * MS
    cancelled = clock.schedule(soon, "a", lambda: happened.append("a"))
    clock.schedule(soon, "a", done.set)
    cancelled.cancel()
    assert done.wait(LONG)
    assert happened == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_action_cancelled_by_one_due_with_it_does_not_run(clock):
    ran = []
    at, done = clock.now(), clock.event()
    begun, all_scheduled = threading.Event(), threading.Event()
    # Of actions that are scheduled while another runs, none is taken before all of them are there.
    clock.schedule(at, "before", lambda: (begun.set(), all_scheduled.wait()))
    assert begun.wait(LONG / 1e9)
    first = clock.schedule(at, "b", lambda: ran.append("cancelled"))
    clock.schedule(at, "a", first.cancel)
    clock.schedule(at, "c", done.set)
    all_scheduled.set()
    assert done.wait(LONG)
    assert ran == []


def test_an_action_that_closes_the_clock_ends_those_due_with_it():
    clock, ran = SystemClock(), []
    closed = clock.event()
    at = clock.now() + 2 * MS
    clock.schedule(at, "a", lambda: (clock.close(), closed.set()))
    clock.schedule(at, "b", lambda: ran.append("late"))
    assert closed.wait(LONG)
    clock.sleep(10 * MS)
    assert ran == []


def test_raising_action_is_reported_and_the_next_one_runs(clock, monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    done = clock.event()
    clock.schedule(clock.now(), "a", lambda: 1 // 0)
    clock.schedule(clock.now() + MS, "a", done.set)
    assert done.wait(LONG)
    assert [type(error) for error in reported] == [ZeroDivisionError]


def test_an_event_happens_once_and_a_wait_for_it_ends(clock):
    event = clock.event()
    began = clock.now()
    assert not event.wait(10 * MS)
    assert clock.now() - began >= 10 * MS
    assert not event.wait(0)
    event.set()
    event.set()
    assert event.is_set()
    assert event.wait()
    assert event.wait(0)


def test_tasks_run_side_by_side_and_errors_come_after_all_have_ended(clock):
    both = threading.Barrier(2)
    assert clock.parallel(lambda: both.wait(30) >= 0, lambda: both.wait(30) >= 0) == [True, True]
    ended = []

    def lives():
        clock.sleep(20 * MS)
        ended.append(True)

    def dies():
        raise KeyError("second")

    with pytest.raises(KeyError):
        clock.parallel(lives, dies, lambda: clock.parallel(lambda: 1))
    assert ended == [True]
    assert clock.parallel() == []


def test_closing_ends_its_thread_and_what_is_not_yet_due():
    clock = SystemClock()
    clock.close()
    clock = SystemClock()
    happened = []
    before = set(threading.enumerate())  # of which those of other tests may end meanwhile
    clock.schedule(clock.now() + LONG, "a", lambda: happened.append(1))
    assert len(set(threading.enumerate()) - before) == 1
    clock.close()
    clock.close()
    assert before.issuperset(threading.enumerate())
    clock.schedule(clock.now(), "a", lambda: happened.append(2))
    time.sleep(0.05)
    assert happened == []


def test_an_action_may_close_its_clock():
    clock = SystemClock()
    closed = clock.event()
    clock.schedule(clock.now(), "a", lambda: (clock.close(), closed.set()))
    assert closed.wait(LONG)


def test_spans_keep_both_widths():
    sent, seen = Span(100, 110), Span(150, 170)
    assert seen.since(sent) == (40, 70)
    assert seen.shifted(-150) == (0, 20)


def test_one_task_runs_in_the_thread_that_asks_unless_a_ctrl_c_may_come_there(clock):
    def ask() -> list[int]:
        return clock.parallel(threading.get_ident)

    assert ask() != [threading.get_ident()]
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(ask()))
    thread.start()
    thread.join()
    assert found == [[thread.ident]]
