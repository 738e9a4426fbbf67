"""Virtual time moves when everybody waits, by the same steps each time, and tells why not."""

import random
import threading
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given
from real_time import over_soon

from lightrig.instruments.clock import Clock
from lightrig.instruments.clock.virtual import ClockStalledError, NotAParticipantError, VirtualClock

MS = 1_000_000


def test_sleep_takes_no_real_time(clock):
    with over_soon():
        clock.sleep(3600 * 1000 * MS)
        clock.sleep(0)
        clock.sleep(-5)
    assert clock.now() == 3600 * 1000 * MS
    assert clock.virtual


def test_a_sleep_in_which_nothing_is_due_needs_no_other_thread():
    clock = VirtualClock()
    before = set(threading.enumerate())
    clock.schedule(5 * MS, "a", lambda: None).cancel()
    clock.schedule(10 * MS + 1, "b", lambda: None)
    clock.sleep(10 * MS)
    assert clock.now() == 10 * MS
    assert before.issuperset(threading.enumerate())
    clock.close()


def test_an_action_due_at_the_end_of_a_sleep_runs_before_it_returns(clock):
    due = []
    clock.schedule(10 * MS, "a", lambda: due.append(clock.now()))
    clock.sleep(10 * MS)
    assert due == [10 * MS]


def test_a_sleep_waits_for_a_sibling_that_runs(clock):
    order = []

    def sleeper():
        clock.sleep(5)
        order.append(("sleeper", clock.now()))

    def worker():
        time.sleep(0.02)
        clock.sleep(3)
        order.append(("worker", clock.now()))

    clock.parallel(sleeper, worker)
    assert order == [("worker", 3), ("sleeper", 5)]


def test_time_stands_still_while_a_participant_runs(clock):
    due = []
    clock.schedule(1, "a", lambda: due.append(clock.now()))
    time.sleep(0.02)
    assert clock.now() == 0
    assert due == []
    clock.sleep(1)
    assert due == [1]


def test_past_action_runs_now(clock):
    clock.sleep(100)
    due = []
    clock.schedule(3, "a", lambda: due.append(clock.now()))
    clock.sleep(1)
    assert due == [100]


def test_cancelled_action_does_not_run(clock):
    due = []
    clock.schedule(5, "a", lambda: due.append("a"))
    clock.schedule(5, "b", lambda: due.append("b")).cancel()
    clock.schedule(50, "c", lambda: due.append("c")).cancel()
    clock.sleep(10)
    assert due == ["a"]
    assert clock.now() == 10


def test_an_event_ends_a_wait_and_a_timeout_does(clock):
    event = clock.event()
    clock.schedule(30, "a", event.set)
    assert not event.wait(29)
    assert clock.now() == 29
    assert not event.is_set()
    assert not event.wait(0)
    assert event.wait(29)
    assert clock.now() == 30
    assert event.is_set()
    event.set()
    assert event.wait()
    assert clock.now() == 30


def test_event_wakes_all_waiters(clock):
    event = clock.event()

    def wait():
        return event.wait(100), clock.now()

    clock.schedule(40, "a", event.set)
    assert clock.parallel(*[wait] * 5) == [(True, 40)] * 5
    clock.sleep(1000)
    assert clock.now() == 1040


@pytest.mark.parametrize("owner", ["aaa", "zzz"])
def test_an_event_and_a_timeout_of_one_moment_go_by_owner(owner):
    for _ in range(20):
        clock = VirtualClock()
        event = clock.event()
        clock.schedule(10, owner, event.set)
        assert event.wait(10) is (owner < "main")
        clock.close()


def test_ties_are_broken_by_owner_not_by_arrival():
    orders = []
    for repetition in range(20):
        clock = VirtualClock()
        happened = []
        owners = [f"peer{number}" for number in range(8)]
        random.Random(repetition).shuffle(owners)
        threads = [
            threading.Thread(
                target=lambda owner=owner, clock=clock, happened=happened: [
                    clock.schedule(at, owner, lambda entry=(at, owner, age): happened.append(entry))
                    for age, at in enumerate((7, 7, 3))
                ]
            )
            for owner in owners
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clock.sleep(10)
        clock.close()
        orders.append(happened)
    assert orders[0] == sorted(orders[0])
    assert len(orders[0]) == 24
    assert all(order == orders[0] for order in orders)


def test_results_come_in_order_and_the_section_takes_as_long_as_its_longest(clock):
    def task(duration):
        clock.sleep(duration)
        return duration

    durations = [30, 10, 50, 20]
    assert clock.parallel(*[lambda d=d: task(d) for d in durations]) == durations
    assert clock.now() == 50
    assert clock.parallel() == []


def test_sections_may_be_nested(clock):
    def leaf(duration):
        clock.sleep(duration)
        return clock.now()

    def branch(*durations):
        clock.sleep(5)
        inner = clock.parallel(*[lambda d=d: leaf(d) for d in durations])
        clock.sleep(1)
        return inner, clock.now()

    assert clock.parallel(lambda: branch(10, 20), lambda: branch(40), branch) == [
        ([15, 25], 26),
        ([45], 46),
        ([], 6),
    ]
    assert clock.now() == 46


def test_error_of_a_task_is_raised_after_all_have_ended(clock):
    ended = []

    def dies():
        clock.sleep(10)
        raise KeyError("first")

    def dies_sooner():
        raise ValueError("second")

    def lives():
        clock.sleep(100)
        ended.append(clock.now())

    with pytest.raises(KeyError, match="first"):
        clock.parallel(lives, dies, dies_sooner)
    assert ended == [100]
    assert clock.now() == 100
    clock.sleep(1)
    assert clock.now() == 101


def test_a_task_that_leaves_the_interpreter_is_only_an_error(clock):
    with pytest.raises(SystemExit):
        clock.parallel(lambda: clock.sleep(10), lambda: (_ for _ in ()).throw(SystemExit(3)))
    clock.sleep(1)
    assert clock.now() == 11


def test_stall_error_names_the_waiters(clock):
    def wait():
        clock.event().wait()

    clock.sleep(7)
    with pytest.raises(ClockStalledError, match="stands at 7 ns") as raised:
        clock.parallel(wait, wait)
    assert "main, main/0000, main/0001 waiting, 0 running" in str(raised.value)
    assert "0 actions due, nothing in flight" in str(raised.value)


def test_stall_raises_in_all_participants(clock):
    reached = threading.Barrier(4)

    def wait():
        with pytest.raises(ClockStalledError):
            clock.event().wait()
        reached.wait(30)

    with pytest.raises(ClockStalledError):
        clock.parallel(wait, wait, wait)
    reached.wait(30)


@pytest.mark.parametrize(
    "wait",
    [
        lambda clock: clock.sleep(1),
        lambda clock: clock.event().wait(),
        lambda clock: clock.event().wait(0),
        lambda clock: clock.parallel(lambda: None),
    ],
)
def test_non_participant_must_not_wait(clock, wait):
    caught = []

    def stranger():
        with pytest.raises(NotAParticipantError, match="'stranger' takes no part") as raised:
            wait(clock)
        caught.append(raised.value)

    thread = threading.Thread(target=stranger, name="stranger")
    thread.start()
    thread.join()
    assert len(caught) == 1
    clock.sleep(1)
    assert clock.now() == 1


def test_raising_action_raises_in_waiting_participants(clock):
    class BrokenPeerError(Exception):
        pass

    def act():
        raise BrokenPeerError("at 5")

    reached = threading.Barrier(3)

    def wait():
        with pytest.raises(BrokenPeerError):
            clock.sleep(100)
        reached.wait(30)

    clock.schedule(5, "a", act)
    with pytest.raises(BrokenPeerError, match="at 5"):
        clock.parallel(wait, wait)
    reached.wait(30)
    assert clock.now() == 5


def test_stall_timeout_ends_a_wait_for_bytes_not_received():
    clock = VirtualClock(stall_timeout=0.1)
    clock.flight("forgetful").sent(17)
    with (
        over_soon(after=100 * MS),
        pytest.raises(ClockStalledError, match="17 bytes on forgetful") as raised,
    ):
        clock.sleep(1)
    assert "no progress for 0.1 s" in str(raised.value)
    clock.close()


def test_stall_timeout_restarts_with_progress():
    clock = VirtualClock(stall_timeout=1)
    for at in range(12):
        clock.schedule(at, "slow", lambda: time.sleep(0.1))
    clock.sleep(12)
    assert clock.now() == 12
    clock.close()


def test_both_ends_count_the_same_bytes(clock):
    assert clock.flight(("a", "b")) is clock.flight(("a", "b"))
    assert clock.flight(("a", "b")) is not clock.flight(("a", "c"))
    flight = clock.flight(("a", "b"))
    flight.sent(5)
    flight.close()
    flight.sent(5)
    flight.landed(9)
    flight.close()
    clock.sleep(1)
    assert clock.now() == 1
    assert clock.flight(("a", "b")) is not flight


def test_close_drops_scheduled_actions():
    clock = VirtualClock()
    due = []
    clock.schedule(5, "a", lambda: due.append(1))
    clock.close()
    clock.sleep(10)
    assert due == []
    clock.close()


# Programs of sleeps, sections and actions ----------------------------------------------

_SLEEP = st.tuples(st.just("sleep"), st.integers(0, 6))
_ACTION = st.tuples(st.just("schedule"), st.integers(0, 6))
_PROGRAM = st.recursive(
    st.lists(_SLEEP | _ACTION, max_size=5),
    lambda inner: st.lists(
        _SLEEP | _ACTION | st.tuples(st.just("parallel"), st.lists(inner, max_size=3)), max_size=5
    ),
    max_leaves=8,
)


class _Run:
    def __init__(self, program: list) -> None:
        self.clock: Clock = VirtualClock(stall_timeout=20)
        self.sleeps: dict[str, list[int]] = {}
        self.actions: list[tuple[int, str, int]] = []
        self._follow(program, "p")
        self.end = self.clock.now()
        self.clock.sleep(100)
        self.clock.close()

    def _follow(self, program: list, path: str) -> None:
        woken = self.sleeps[path] = []
        for number, (step, what) in enumerate(program):
            if step == "sleep":
                self.clock.sleep(what)
                woken.append(self.clock.now())
            elif step == "schedule":
                self.clock.schedule(
                    self.clock.now() + what,
                    path,
                    lambda number=number: self.actions.append((self.clock.now(), path, number)),
                )
            else:
                self.clock.parallel(
                    *[
                        lambda inner=inner, name=f"{path}.{number}.{index}": self._follow(
                            inner, name
                        )
                        for index, inner in enumerate(what)
                    ]
                )


def _expected(program: list, path: str, now: int, sleeps: dict, actions: set) -> int:
    woken = sleeps[path] = []
    for number, (step, what) in enumerate(program):
        if step == "sleep":
            now += what
            woken.append(now)
        elif step == "schedule":
            actions.add((now + what, path, number))
        else:
            now = max(
                (
                    _expected(inner, f"{path}.{number}.{index}", now, sleeps, actions)
                    for index, inner in enumerate(what)
                ),
                default=now,
            )
    return now


@given(_PROGRAM)
def test_a_program_runs_the_same_each_time_and_as_long_as_its_longest_path(program):
    sleeps: dict[str, list[int]] = {}
    actions: set[tuple[int, str, int]] = set()
    end = _expected(program, "p", 0, sleeps, actions)
    runs = [_Run(program) for _ in range(3)]
    for run in runs:
        assert run.sleeps == sleeps
        assert run.end == end
        assert set(run.actions) == actions
        assert [at for at, _, _ in run.actions] == sorted(at for at, _, _ in actions)
        assert run.actions == runs[0].actions
