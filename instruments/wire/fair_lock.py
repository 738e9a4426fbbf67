"""A lock whose waiters wait on the bench's clock, so that virtual time can move meanwhile."""

import threading
from types import TracebackType

from lightrig.instruments.clock import Clock, Event

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
