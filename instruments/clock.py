"""The only source of time: everything that waits, waits here.

`SystemClock` is the machine's monotonic clock, for hardware and for servers that are
namespaces. `instruments.virtual_clock.VirtualClock` is for worlds that are simulated
throughout.

All times and durations are integer nanoseconds.
"""

import datetime as dt
import heapq
import itertools
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Action = Callable[[], None]


class Span(NamedTuple):
    """A moment known to lie between two stamps, both in nanoseconds and both included."""

    earliest: int
    latest: int

    def shifted(self, by: int) -> "Span":
        """The same span, `by` nanoseconds later."""
        return Span(self.earliest + by, self.latest + by)

    def since(self, origin: "Span") -> "Span":
        """How long after `origin` this happened, with the widths of both."""
        return Span(self.earliest - origin.latest, self.latest - origin.earliest)


class Event(Protocol):
    """Something that happens once; waiting for it gives up the waiter's turn."""

    def set(self) -> None:
        """Let it have happened; wakes every waiter. Setting it again changes nothing."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    def wait(self, timeout: int | None = None) -> bool:
        """Wait until it has happened, at most `timeout` ns; False when time ran out."""


class Flight(Protocol):
    """The bytes under way on one connection, counted by its two ends.

    Virtual time does not move while a byte is under way: a sender counts it before
    writing, the receiver discounts it after it has acted on it.
    """

    def sent(self, count: int) -> None:
        """Count `count` bytes that are about to be written."""

    def landed(self, count: int) -> None:
        """Discount `count` bytes that were read and fully acted on."""

    def close(self) -> None:
        """Write off whatever is still counted; the connection is gone."""


class Scheduled(Protocol):
    """An action that is due later."""

    def cancel(self) -> None:
        """Keep it from running, if it has not run yet."""


class Clock(Protocol):
    """What all code takes its time from."""

    @property
    def virtual(self) -> bool:
        """Whether this clock's time is simulated."""

    def now(self) -> int:
        """Nanoseconds since an arbitrary start; never goes back."""

    def sleep(self, duration: int) -> None:
        """Wait `duration` ns."""

    def event(self) -> Event:
        """A new event that has not happened yet."""

    def schedule(self, at: int, owner: str, action: Action) -> Scheduled:
        """Run `action` at time `at` (or at once, if that is past).

        `action` must not wait. Actions due at the same time run one after the other,
        ordered by `owner` and, for one owner, in the order they were scheduled.
        """

    def parallel(self, *tasks: Callable[[], T]) -> list[T]:
        """Run `tasks` side by side, wait for all, return their results in order.

        Sections may be nested. If tasks raise, the error of the first of them (in the
        order given) is raised after all have ended.
        """

    def flight(self, connection: Hashable) -> Flight:
        """The byte count of `connection`, the same object for both of its ends."""

    def close(self) -> None:
        """End the clock's own threads; actions not yet due never run."""


def wall_time() -> dt.datetime:
    """The calendar's time in UTC, for naming runs and nights; never for measuring."""
    return dt.datetime.now(dt.UTC)


# ------------------------------------------------------------------------------ system


class _NoFlight:
    """On the system's clock time moves anyway, so nothing is counted."""

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
    """An action on a clock's agenda; for clocks only."""

    __slots__ = ("action", "cancelled")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


Agenda: TypeAlias = list[tuple[int, str, int, Due]]
"""A heap of what is due, ordered by time, then owner, then age."""


class SystemClock:
    """The machine's monotonic clock (CLOCK_MONOTONIC)."""

    virtual = False

    def __init__(self) -> None:
        self._agenda: Agenda = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._timer: threading.Thread | None = None
        self._closed = False

    def now(self) -> int:
        return time.monotonic_ns()

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
                due = heapq.heappop(self._agenda)[3]
            if not due.cancelled:
                try:
                    due.action()
                except BaseException:  # told, and no reason to stop everybody else's time
                    threading.excepthook(
                        threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                    )

    def parallel(self, *tasks: Callable[[], T]) -> list[T]:
        outcomes = Outcomes(tasks)
        threads = [
            threading.Thread(target=outcomes.run, args=(index,), daemon=True)
            for index in range(len(tasks))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes.results()

    def flight(self, connection: Hashable) -> Flight:
        return _NoFlight()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._timer is not None and self._timer is not threading.current_thread():
            self._timer.join()


class Outcomes(Generic[T]):
    """What the tasks of one parallel section returned or raised; for clocks only."""

    def __init__(self, tasks: Sequence[Callable[[], T]]) -> None:
        self._tasks = tasks
        self._returned: dict[int, T] = {}
        self._raised: dict[int, BaseException] = {}

    def run(self, index: int) -> None:
        """Run task `index` and keep what becomes of it."""
        try:
            self._returned[index] = self._tasks[index]()
        except BaseException as error:  # handed to the section's owner
            self._raised[index] = error

    def results(self) -> list[T]:
        """Every task's result in order; raises the first task's error instead, if any."""
        for index in sorted(self._raised):
            raise self._raised[index]
        return [self._returned[index] for index in range(len(self._tasks))]
