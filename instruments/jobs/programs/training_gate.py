"""Permission of a rank's operations: which wait, and for what; without PyTorch."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["Gate", "RefusedError"]


class RefusedError(RuntimeError):
    """An operation must not run: no rail carries it, or it was not expected."""


class Gate:
    """Counts a rank's operations and holds them back until they are permitted; without PyTorch.

    Sends and receives between two ranks that a script starts before it waits for one of them are
    joined into one operation: a pipeline stage that sends and receives at once would otherwise
    deadlock, waiting for permission to receive before it could wait for its send. With `phases`,
    those are joined that the phases say, on both ranks the same.

    Args:
        groups: name and ranks of each group whose operations the rail carries. One without ranks
            stands for all that are not within a server: they are named by their ranks.
        emit: sends an event to the harness.
        gated: whether operations wait for permission.
        phases: by which the rank decides itself about those that need not ask.
        script: path of the script, whose lines operations are told with.
        servers: the ranks of each.
        ended: ranks whose script has ended, and how many collectives of each group it had begun.

    Attributes:
        operations: `[group, index, kind, bytes, asked, began, ended, line, parts]` of each that the
            rails carry; parts are the directions, s or r, of joined sends and receives.
        front_end: the same of what the front end carries, without parts.
        steps: the number of operations begun before the end of each optimizer step.
        optimizers: how many optimizers of PyTorch the script has made.
    """

    def __init__(
        self,
        groups: dict[str, Sequence[int]],
        emit: Callable[[dict[str, Any]], None],
        *,
        gated: bool,
        phases: dict[str, list[Any]] | None = None,
        script: str = "",
        servers: Sequence[Sequence[int]] = (),
        ended: Mapping[int, Mapping[str, int]] | None = None,
    ) -> None:
        self._names = {frozenset(ranks): name for name, ranks in groups.items() if ranks}
        self._between = any(not ranks for ranks in groups.values())
        self._servers = [frozenset(ranks) for ranks in servers]
        self._emit, self._gated = emit, gated
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._waiting: dict[int, threading.Event] = {}
        self._refused: dict[int, str] = {}
        self._joined: tuple[str, int] | None = None
        self._left = 0
        self._script = script
        self._optimizer: Any = None
        self._running: Counter[int] = Counter()
        self._phases = phases if gated else None
        self._granted = False
        self._begun = 0
        self._in_flight: set[int] = set()
        self._unreported: list[list[Any]] = []
        self._ends: list[int | None] = []  # to report; None where all that is unreported is due
        self.operations: list[list[Any]] = []
        self.front_end: list[list[Any]] = []
        self._collectives: Counter[str] = Counter()
        self._keys: dict[int, tuple[str, int]] = {}
        self._open: dict[tuple[str, int], tuple[str, Sequence[int], int | None]] = {}
        self._ended_ranks = {} if ended is None else ended
        self.steps: list[int] = []
        self.optimizers = 0

    def stepped(self, optimizer: Any) -> None:
        """Note the end of an optimizer's step; where a script has several, of the first one's."""
        with self._lock:
            self._optimizer = optimizer if self._optimizer is None else self._optimizer
            if optimizer is self._optimizer:
                self.steps.append(len(self.operations))
                self._report_ends()
                # A rank that asks no more would report at its end alone. One line of both: each
                # wakes the harness, which may take a processor that the ranks want.
                self._emit({"stepped": len(self.steps), **self._unheard()})

    @contextlib.contextmanager
    def beside(self, kind: str, ranks: Sequence[int], size: int) -> Iterator[None]:
        """Note an operation that no rail carries, from its begin to its end."""
        group = "front end " + ",".join(map(str, sorted(ranks)))
        with self._lock:
            index = self._counts[group]
            self._counts[group] += 1
        asked, line = now(), self._line()
        key = self._opened(kind, group, ranks, line)
        try:
            yield
        finally:
            self._open.pop(key, None)
            self.front_end.append([group, index, kind, size, asked, asked, now(), line])

    def report_alone(self) -> None:
        """Report the collectives in progress that a rank in `ended` never begins."""
        with self._lock:
            for key in self._open:
                self._report_alone(*key)

    def _opened(
        self, kind: str, group: str, ranks: Sequence[int], line: int | None
    ) -> tuple[str, int]:
        """Note that a collective has begun, and report one that an ended rank never begins.

        Of sends and receives two ranks may have begun different numbers.
        """
        if kind in ("send", "recv"):
            return group, -1
        with self._lock:
            key = group, self._collectives[group]
            self._collectives[group] += 1
            self._open[key] = kind, ranks, line
            self._report_alone(*key)
        return key

    def _report_alone(self, group: str, index: int) -> None:
        kind, ranks, line = self._open[group, index]
        for rank, counts in list(self._ended_ranks.items()):
            if rank in ranks and index >= counts.get(group, 0):
                self._emit({"alone": [kind, group, index, line, rank, counts.get(group, 0)]})

    def _line(self) -> int | None:
        """Return the line of the script that is being run, or None on a thread that runs none."""
        frame = sys._getframe(1)  # noqa: SLF001 - as `traceback` does
        while frame is not None and frame.f_code.co_filename != self._script:
            frame = frame.f_back  # type: ignore[assignment]
        return frame and frame.f_lineno

    def carries(self, ranks: Sequence[int]) -> bool:
        """Whether operations among `ranks` are the rail's."""
        group = frozenset(ranks)
        within = any(group <= server for server in self._servers)
        if self._between and len(group) > 1 and not within:
            self._names.setdefault(group, ",".join(map(str, sorted(group))))
        return group in self._names

    def begin(self, kind: str, ranks: Sequence[int], size: int) -> int:
        """Wait until an operation of `size` bytes among `ranks` may run; return its number.

        Raises `RefusedError`.
        """
        group = self._names.get(frozenset(ranks))
        if group is None:
            raise RefusedError(
                f"{kind} among ranks {sorted(ranks)}: the rail carries "
                + ", ".join(f"{name} {sorted(each)}" for each, name in self._names.items())
            )
        pair = kind in ("send", "recv")
        with self._lock:
            if self._joined is not None and pair and self._joined[0] == group:
                number = self._joined[1]
                self._running[number] += 1
                self.operations[number][3] += size
                self.operations[number][8] += kind[0]
                self._left -= 1
                if self._phases is not None and not self._left:
                    self._joined = None
                return number
            self._leave_joined()
            number = len(self.operations)
            index = self._counts[group]
            self._counts[group] += 1
            asked = now()
            parts = kind[0] if pair else ""
            line = self._line()
            self.operations.append([group, index, kind, size, asked, asked, 0, line, parts])
            self._keys[number] = self._opened(kind, group, ranks, line)
            self._running[number] = 1
            self._left = self._at(number)[2] - 1 if self._phases is not None else 0
            if pair and (self._phases is None or self._left):
                self._joined = group, number
            operation = [group, index, kind, size]
            if self._granted and not self._asks(number, group):
                self._report_ends()
                self._unreported.append(["began", number, operation, asked, asked])
                self._begin(number)
                return number
            allowed = self._waiting[number] = threading.Event()
            if self._gated:
                self._report_ends()
                self._report()
                self._emit({"wants": number, "operation": operation})
        if self._gated:
            allowed.wait()
            if number in self._refused:
                where = "" if line is None else f", in line {line} of the script"
                raise RefusedError(self._refused[number] + where)
            with self._lock:
                self.operations[number][5] = now()
                self._granted = self._phases is not None
                self._begin(number)
        return number

    def _begin(self, number: int) -> None:
        self._in_flight.add(number)
        self._begun = number + 1

    def _asks(self, position: int, group: str | None = None) -> bool:
        """Whether the operation at a position must ask: also where another group was profiled."""
        if self._phases is None:
            return True
        profiled, asks, _ = self._at(position)
        return bool(asks) or group not in (None, profiled)

    def _at(self, position: int) -> tuple[str, bool, int]:
        """Return the group at a profiled position, whether it asks, and how many are joined."""
        assert self._phases is not None
        first, then = self._phases["first"], self._phases["then"]
        late = position - len(first)
        if late >= 0 and not then:
            return "", True, 1
        group, asks, joined = first[position] if late < 0 else then[late % len(then)]
        return group, asks, joined

    def _report(self) -> None:
        if ran := self._unheard():
            self._emit(ran)

    def _unheard(self) -> dict[str, Any]:
        """Return, once, what has begun and ended since the last report; nothing where none has."""
        ran, self._unreported = self._unreported, []
        return {"ran": ran} if ran else {}

    def finish(self) -> None:
        """Report what has begun and ended since the last report: the script has ended."""
        with self._lock:
            self._report_ends()
            self._report()

    def go(self, number: int, refused: str | None) -> None:
        """Permit the operation of that number, or refuse it."""
        if refused is not None:
            self._refused[number] = refused
        self._waiting[number].set()

    def waited_for(self, number: int) -> None:
        """Note that the script waits for it: later sends and receives are another operation."""
        with self._lock:
            joined = self._joined is not None and self._joined[1] == number
            if joined and self._phases is None:
                self._leave_joined()
                self._report_ends()

    def done(self, number: int, then: Callable[[], object] = lambda: None) -> None:
        """Note that a part of an operation has ended on this rank.

        then: hands its result to the script, which need not wait until the end is reported: that
        wakes the harness, which may take this processor, and is no part of the script's time.
        """
        with self._lock:
            self._running[number] -= 1
            self._end(number)
        then()
        with self._lock:
            self._report_ends()

    def _report_ends(self) -> None:
        """Report the ends that are noted, before anything that follows them."""
        ends, self._ends = self._ends, []
        for number in ends:
            if number is None:
                self._report()
            else:
                self._emit({"ended": number})

    def _leave_joined(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            self._end(joined[1])

    def _end(self, number: int) -> None:
        joined = self._joined is not None and self._joined[1] == number
        if self._running[number] == 0 and not joined and not self.operations[number][6]:
            ended = self.operations[number][6] = now()
            self._in_flight.discard(number)
            self._open.pop(self._keys.pop(number), None)
            if self._phases is not None:
                self._unreported.append(["ended", number, ended])
                if not self._in_flight and self._asks(self._begun):
                    self._granted = False
                    self._ends.append(None)
            elif self._gated:
                self._ends.append(number)
