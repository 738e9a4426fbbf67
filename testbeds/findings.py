"""Collection of the problems of a file, so that all of them are shown at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from lightrig.testbeds.errors import Problem, TestbedError
from lightrig.testbeds.yaml_positions import Keys, Located


class Findings:
    """Problems of one file and of the files that it names."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._problems: list[Problem] = list(located.problems)
        self._groups: dict[Hashable, list[Problem]] = {}
        # A value that cannot be read is not reported as a wrong value as well.
        self._unread = {(problem.line, problem.column) for problem in located.problems}

    def __bool__(self) -> bool:
        return bool(self._problems or self._groups)

    def add(
        self,
        keys: Keys,
        message: str,
        *,
        of_key: bool = False,
        offset: int | None = None,
        once: str | None = None,
    ) -> None:
        """Note a problem with the value at `keys`, or with its key.

        `offset` counts characters from the start of the text. Problems with the same `once` at
        the same place, e.g. those of all servers of a range, are shown as one.
        """
        place = self._located.place(keys, of_key=of_key)
        column = place.column if offset is None else place.text + offset
        if (place.line, column) in self._unread:
            return
        group = (place.line, column, once or message)
        problem = Problem(self._located.file, place.line, column, message)
        self._groups.setdefault(group, []).append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Note problems that were found elsewhere."""
        self._problems += problems

    def line(self, keys: Keys) -> int:
        """Return the line of the value at `keys`."""
        return self._located.place(keys).line

    def raise_if_any(self) -> None:
        """Raise `TestbedError` with all problems in file order, if there are any."""
        problems = set(self._problems)
        for first, *more_problems in self._groups.values():
            more = len(set(more_problems) - {first})
            note = f" (and {more} more like it)" if more else ""
            problems.add(Problem(first.file, first.line, first.column, first.message + note))
        if problems:
            raise TestbedError(sorted(problems))


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" or, without a similar name, the known names."""
    import difflib  # noqa: PLC0415 - only for an error

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(found, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not names:
        return "; there are none"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"; expected one of {shown}"
