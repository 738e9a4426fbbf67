"""Threads for calls of which each may hang."""

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from lightrig.instruments.clock import boot_time

T = TypeVar("T")

_GROWTH = 4
"""By how much more threads each further moment without an end brings: thousands after some."""


class CallPool(Generic[T]):
    """Makes calls in a few threads, and in more for as long as none of them ends.

    Two thousand threads that all get answers at once take all processors to switch between them;
    a few threads would all wait for switches that hang, while others are not asked.

    Args:
        threads: as many run as long as calls end.
        stalled_s: time without an end after which others are called beside those that hang.
        name: of the threads.
    """

    def __init__(self, threads: int, stalled_s: float, name: str) -> None:
        self._threads, self._stalled_s, self._name = threads, stalled_s, name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: deque[tuple[Future[T], Callable[[], T]]] = deque()
        self._running: set[Future[T]] = set()
        self._ended = boot_time()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call as soon as a thread is free."""
        future: Future[T] = Future()
        self._waiting.append((future, call))
        self._pool.submit(self._run)
        return future

    def wait(
        self, calls: Collection[Future[T]], timeout: float | None = None, *, first: bool = False
    ) -> set[Future[T]]:
        """Wait at most `timeout` s for calls to end, or for the first to; return the others."""
        begun, pending, more = boot_time(), set(calls), self._threads
        self._ended = begun
        while pending:
            now = boot_time()
            slice_s = self._stalled_s
            if timeout is not None:
                left = timeout - (now - begun) / 1e9
                if left <= 0:
                    break
                slice_s = min(slice_s, left)
            when = FIRST_COMPLETED if first else ALL_COMPLETED
            ended, pending = wait(pending, slice_s, when)
            if first and ended:
                break
            if self._waiting and boot_time() - self._ended >= self._stalled_s * 1e9:
                self._call_more(more)
                more *= _GROWTH
        return pending

    def close(self) -> None:
        """Drop the calls that wait, and wait for those that run."""
        self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)
        wait(list(self._running))

    def _call_more(self, threads: int) -> None:
        """Call those that wait in other threads, which end with the last of them."""
        count = len(self._waiting)
        extra = ThreadPoolExecutor(max(min(threads, count), 1), thread_name_prefix=self._name)
        for _ in range(count):
            extra.submit(self._run)
        extra.shutdown(wait=False)

    def _run(self) -> None:
        """Make the call that has waited longest; other threads may have made all."""
        try:
            future, call = self._waiting.popleft()
        except IndexError:
            return
        self._running.add(future)
        future.set_running_or_notify_cancel()
        try:
            future.set_result(call())
        except BaseException as error:  # raised where the result is asked for
            future.set_exception(error)
        finally:
            self._ended = boot_time()
            self._running.discard(future)
