"""Virtual time: it stands still while a participant runs and jumps when all of them wait.

Seconds of link bring-up cost no real time, and one seed gives one result to the last bit, although
drivers and simulated devices talk over real sockets with real threads.

The clock counts two things under one lock: participants that run, and bytes in flight (credits).

- A participant is the thread that made the clock, or a worker of a parallel section. A participant
  that waits does not count as running; the thread that wakes it counts it as running again
  *before* it wakes up, so that time cannot move in between.
- The two ends of a connection count the bytes between them. A request in flight holds time until
  the simulated device has scheduled its reaction; a reply in flight holds time until the thread
  that waits for it counts as running. Without these credits time could jump while a request is in
  a socket buffer, and the device would react late.

Only when both counts are zero does the clock jump to the next scheduled action. Actions at the same
time run one by one, ordered by owner and age, never by the order in which threads happened to
arrive in real time: that order differs from run to run.

Threads that only transport (readers of sockets, simulated devices) are no participants: they hold
time through the bytes in flight alone.

Ctrl-C is raised in the main thread between any two bytecodes. In the middle of a jump it would
leave the counts wrong. So the main thread never moves time itself: a mover thread does, and the
main thread only adds itself to the waiting participants and removes itself, which can be undone.
"""

import heapq
import itertools
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from lightrig.instruments.clock import Action, Agenda, Due, Event, Flight, Outcomes, Scheduled
from lightrig.instruments.clock.workers import Workers
from lightrig.testbeds.errors import LightrigError

T = TypeVar("T")


class ClockStalledError(LightrigError):
    """Virtual time cannot move: all participants wait and no action is scheduled."""


class NotAParticipantError(LightrigError):
    """A thread that is no participant of the virtual clock tried to wait on it."""


class VirtualClock:
    """Virtual time of one simulated world, starting at zero.

    `stall_timeout` is the real time, in s, after which a wait without any progress fails: so a
    simulated device that does not account for its bytes is found.

    Attributes:
        write_delay: returns the time before a write of the harness, and with True that after it,
            in ns; None for writes that take no time.
        corrected: returns by how many ns this machine's kernel has corrected its clock until a
            moment; None for a clock without corrections.
    """

    virtual = True

    def __init__(self, stall_timeout: float = 60.0) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.write_delay: Callable[[bool], int] | None = None
        self.corrected: Callable[[int], int] | None = None
        self._participating = 1  # the thread that makes the clock
        self._acting = False  # a scheduled action is running
        self._workers = Workers()
        self._mover: _Mover | None = None
        self._in_flight = 0
        self._progress = 0  # counts wake-ups and actions, to notice a stall
        self._agenda: Agenda = []
        self._numbers: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        self._flights: dict[Hashable, _Flight] = {}
        self._waiters: set[_Waiter] = set()
        self._failure: BaseException | None = None
        self._stall_timeout = stall_timeout
        self._participants = threading.local()
        self._participants.name = "main"

    def realtime_offset(self) -> None:
        return None

    def slewed(self) -> int:
        return 0 if self.corrected is None else self.corrected(self._now)

    def now(self) -> int:
        return self._now

    def sleep(self, duration: int) -> None:
        if duration > 0:
            self.event().wait(duration)

    def event(self) -> Event:
        return _Event(self)

    def schedule(self, at: int, owner: str, action: Action) -> Scheduled:
        with self._lock:
            return self._schedule(at, owner, action)

    def parallel(self, *tasks: Callable[[], T]) -> list[T]:
        parent = self._participant()
        outcomes = Outcomes(tasks)
        all_done = self.event()
        unfinished = count = len(tasks)
        every = set(range(count))
        unstarted: set[int] = set()

        def work(index: int) -> None:
            nonlocal unfinished
            # Names order what is due at one time, as text: by index, with zeros in front.
            self._participants.name = f"{parent}/{index:04d}"
            with self._lock:
                if index in unstarted:
                    unstarted.remove(index)
                else:
                    return
            try:
                outcomes.run(index)
            finally:
                with self._lock:
                    unfinished -= 1
                    last = unfinished == 0
                # In this order: `set` counts the parent as running, and only then does this
                # worker cease to; with none of them time would move before the parent goes on.
                if last:
                    all_done.set()
                self._leave(1)

        # All workers count as running before the first one starts: a quick one must not see
        # time move while its siblings are still being started. After an interrupt here, those
        # not yet started are discounted, and return at once if they start after all.
        try:
            with self._lock:
                # In one line of plain assignments, between which no interrupt comes.
                unstarted, self._participating = every.copy(), self._participating + count
            for index in every:
                self._workers.run(partial(work, index))
        except BaseException:
            with self._lock:
                never, unstarted = len(unstarted), set()
            self._leave(never)
            raise
        if tasks:
            all_done.wait()
        return outcomes.results()

    def flight(self, connection: Hashable) -> Flight:
        with self._lock:
            if connection not in self._flights:
                self._flights[connection] = _Flight(self, connection)
            return self._flights[connection]

    def delay_write(self, *, written: bool = False) -> None:
        if self.write_delay is not None:
            self.sleep(self.write_delay(written))

    def close(self) -> None:
        with self._lock:
            self._agenda.clear()
            mover, self._mover = self._mover, None
        if mover is not None:
            mover.end()
        self._workers.close()

    # ----------------------------------------------------------- with the lock acquired

    def _schedule(self, at: int, owner: str, action: Action) -> Due:
        due = Due(action)
        # Ties go by owner and the owner's own count, never by arrival: threads arrive in another
        # order in each run, and one seed has to give one result.
        moment = at if at > self._now else self._now
        heapq.heappush(self._agenda, (moment, owner, next(self._numbers[owner]), due))
        return due

    def _jump(self, duration: int) -> bool:
        """Let `duration` pass for this thread, if nothing else runs or is due until its end.

        Then no other thread takes part, and time may be moved even by the main thread: one
        assignment is done or not done when an interrupt comes. Most sleeps between two readings
        of a monitor are such, and the hand-over to the mover and back costs more than the jump.
        """
        if self._participating - len(self._waiters) != 1 or self._acting or self._in_flight:
            return False
        agenda = self._agenda
        while agenda and agenda[0][3].cancelled:
            heapq.heappop(agenda)
        until = self._now + duration
        if self._failure is not None or (agenda and agenda[0][0] <= until):
            return False
        self._now = until
        return True

    def _advance(self) -> None:
        """Move time if the world is at rest; the main thread leaves that to the mover."""
        # A byte in flight is a reply that will wake a thread: time that moved before it is read
        # would let a timeout precede an answer that was there in time.
        if self._participating != len(self._waiters) or self._acting or self._in_flight:
            return
        if threading.current_thread() is not threading.main_thread():
            self._move()
            return
        if self._mover is None:
            mover = _Mover(self)
            self._workers.run(mover.run)
            self._mover = mover  # only now: after an interrupt it is made again
        self._mover.wake()

    def _move(self) -> None:
        """Run scheduled actions, one by one, for as long as the world is at rest.

        An action runs without the lock: it sends bytes and sets events, which need it. `_acting`
        keeps all other threads from moving time until the action has ended.
        """
        agenda, waiters = self._agenda, self._waiters
        while self._participating == len(waiters) and not self._acting and not self._in_flight:
            if not agenda:
                self._fail(ClockStalledError(self._describe_stall()))
                return
            at, _, _, due = heapq.heappop(agenda)
            if due.cancelled:
                continue
            # Time is that of the action before it runs: what it stamps happened now.
            self._now = at
            self._progress += 1
            self._acting = True
            # An action writes to sockets and sets events, both of which take the lock.
            self._lock.release()
            failure = None
            try:
                due.action()
            except BaseException as error:  # raised in all waiting participants
                failure = error
            self._lock.acquire()
            self._acting = False
            if failure is not None:
                self._fail(failure)

    def _fail(self, error: BaseException) -> None:
        # For good: a world of which one action failed, or that stood still, is not trusted again.
        self._failure = error
        for waiter in list(self._waiters):
            self._wake(waiter, happened=False)

    def _wake(self, waiter: "_Waiter", *, happened: bool) -> None:
        # One that has timed out, or was interrupted, is still among the waiters of its event.
        if waiter in self._waiters:
            self._waiters.discard(waiter)
            waiter.happened = happened
            self._progress += 1
            waiter.woken.release()

    def _describe_stall(self) -> str:
        waiting = ", ".join(sorted(waiter.participant for waiter in self._waiters)) or "no one"
        in_flight = ", ".join(
            f"{flight.count} bytes on {connection}"
            for connection, flight in self._flights.items()
            if flight.count
        )
        running = self._participating - len(self._waiters)
        return (
            f"virtual time stands at {self._now} ns: {waiting} waiting, {running} running, "
            f"{len(self._agenda)} actions due, {in_flight or 'nothing in flight'}"
        )

    # -------------------------------------------------------------------- participants

    def _participant(self) -> str:
        name: str | None = getattr(self._participants, "name", None)
        if name is None:
            raise NotAParticipantError(
                f"thread {threading.current_thread().name!r} takes no part in this virtual "
                "clock; only the thread that made the clock and workers of clock.parallel() "
                "may wait on it"
            )
        return name

    def _leave(self, count: int) -> None:
        with self._lock:
            self._participating -= count
            self._advance()

    def _wait(self, event: "_Event", timeout: int | None) -> bool:
        waiter = _Waiter(self._participant())
        due = None
        try:
            with self._lock:
                if event.happened:
                    return True
                if timeout is not None and (timeout <= 0 or self._jump(timeout)):
                    return False
                event.waiters.append(waiter)
                if timeout is not None:
                    due = self._schedule(
                        self._now + timeout,
                        waiter.participant,
                        lambda: self._time_out(waiter),
                    )
                # From here on this thread counts as at rest; the last one to rest moves
                # time, be it this thread itself.
                self._waiters.add(waiter)
                self._advance()
            self._await_wake(waiter)
        except BaseException:
            # Interrupted: count this thread as running again, unless it was woken just now.
            with self._lock:
                self._wake(waiter, happened=False)
            raise
        finally:
            if due is not None:
                due.cancel()
        if self._failure is not None:
            raise self._failure
        return waiter.happened

    def _time_out(self, waiter: "_Waiter") -> None:
        with self._lock:
            self._wake(waiter, happened=False)

    def _await_wake(self, waiter: "_Waiter") -> None:
        progress = self._progress
        while not waiter.woken.acquire(timeout=self._stall_timeout):
            if progress == self._progress:
                with self._lock:
                    self._fail(
                        ClockStalledError(
                            f"no progress for {self._stall_timeout:g} s of real time; "
                            + self._describe_stall()
                        )
                    )
            progress = self._progress


class _Mover:
    """The thread that moves time when the main thread finds the world at rest."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        # In C and safe against interrupts; a Semaphore costs a tenth of a reconfiguration.
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended = False

    def wake(self) -> None:
        self._wanted.put(None)

    def end(self) -> None:
        self._ended = True
        self._wanted.put(None)

    def run(self) -> None:
        """Move time when woken, until `end`."""
        while True:
            self._wanted.get()
            if self._ended:
                return
            with self._clock._lock:  # noqa: SLF001 - one mechanism in several classes
                self._clock._move()  # noqa: SLF001


class _Waiter:
    """One participant's wait."""

    __slots__ = ("happened", "participant", "woken")

    def __init__(self, participant: str) -> None:
        self.participant = participant
        self.happened = False
        # A bare lock, released by the waker: an Event would cost a condition variable more.
        self.woken = threading.Lock()
        self.woken.acquire()


class _Event:
    __slots__ = ("_clock", "happened", "waiters")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.happened = False
        self.waiters: list[_Waiter] = []

    def set(self) -> None:
        clock = self._clock
        with clock._lock:  # noqa: SLF001 - one mechanism in several classes
            self.happened = True
            for waiter in self.waiters:
                clock._wake(waiter, happened=True)  # noqa: SLF001
            self.waiters.clear()

    def is_set(self) -> bool:
        return self.happened

    def wait(self, timeout: int | None = None) -> bool:
        return self._clock._wait(self, timeout)  # noqa: SLF001


class _Flight:
    __slots__ = ("_clock", "_connection", "closed", "count")

    def __init__(self, clock: VirtualClock, connection: Hashable) -> None:
        self._clock = clock
        self._connection = connection
        self.count = 0
        self.closed = False

    def sent(self, count: int) -> None:
        clock = self._clock
        with clock._lock:  # noqa: SLF001
            if not self.closed:
                self.count += count
                clock._in_flight += count  # noqa: SLF001

    def landed(self, count: int) -> None:
        clock = self._clock
        with clock._lock:  # noqa: SLF001
            if not self.closed:
                self.count -= count
                clock._in_flight -= count  # noqa: SLF001
                if not clock._in_flight:  # noqa: SLF001
                    clock._advance()  # noqa: SLF001

    def close(self) -> None:
        clock = self._clock
        with clock._lock:  # noqa: SLF001
            if not self.closed:
                # What the other end still reads is not subtracted a second time.
                self.closed = True
                clock._in_flight -= self.count  # noqa: SLF001
                clock._flights.pop(self._connection, None)  # noqa: SLF001
                clock._advance()  # noqa: SLF001
