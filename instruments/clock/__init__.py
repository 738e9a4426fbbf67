"""Clocks: the only source of time, and the only place to wait.

`SystemClock` is the machine's monotonic clock, for hardware and for servers that are namespaces;
`clock.virtual.VirtualClock` is for testbeds that are simulated throughout. Code that takes time
from a `Clock` runs unchanged on both.

All times and durations are integer nanoseconds.
"""

import datetime as dt
import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from lightrig.instruments.clock.workers import Workers
from lightrig.instruments.machine_limits import report_on_thread
from lightrig.instruments.named_tuples import new_tuple

T = TypeVar("T")
Action = Callable[[], None]


class Span(NamedTuple):
    """Bounds of a moment or a duration, in ns, both inclusive."""

    earliest: int
    latest: int

    def shifted(self, by: int) -> "Span":
        """Return the span moved by `by` ns."""
        return Span(self.earliest + by, self.latest + by)

    def since(self, origin: "Span") -> "Span":
        """Return the time from `origin` to this moment; the widths of both add up."""
        (earliest, latest), (first, last) = self, origin
        return new_tuple(Span, (earliest - last, latest - first))


class Event(Protocol):
    """A one-shot event; on a virtual clock a waiting thread does not count as running."""

    def set(self) -> None:
        """Set the event and wake all waiters; no effect the second time."""

    def is_set(self) -> bool:
        """Whether the event is set."""

    def wait(self, timeout: int | None = None) -> bool:
        """Wait until the event is set, at most `timeout` ns; False after the timeout."""


class Flight(Protocol):
    """The bytes in flight on one connection, counted by its two ends.

    Virtual time does not move while a byte is in flight: the sender counts it before the write,
    the receiver discounts it after it has acted on it.
    """

    def sent(self, count: int) -> None:
        """Add `count` bytes, before they are written."""

    def landed(self, count: int) -> None:
        """Subtract `count` bytes, after they were read and acted on."""

    def close(self) -> None:
        """Subtract all bytes that are left: the connection has ended."""


class Scheduled(Protocol):
    """An action that is due later."""

    def cancel(self) -> None:
        """Drop the action if it has not run yet."""


class Clock(Protocol):
    """A source of time."""

    @property
    def virtual(self) -> bool:
        """Whether this clock's time is simulated."""

    def now(self) -> int:
        """Return nanoseconds since an arbitrary start; monotonic."""

    def realtime_offset(self) -> Span | None:
        """Return bounds of CLOCK_REALTIME, by which the kernel stamps packets, minus this clock.

        None in virtual time, of which no kernel knows.
        """

    def slewed(self) -> int:
        """Return by how many ns NTP has slewed this clock, from an arbitrary beginning.

        That is CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW; 0 in virtual time.
        """

    def sleep(self, duration: int) -> None:
        """Wait `duration` ns."""

    def event(self) -> Event:
        """Return a new event that is not set."""

    def schedule(self, at: int, owner: str, action: Action) -> Scheduled:
        """Run `action` at time `at`, or at once if that is past.

        `action` must not wait. Actions due at the same time run one after the other, ordered by
        `owner` and, for one owner, in the order in which they were scheduled.
        """

    def parallel(self, *tasks: Callable[[], T]) -> list[T]:
        """Run `tasks` in parallel threads and return their results in order.

        Sections may be nested. If tasks raise, the error of the first one in order is raised
        after all have ended.
        """

    def flight(self, connection: Hashable) -> Flight:
        """Return the byte count of `connection`, the same object for both ends."""

    def delay_write(self, *, written: bool = False) -> None:
        """Let the time pass that a write to an instrument takes; call before and after it.

        In real time it passes by itself. No lock may be held for which a reader of replies waits.
        """

    def close(self) -> None:
        """End the clock's threads; actions that are not yet due never run."""


_steps = [0]
"""By how many ns calendar time was stepped in this process."""


def wall_time() -> dt.datetime:
    """Return calendar time in UTC, for names of runs and nights; never for measuring."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(microseconds=_steps[0] / 1e3)


def step_wall_time(by: int) -> None:
    """Step calendar time by `by` ns for this process, as NTP steps a wrong clock; for fault plans.

    No other clock is concerned: what is measured must not notice.
    """
    _steps[0] += by


def boot_time() -> int:
    """Return nanoseconds since the machine was started, a suspension included.

    For promises between hosts: `Clock.now` may stand still while the machine is suspended.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


# ------------------------------------------------------------------------------ system


class _NoFlight:
    """No byte count: system time does not wait for bytes in flight."""

    def sent(self, count: int) -> None:
        pass

    def landed(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


class _SystemEvent:
    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set
        self.is_set = self._event.is_set

    def wait(self, timeout: int | None = None) -> bool:
        return self._event.wait(None if timeout is None else timeout / 1e9)


class Due:
    """A scheduled action; for clocks only."""

    __slots__ = ("action", "cancelled")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


Agenda: TypeAlias = list[tuple[int, str, int, Due]]
"""A heap of scheduled actions, ordered by time, then owner, then age."""


class SystemClock:
    """The machine's monotonic clock (CLOCK_MONOTONIC)."""

    virtual = False

    def __init__(self) -> None:
        self._agenda: Agenda = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._timer: threading.Thread | None = None
        self._workers = Workers()
        self._closed = False

    def now(self) -> int:
        return time.monotonic_ns()

    def realtime_offset(self) -> Span | None:
        before, realtime, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        # At the moment of `realtime` this clock showed something from `before` to `after`.
        return Span(realtime - after, realtime - before)

    def slewed(self) -> int:
        width, slewed = 1 << 62, 0
        for _ in range(3):  # an interrupt between the readings would look like a slew
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            now = time.monotonic_ns()
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            if after - before < width:
                width, slewed = after - before, now - (before + after) // 2
        return slewed

    def sleep(self, duration: int) -> None:
        if duration > 0:
            time.sleep(duration / 1e9)

    def event(self) -> Event:
        return _SystemEvent()

    def schedule(self, at: int, owner: str, action: Action) -> Scheduled:
        with self._changed:
            due = Due(action)
            heapq.heappush(self._agenda, (at, owner, next(self._numbers), due))
            if self._timer is None:
                self._timer = threading.Thread(target=self._run, name="clock", daemon=True)
                self._timer.start()
            # The thread need not wake for an action behind the one that it waits for: with hundreds
            # of devices the needless wake-ups took longer than the actions.
            if self._agenda[0][3] is due:
                self._changed.notify()
        return due

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    wait = (self._agenda[0][0] - self.now()) / 1e9 if self._agenda else None
                    if wait is not None and wait <= 0:
                        break
                    self._changed.wait(wait)
                if self._closed:
                    return
                # All that is due at once: threads that schedule would wait for a lock that is taken
                # for each action.
                now, due = self.now(), []
                while self._agenda and self._agenda[0][0] <= now:
                    due.append(heapq.heappop(self._agenda)[3])
            for each in due:
                if each.cancelled or self._closed:
                    continue
                try:
                    each.action()
                except BaseException:  # reported; the other actions still have to run
                    report_on_thread()

    def parallel(self, *tasks: Callable[[], T]) -> list[T]:
        outcomes = Outcomes(tasks)
        if len(tasks) == 1 and threading.current_thread() is not threading.main_thread():
            outcomes.run(0)  # it needs no thread where no Ctrl-C can come
            return outcomes.results()
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()

        def work(index: int) -> None:
            outcomes.run(index)
            ended.put(None)

        for index in range(len(tasks)):
            self._workers.run(partial(work, index))
        for _ in tasks:
            ended.get()
        return outcomes.results()

    def flight(self, connection: Hashable) -> Flight:
        return _NoFlight()

    def delay_write(self, *, written: bool = False) -> None:
        pass

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._timer is not None and self._timer is not threading.current_thread():
            self._timer.join()
        self._workers.close()


class Outcomes(Generic[T]):
    """Results and errors of the tasks of one parallel section; for clocks only."""

    def __init__(self, tasks: Sequence[Callable[[], T]]) -> None:
        self._tasks = tasks
        self._returned: dict[int, T] = {}
        self._raised: dict[int, BaseException] = {}

    def run(self, index: int) -> None:
        """Run task `index` and store its result or error."""
        try:
            self._returned[index] = self._tasks[index]()
        except BaseException as error:  # raised by `results` in the parent thread
            self._raised[index] = error

    def results(self) -> list[T]:
        """Return all results in order, or raise the error of the first failed task."""
        for index in sorted(self._raised):
            raise self._raised[index]
        return [self._returned[index] for index in range(len(self._tasks))]


_OWNER = "owner"


class FairLock:
    """A lock for `with` that threads acquire in the order in which they came.

    `threading.Lock` would do neither: it is not fair, so that which of two threads writes first
    would depend on the scheduler and not on the seed, and a thread that waits for it still counts
    as running for a virtual clock, which would never move.

    The uncontended case costs two operations on a dictionary. Each is atomic (one bytecode in C),
    and Ctrl-C may be raised between any others; so every step can be repeated: a thread that
    enters again while it owns the lock goes on with it, and releasing twice does no harm.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # {_OWNER: thread} while locked, {} while free: `setdefault` is the atomic acquisition.
        self._owner: dict[str, int] = {}
        # Waiting threads, oldest first, with the event that hands each the lock.
        self._waiting: dict[int, Event] = {}
        self._lock = threading.Lock()  # guards hand-overs, never held while waiting

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner.setdefault(_OWNER, me) != me:
            self._wait(me)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._waiting:
                self._owner.pop(_OWNER, None)
            # A thread may have begun to wait just before the line above freed the lock.
            if self._waiting:
                self._hand_over(threading.get_ident())
        except BaseException:
            self._hand_over(threading.get_ident())
            raise

    def _wait(self, me: int) -> None:
        turn = self._clock.event()
        try:
            with self._lock:
                self._waiting[me] = turn
            self._hand_over(me)  # the owner may have left before it saw this thread wait
            turn.wait()
            with self._lock:
                # Once more: the thread that handed over may have been interrupted after `set`.
                self._owner[_OWNER] = me
                del self._waiting[me]
        except BaseException:
            # Interrupted: leave the queue. If the lock was handed over in the same moment, it is
            # this thread's to pass on: no other thread would.
            with self._lock:
                self._waiting.pop(me, None)
                if turn.is_set():
                    self._owner[_OWNER] = me
            self._hand_over(me)
            raise

    def _hand_over(self, me: int) -> None:
        """Pass the lock, if it is free or this thread's, to the first waiter, or free it."""
        with self._lock:
            if self._owner.setdefault(_OWNER, me) != me:
                return
            for thread, turn in self._waiting.items():
                # First: interrupted behind it, the lock has an owner that takes it; the other way
                # round it would have one that is never woken.
                turn.set()
                self._owner[_OWNER] = thread
                return
            del self._owner[_OWNER]
