"""Phases of a step: found in a log of operations, or read from the tables of the released shim."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lightrig.harness.systems.opus.planning.operations import OpusError

_LINE = re.compile(
    r"(?P<dimension>[A-Z]+) start_backend: (\d+) start_idx: (\d+) "
    r"end_backend: (\d+) end_idx: (\d+) len: (\d+)"
)


@dataclass(frozen=True, slots=True)
class Issued:
    """An operation as a rank's log has it: its parallelism, its group's number and its index."""

    dimension: str
    group: int
    index: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A longest run of operations of one parallelism: a line of the phase table.

    start, end: group number and index of the first and of the last operation. length: how many
    operations there are, of all groups of that parallelism.
    """

    dimension: str
    start: tuple[int, int]
    end: tuple[int, int]
    length: int


def detect(operations: Sequence[Issued]) -> list[Phase]:
    """The phases of operations in the order in which a rank issued them."""
    phases: list[Phase] = []
    for operation in operations:
        here = operation.group, operation.index
        last = phases[-1] if phases else None
        if last is None or last.dimension != operation.dimension:
            phases.append(Phase(operation.dimension, here, here, 1))
        else:
            phases[-1] = Phase(last.dimension, last.start, here, last.length + 1)
    return phases


def parse_phase_table(text: str) -> list[Phase]:
    """Read a phase table as the released shim writes it: a header, then a line a phase.

    Raises `OpusError` with the line that makes no sense.
    """
    phases = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("Node:"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise OpusError(f"line {number}: found {line!r}, expected a phase such as PP start_...")
        first, start, final, end, length = (int(match[place]) for place in range(2, 7))
        if length < 1 or (first == final and end < start):
            raise OpusError(
                f"line {number}: a phase from {start} to {end} has no {length} operations"
            )
        phases.append(Phase(match["dimension"], (first, start), (final, end), length))
    return phases


@dataclass(frozen=True, slots=True)
class Steady:
    """Return the phases of one step, which repeat `steps` times after `warm_up` phases."""

    warm_up: int
    phases: tuple[tuple[str, int], ...]
    steps: int

    @property
    def shifts(self) -> int:
        """Phase changes in a step: each phase begins with one."""
        return len(self.phases)


def steady(phases: Sequence[Phase], *, at_least: int = 3) -> Steady:
    """The shortest cycle of dimensions and lengths that the table ends with.

    The last phase is left out: the run may have ended in its middle. Raises `OpusError` where
    nothing repeats `at_least` times.
    """
    kinds = [(phase.dimension, phase.length) for phase in phases[:-1]]
    for period in range(1, len(kinds) // at_least + 1):
        begun = len(kinds)
        while begun > period and kinds[begun - 1] == kinds[begun - 1 - period]:
            begun -= 1
        first = begun - period
        repeats = (len(kinds) - first) // period
        if repeats >= at_least and kinds[first][0] != kinds[first + period - 1][0]:
            return Steady(first, tuple(kinds[first : first + period]), repeats)
    raise OpusError(f"no cycle in {len(phases)} phases: was the run long enough to be profiled?")
