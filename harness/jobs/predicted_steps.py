"""Steps of a training script before they run: simulated from a recorded run of the same script.

Each rank computes as long as it did in the recorded run, operation by operation. Data take what
they took there by kind and size: a latency and a time a byte for each kind of operation, fitted so
that all of them together take as long as they did. Ranks wait for each other, and for circuits, as
the simulation has them do.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from lightrig.harness.jobs.recorded_steps import RecordedOperation, recorded_step
from lightrig.harness.jobs.statistics.means import MeanEstimate, mean_of
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Group, Node, Pattern, Workload
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Control, Simulator

RUNS_APART = 0.1
"""Share of a step by which the mean of another run may differ as a whole, on the same machine."""


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """The mean step of a run that is still to come, in ns, with an interval of 95 %.

    ranks: of the job. assumptions: what it rests on, a sentence each.
    """

    step: MeanEstimate
    ranks: int
    assumptions: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it: marked as computed, times in ns."""
        return {"computed": True, **asdict(self)}

    def store(self, path: Path, script: str) -> None:
        """Append it to a file of JSON lines, and wait until the disk has it; raises `OSError`."""
        line = json.dumps({"script": script, **self.document()})
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self, measured: MeanEstimate | None) -> Iterator[str]:
        """Yield what a person reads beside what was measured, if anything was."""
        yield f"predicted {self.step}, computed before that run: {self._verdict(measured)}"
        for assumption in self.assumptions:
            yield f"          assumed: {assumption}"

    def _verdict(self, measured: MeanEstimate | None) -> str:
        if measured is None:
            return "nothing was measured beside it"
        if self.step.lower <= measured.value <= self.step.upper:
            return "its interval holds the measured step"
        apart = measured.value / self.step.value - 1 if self.step.value else math.inf
        return f"its interval does NOT hold the measured step, which takes {apart:+.0%}"


class Line(NamedTuple):
    """What an operation takes: `latency` in ns, and `byte` ns for each byte that a rank sends."""

    latency: float
    byte: float


Kind = tuple[str, str, int]
"""The link, the method and the number of ranks of operations that have a line in common."""


def fitted_line(sizes: Sequence[float], times: Sequence[float], least: float) -> Line:
    """Return the line of least squares through times in ns by bytes, all of them as long as these.

    least: ns of a byte on the link, which none can be below. A line that would begin below 0
    begins at 0, so that sums stay what they are.
    """
    size, time = fmean(sizes), fmean(times)
    spread = sum((each - size) ** 2 for each in sizes)
    both = sum((a - size) * (b - time) for a, b in zip(sizes, times, strict=True))
    byte = max(both / spread if spread else 0.0, least)
    latency = time - byte * size
    return Line(latency, byte) if latency >= 0 or not size else Line(0.0, time / size)


def same_amounts(
    ranks: Sequence[Sequence[RecordedOperation]],
) -> list[list[RecordedOperation]]:
    """Return the operations with the largest amount of a collective's members for all of them.

    Its argument is larger at the root of a scatter or a gather than elsewhere.
    """
    largest: dict[tuple[object, int], int] = defaultdict(int)
    for _ in range(2):  # once to find them, once to state them
        found: list[list[RecordedOperation]] = []
        for operations in ranks:
            counts: Counter[object] = Counter()
            found.append([])
            for one in operations:
                group = (one.link, one.members)
                key = group, counts[group]
                counts[group] += not one.parts
                largest[key] = max(largest[key], 0 if one.parts else one.amount)
                alike = one if one.parts else replace(one, amount=largest[key])
                found[-1].append(alike)
    return found


def fitted_lines(ranks: Sequence[Sequence[RecordedOperation]], rate: float) -> dict[Kind, Line]:
    """Return the line of each kind of operation in a recorded run; `rate` of a link in bit/s.

    An operation moves data from when the last of its ranks wants it, or has ended what it did
    before, until the last one has it.
    """
    begun: dict[tuple[object, int], int] = defaultdict(int)
    ended: dict[tuple[object, int], int] = defaultdict(int)
    of: dict[tuple[object, int], tuple[Kind, float]] = {}
    for rank, operations in enumerate(ranks):
        counts: Counter[object] = Counter()
        before = 0
        for one in operations:
            for part in one.parts or "c":
                group: object = (one.link, one.members, _directed(rank, one, part))
                key = group, counts[group]
                counts[group] += 1
                # What ended before it was wanted is in nobody's way.
                begun[key] = max(begun[key], one.asked, min(before, one.ended))
                ended[key] = max(ended[key], one.ended)
                of[key] = kind_of(one.link, one.kind, len(one.members), part), _sent(one)
            before = max(before, one.ended)
    sizes: dict[Kind, list[float]] = defaultdict(list)
    times: dict[Kind, list[float]] = defaultdict(list)
    for key, (kind, size) in of.items():
        sizes[kind].append(size)
        times[kind].append(max(ended[key] - begun[key], 0))
    return {kind: fitted_line(sizes[kind], times[kind], 8e9 / rate) for kind in sizes}


def kind_of(link: str, method: str, members: int, part: str = "c") -> Kind:
    """Return which operations have a line in common: all messages between two ranks have."""
    return (link, method, members) if part == "c" else ("pp", "message", 2)


def _directed(rank: int, operation: RecordedOperation, part: str) -> object:
    """Return from which end a message is, the same on both; nothing for a collective."""
    ends = operation.members if rank == operation.members[0] else operation.members[::-1]
    return {"c": (), "s": ends, "r": ends[::-1]}[part]


def _sent(operation: RecordedOperation) -> float:
    """Return the bytes that a rank sends, of a collective by a ring (and see `MeasuredLinks`)."""
    if operation.parts:
        return operation.amount / len(operation.parts)
    size = len(operation.members)
    twice = "allreduce" in operation.kind
    return operation.amount * (size - 1) / size * (1 + twice)


class MeasuredLinks(DedicatedLinks):
    """Links on which data take what they took in a recorded run, by kind and size."""

    def __init__(self, lines: Mapping[Kind, Line]) -> None:
        super().__init__({}, Timing(latency=0))
        self._lines = lines

    def collective(self, group: Group, node: Node) -> int:
        """Return the nanoseconds of a collective."""
        # The amount of an all-gather is a member's own, see `recorded_step`.
        whole = node.amount * (group.size if node.pattern is Pattern.ALL_GATHER else 1)
        kind = (group.kind, node.name, group.size)
        return self._time(kind, _sent(RecordedOperation(node.name, group.members, whole, 0, 0)))

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send a message."""
        took = self._time(("pp", "message", 2), amount)
        simulator.at(simulator.now + took, end)

    def _time(self, kind: Kind, size: float) -> int:
        line = self._lines[kind]
        return round(line.latency + line.byte * size)


class _Noted:
    """Notes when nodes of communication end; what else a controller decides, `control` does."""

    def __init__(self, control: Control | None) -> None:
        self._control = control
        self.ends: dict[tuple[int, int], int] = {}

    def may_start(self, simulator: Simulator, rank: int, number: int) -> bool:
        return self._control is None or self._control.may_start(simulator, rank, number)

    def ended(self, simulator: Simulator, rank: int, number: int) -> None:
        self.ends[rank, number] = simulator.now
        if self._control is not None:
            self._control.ended(simulator, rank, number)


Controlled = Callable[[Workload, DedicatedLinks], tuple[Control, Callable[[Simulator], None]]]
"""Returns who changes circuits in a simulated run, and what begins it."""


def simulated_steps(
    ranks: Sequence[Sequence[RecordedOperation]],
    bounds: Sequence[Sequence[tuple[int, int]]],
    stages: Sequence[int],
    lines: Mapping[Kind, Line],
    controlled: Controlled | None = None,
) -> list[float]:
    """Return how long each step of a simulated run takes, in ns, as a mean over ranks.

    ranks: operations in the order in which each wanted them. bounds: for each rank, of each step
    the places of the operation that it begins with the end of, and of its last one.
    Raises `WorkloadError` for what cannot be simulated.
    """
    begun = min(operations[0].asked for operations in ranks)
    workload = recorded_step(ranks, [begun] * len(ranks), stages, timed=True)
    network = MeasuredLinks(lines)
    control, begin = (None, None) if controlled is None else controlled(workload, network)
    noted = _Noted(control)
    simulator = Simulator(workload, network, noted, rendezvous=True)
    if begin is not None:
        simulator.at(0, lambda: begin(simulator))
    simulator.run()
    by_rank = []
    for rank, operations in enumerate(ranks):
        ends, number = [], 0
        for one in operations:
            number += one.nodes
            parts = range(number - one.nodes + 1, number)
            ends.append(max(noted.ends[rank, part] for part in parts))
        by_rank.append([ends[last] - ends[first] for first, last in bounds[rank]])
    return [fmean(each) for each in zip(*by_rank, strict=True)]


def predicted_step(
    steps: Sequence[float], recorded: Sequence[float], ranks: int, assumptions: Sequence[str]
) -> PredictedStep:
    """Return the mean of simulated steps, with an interval of 95 % for that of another run.

    Its steps deviate each by itself as the `recorded` ones do, and all together by `RUNS_APART`.
    Raises `ValueError` for fewer than two.
    """
    center = fmean(steps)
    spread = mean_of([round(each) for each in recorded])
    half = math.hypot(math.sqrt(2) * (spread.upper - spread.value), RUNS_APART * center)
    mean = MeanEstimate(center, max(0.0, center - half), center + half, len(steps))
    apart = f"another run differs as a whole by up to {RUNS_APART:.0%}"
    return PredictedStep(mean, ranks, (*assumptions, apart))
