"""A lock whose waiters wait on the bench's clock, so that virtual time can move meanwhile."""

import threading
from types import TracebackType

from instruments.clock import Clock, Event


class Turns:
    """Lets one thread at a time in, in the order they came; to be used in `with`.

    Ctrl-C may come at any step here, too. So a step that was cut short is done again, and a
    thread that comes back while it still has the turn goes on with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._waiting: dict[int, Event] = {}

    def __enter__(self) -> None:
        me = threading.get_ident()
        try:
            with self._lock:
                if self._owner is None or self._owner == me:
                    self._owner = me
                    return
                turn = self._waiting[me] = self._clock.event()
            turn.wait()
            with self._lock:
                self._owner = me
                del self._waiting[me]
        except BaseException:
            self._leave(me)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        me = threading.get_ident()
        try:
            self._leave(me)
        except BaseException:
            self._leave(me)
            raise

    def _leave(self, me: int) -> None:
        """Wait no longer; whoever has the turn hands it to the first of those who wait."""
        with self._lock:
            turn = self._waiting.pop(me, None)
            if self._owner == me or (turn is not None and turn.is_set()):
                for thread, following in self._waiting.items():
                    following.set()
                    self._owner = thread
                    return
                self._owner = None
