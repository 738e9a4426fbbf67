"""A lock whose waiters wait on the bench's clock, so that virtual time can move meanwhile."""

import threading
from types import TracebackType

from instruments.clock import Clock, Event

_TURN = "turn"


class Turns:
    """Lets one thread at a time in, in the order they came; to be used in `with`.

    A turn that nobody else wants costs two steps of a dictionary, which Python does not interrupt.
    Ctrl-C may come at any other. So a step that was cut short is done again, and a thread that
    comes back while it still has the turn goes on with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holder: dict[str, int] = {}
        self._lock = threading.Lock()
        self._waiting: dict[int, Event] = {}

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._holder.setdefault(_TURN, me) != me:
            self._wait(me)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._waiting:
                self._holder.pop(_TURN, None)
            if self._waiting:
                self._pass_on(threading.get_ident())
        except BaseException:
            self._pass_on(threading.get_ident())
            raise

    def _wait(self, me: int) -> None:
        turn = self._clock.event()
        try:
            with self._lock:
                self._waiting[me] = turn
            self._pass_on(me)  # whoever had the turn may have left meanwhile
            turn.wait()
            with self._lock:
                self._holder[_TURN] = me
                del self._waiting[me]
        except BaseException:
            with self._lock:
                self._waiting.pop(me, None)
                if turn.is_set():
                    self._holder[_TURN] = me
            self._pass_on(me)
            raise

    def _pass_on(self, me: int) -> None:
        """Hand a turn that is free, or this thread's, to the first of those who wait."""
        with self._lock:
            if self._holder.setdefault(_TURN, me) != me:
                return
            for thread, turn in self._waiting.items():
                turn.set()
                self._holder[_TURN] = thread
                return
            del self._holder[_TURN]
