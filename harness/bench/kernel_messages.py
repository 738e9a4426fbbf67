"""Kernel messages of a bench's servers: what they are about, when they came, how many.

They are evidence beside what a measurement found, never a verdict. Network namespaces of one
machine share its log: a line of it is the machine's, and no server's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from typing import NamedTuple

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import (
    HasKernelMessages,
    KernelLine,
    KernelReading,
    Server,
)
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.servers.tools.kernel_patterns import KernelPattern, pattern_of

MOST_ALIKE = 100
"""Lines of one log that one pattern describes and that are kept; of older ones their number."""

MOST_SHOWN = 20
"""Lines of one test that are shown and stored."""

FAMILY = "kernel_messages"
"""First part of the names of the quantities."""

TOTAL = "total"
"""Quantity of all lines that a pattern describes."""

LOST = "lost"
"""Kind under which lines are counted that were overwritten, or too many to be read."""


class SeenLine(NamedTuple):
    """A line that a pattern of the table describes. log: whose log it is in."""

    log: str
    line: KernelLine
    pattern: KernelPattern

    def sentence(self, origin: int) -> str:
        """Return it for a reader, its time since `origin` on the bench's clock."""
        earliest, latest = self.line.at.earliest - origin, self.line.at.latest - origin
        time = f"{earliest / 1e9:+.4f} to {latest / 1e9:+.4f} s"
        return f"{time} {self.log}: {self.line.text} [{self.pattern.kind}]"


class Window(NamedTuple):
    """What came in a window of time.

    Attributes:
        lines: `MOST_SHOWN` lines in the order of their times, of each pattern the first ones.
        counts: how many lines by log and kind, also those that are not among `lines`.
        origin: its beginning on the bench's clock, in ns.
    """

    lines: tuple[SeenLine, ...]
    counts: Mapping[tuple[str, str], int]
    origin: int

    def sentences(self) -> list[str]:
        """Return the lines for a reader, and how many are left out."""
        found = [one.sentence(self.origin) for one in self.lines]
        total = sum(self.counts.values())
        lost = sum(count for (_, kind), count in self.counts.items() if kind == LOST)
        if (more := total - lost - len(found)) > 0:
            found.append(f"{more:,} more lines like these")
        if lost:
            found.append(f"{lost:,} lines of the kernel were lost before they were read")
        return found


@dataclass(slots=True)
class KernelMessages:
    """The logs of the machines of a bench's servers.

    Args:
        servers: by name.
        clock: the bench's.

    Attributes:
        unreadable: why a log is not read.
        began: when the bench was opened, on its clock.
    """

    servers: Mapping[str, Server]
    clock: Clock
    unreadable: dict[str, str] = field(default_factory=dict)
    began: int = field(init=False)
    _logs: dict[str, HasKernelMessages] | None = None
    _seen: dict[tuple[str, KernelPattern], deque[SeenLine]] = field(default_factory=dict)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Note the time."""
        self.began = self.clock.now()

    @property
    def logs(self) -> Mapping[str, HasKernelMessages]:
        """The logs that are read: of servers that share a machine one, by all their names."""
        if self._logs is None:
            machines: dict[str, list[str]] = {}
            for name, server in self.servers.items():
                if isinstance(server, HasKernelMessages) and server.boot:
                    machines.setdefault(server.boot, []).append(name)
            self._logs = {}
            for first, *further in machines.values():
                server = self.servers[first]
                assert isinstance(server, HasKernelMessages)
                shared = f"the machine of {first} and {len(further)} more"
                self._logs[shared if further else first] = server
        return self._logs

    def read(self) -> None:
        """Read what has come since the last call; the first call begins."""
        readers: dict[str, Callable[[], KernelReading | str]] = {
            log: partial(_reading, server)
            for log, server in self.logs.items()
            if log not in self.unreadable
        }
        found = self.clock.parallel(*readers.values()) if readers else []
        for log, reading in zip(readers, found, strict=True):
            if isinstance(reading, str):
                self.unreadable[log] = reading
                continue
            for line in reading.lines:
                if (pattern := pattern_of(line.text)) is not None:
                    alike = self._seen.setdefault((log, pattern), deque(maxlen=MOST_ALIKE))
                    alike.append(SeenLine(log, line, pattern))
                    self._counts[log, pattern.kind] += 1
            if lost := reading.lost + reading.left_out:
                self._counts[log, LOST] += lost

    def link_lines(self, since: int) -> Iterator[SeenLine]:
        """Yield the lines about links that came after a moment of the bench's clock."""
        for (_, pattern), alike in self._seen.items():
            if pattern.kind == "link":
                yield from (one for one in alike if one.line.at.latest >= since)

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many lines have come so far, by log and kind."""
        return self._counts.copy()

    def since(self, origin: int, before: Mapping[tuple[str, str], int]) -> Window:
        """Return what has come since a moment of the bench's clock, when `counts` was `before`."""
        counts, groups = self._counts - Counter(before), []
        full = set()
        for (log, pattern), alike in self._seen.items():
            groups.append([one for one in alike if one.line.at.latest >= origin])
            if len(alike) == MOST_ALIKE:
                full.add((log, pattern.kind))
        # A late first reading has lines of earlier tests too, which only their times tell.
        timed = Counter((one.log, one.pattern.kind) for group in groups for one in group)
        found = {
            each: count if each in full or each[1] == LOST else timed[each]
            for each, count in counts.items()
        }
        # A rare line is not to be lost among many that are alike.
        in_turn = (one for each in zip_longest(*groups) for one in each if one is not None)
        lines = sorted(islice(in_turn, MOST_SHOWN), key=lambda one: one.line.at.earliest)
        return Window(tuple(lines), {each: count for each, count in found.items() if count}, origin)


def _reading(server: HasKernelMessages) -> KernelReading | str:
    try:
        return server.kernel_messages()
    except InstrumentError as error:
        return str(error).partition("\n")[0]
