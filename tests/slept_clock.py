"""A clock that sleeps move, for code that takes its time from one; tasks run one after another."""

from collections.abc import Callable
from typing import Any


class SleptClock:
    """A clock that begins at `at`, in ns, and notes each sleep."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.sleeps: list[int] = []

    def now(self) -> int:
        return self.at

    def sleep(self, duration: int) -> None:
        self.sleeps.append(duration)
        self.at += duration

    def parallel(self, *tasks: Callable[[], Any]) -> list[Any]:
        return [task() for task in tasks]
