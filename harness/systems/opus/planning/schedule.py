"""Operations of a rank in a step, as profiled; consulted by its shim."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lightrig.harness.systems.opus.planning.operations import Operation, OpusError


@dataclass(frozen=True)
class PhaseTable:
    """The operations of one step on one rank that cross servers, in order; every step repeats it.

    A position counts operations from the first of all on. Those that share one request
    are a stretch: a whole phase of a symmetric parallelism, or one operation of the pipeline,
    whose stages may be in different phases at once (Opus §4.2).

    steps: how many there will be, where that is known. before: operations that come once, before
    the first step. whole: all operations of a script whose steps are not all alike, and `begins`
    the positions at which a step like `operations` begins. joined: how many sends and receives
    are one operation, for each of `before` and `operations`, or of `whole`; 1 where it is empty.
    unlike: steps with other operations, counted from 1, and how many those are; what follows the
    last step counts as one more. profiled_steps: how many steps like `operations` the profile has.
    still: all operations of all ranks are of one dimension, so that no circuit ever changes.
    """

    operations: tuple[Operation, ...]
    steps: int | None = None
    before: tuple[Operation, ...] = ()
    whole: tuple[Operation, ...] = ()
    begins: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    unlike: tuple[tuple[int, int], ...] = ()
    profiled_steps: int = 0
    still: bool = False

    def __post_init__(self) -> None:
        if not self.operations:
            raise OpusError("found no operation, expected those of a step")
        every = (*self.before, *self.operations, *self.whole)
        if foreign := [op for op in every if op.purpose != "data"]:
            raise OpusError(f"{foreign[0]} never crosses the rail and has no place in the table")

    @cached_property
    def _a_step(self) -> Counter[str]:
        return Counter(operation.group for operation in self.operations)

    def at(self, position: int) -> Operation | None:
        """The operation at a position; None after the last step."""
        if self.whole:
            return self.whole[position] if position < len(self.whole) else None
        if position < len(self.before):
            return self.before[position]
        step, place = divmod(position - len(self.before), len(self.operations))
        if self.steps is not None and step >= self.steps:
            return None
        operation = self.operations[place]
        if step == 0:
            return operation
        index = operation.index + step * self._a_step[operation.group]
        # Called several times an operation, while ranks want the processors: `replace` takes
        # three times as long.
        return Operation(operation.group, index, operation.dimension, operation.purpose)

    def asks(self, position: int) -> bool:
        """Whether the operation there needs a request of its own: a shift, or a pipeline's.

        Where no circuit ever changes the first one of each group alone does: its group is ready
        once all its ranks have asked for it, and a rank may begin with another group than they.
        """
        if position == 0:
            return True
        if self.still:
            one = self.at(position)
            return one is not None and one.index == 0
        operation, before = self._alike(position), self._alike(position - 1)
        return operation.asymmetric or before.dimension != operation.dimension

    def _alike(self, position: int) -> Operation:
        """The operation at a position but for its index, as if there were always another step."""
        if self.whole:
            return self.whole[position % len(self.whole)]
        if position < len(self.before):
            return self.before[position]
        return self.operations[(position - len(self.before)) % len(self.operations)]

    def joined_at(self, position: int) -> int:
        """How many sends and receives are one operation at a position."""
        if not self.joined:
            return 1
        late = position - len(self.before)
        if self.whole or late < 0:
            return self.joined[position]
        return self.joined[len(self.before) + late % len(self.operations)]

    def steps_in(self, count: int) -> list[tuple[int, int]]:
        """Where the steps like `operations` begin and end in a run of `count` operations."""
        length = len(self.operations)
        begins = self.begins or range(len(self.before), count - length + 1, length)
        return [(begin, begin + length) for begin in begins]

    def all(self) -> list[Operation]:
        """Every operation of all steps; raises `OpusError` where nobody knows how many."""
        if self.steps is None:
            raise OpusError("nobody knows how many steps there will be")
        count = len(self.before) + self.steps * len(self.operations)
        return [op for op in map(self.at, range(count)) if op is not None]

    @property
    def shifts(self) -> int:
        """Phase changes in a step, the one from its end to the next one's beginning included."""
        return len(
            [
                place
                for place, operation in enumerate(self.operations)
                if self.operations[place - 1].dimension != operation.dimension
            ]
        )


def numbered(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations with their indices counted, group by group, from 0."""
    counts: Counter[str] = Counter()
    out = []
    for operation in operations:
        out.append(replace(operation, index=counts[operation.group]))
        counts[operation.group] += 1
    return tuple(out)
