"""When changes of rails begin: some time after they are due, so that stages go together."""

from collections.abc import Collection

GATHERING = 1_000_000
"""Time for which a change waits for stages that are about to be ready for it too, in ns."""


class Gathering:
    """Rails with a change that is due, and when it begins; times in ns."""

    def __init__(self, time: int = GATHERING) -> None:
        self._time = time
        self._begins: dict[int, int] = {}

    def note(self, due: Collection[int], now: int) -> list[int]:
        """Take the rails that have a change to begin; return those that had none before."""
        for rail in self._begins.keys() - set(due):
            del self._begins[rail]
        new = [rail for rail in due if rail not in self._begins]
        self._begins.update(dict.fromkeys(new, now + self._time))
        return new

    def take(self, now: int, rails: Collection[int]) -> list[tuple[int, int]]:
        """Take those of `rails` whose change begins by now, each with when it was due."""
        taken = [(rail, at) for rail, at in self._begins.items() if at <= now and rail in rails]
        for rail, _ in taken:
            del self._begins[rail]
        return [(rail, at - self._time) for rail, at in taken]

    def next(self, rails: Collection[int]) -> int | None:
        """Return when the next change of `rails` begins."""
        return min((at for rail, at in self._begins.items() if rail in rails), default=None)
