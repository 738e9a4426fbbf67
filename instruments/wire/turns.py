"""A lock whose waiters wait on the bench's clock, so that virtual time can move meanwhile."""

import threading
from collections import deque
from types import TracebackType

from instruments.clock import Clock, Event


class Turns:
    """Lets one at a time in, in the order they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[Event] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            turn = self._clock.event()
            self._waiting.append(turn)
        try:
            turn.wait()
        except BaseException:
            with self._lock:
                came = turn not in self._waiting
                if not came:
                    self._waiting.remove(turn)
            if came:
                self._pass_on()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            following = self._waiting.popleft() if self._waiting else None
            self._taken = following is not None
        if following is not None:
            following.set()
