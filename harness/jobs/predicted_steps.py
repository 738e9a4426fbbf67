"""Steps of a training script before they run: simulated from a recorded run of the same script.

Each rank computes as long as it did in the recorded run, and data take what they took there,
operation by operation: what happens once, as connections that are made with the first data, counts
once. Ranks wait for each other, and for circuits, as the simulation has them do; were there
nothing more to wait for than in the recorded run, steps would take as long as in it.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from lightrig.harness.jobs.recorded_steps import RecordedOperation, recorded_step
from lightrig.harness.jobs.statistics.means import MeanEstimate, mean_of
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Group, Node, Workload
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Control, Simulator

RUNS_APART = 0.2
"""Share of a step by which the mean of another run may differ as a whole, on the same machine.

Measured: 21 pairs of runs of nine scripts, four ranks on two processors that others used too,
differed by 13 % in the root of the mean square, of which deviations of their steps explain 8 %;
10 % are left, and this is twice that.
"""


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


@dataclass(slots=True)
class _Shared:
    """What the ranks of a collective, or of a message, have in common."""

    amount: int = 0
    begun: int = 0
    ended: int = 0


def matched(ranks: Sequence[Sequence[RecordedOperation]]) -> list[list[RecordedOperation]]:
    """Return the operations of a run with what their ranks have in common.

    That is a collective's largest amount (at the root of a scatter or a gather it is larger than
    elsewhere), its last end, and the time that data took: from when the last of the ranks wanted
    it, or had ended what it did before, until the last one had it.
    """
    shared: defaultdict[tuple[object, int], _Shared] = defaultdict(_Shared)
    of: list[list[list[_Shared]]] = []
    for rank, operations in enumerate(ranks):
        counts: Counter[object] = Counter()
        of.append([])
        for one in operations:
            of[-1].append([])
            for part in one.parts or "c":
                group: object = (one.link, one.members, _directed(rank, one, part))
                each = shared[group, counts[group]]
                counts[group] += 1
                each.amount, each.ended = max(each.amount, one.amount), max(each.ended, one.ended)
                of[-1][-1].append(each)
    for operations, places in zip(ranks, of, strict=True):
        before = 0
        for one, parts in zip(operations, places, strict=True):
            ends = [before]
            for part, each in zip(one.parts or "c", parts, strict=True):
                # Receives run beside others, and what ended before it was wanted delays nothing.
                free = 0 if part == "r" else min(max(ends), each.ended)
                each.begun = max(each.begun, one.asked, free)
                ends.append(0 if part == "r" else each.ended)
            before = max(ends)
    return [
        [
            replace(
                one,
                amount=one.amount if one.parts else parts[0].amount,
                ended=max(each.ended for each in parts),
                took=tuple(max(each.ended - each.begun, 0) for each in parts),
            )
            for one, parts in zip(operations, places, strict=True)
        ]
        for operations, places in zip(ranks, of, strict=True)
    ]


def _directed(rank: int, operation: RecordedOperation, part: str) -> object:
    """Return from which end a message is, the same on both; nothing for a collective."""
    ends = operation.members if rank == operation.members[0] else operation.members[::-1]
    return {"c": (), "s": ends, "r": ends[::-1]}[part]


class RecordedLinks(DedicatedLinks):
    """Links on which each operation takes what it took in a recorded run; see `matched`."""

    def __init__(self, ranks: Sequence[Sequence[RecordedOperation]]) -> None:
        super().__init__({}, Timing(latency=0))
        self._messages: defaultdict[object, deque[int]] = defaultdict(deque)
        for rank, operations in enumerate(ranks):
            for one in operations:
                for part, took in zip(one.parts, one.took, strict=False):
                    if part == "s":
                        self._messages[_directed(rank, one, part)].append(took)

    def collective(self, group: Group, node: Node) -> int:
        """Return the nanoseconds of a collective."""
        return node.nanoseconds

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send a message, the next one between its ends."""
        simulator.at(simulator.now + self._messages[source, target].popleft(), end)


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
    controlled: Controlled | None = None,
) -> list[float]:
    """Return how long each step of a simulated run takes, in ns, as a mean over ranks.

    ranks: `matched` operations, in the order in which each wanted them. bounds: for each rank, of
    each step the places of the operation that it begins with the end of, and of its last one.
    Raises `WorkloadError` for what cannot be simulated.
    """
    begun = min(operations[0].asked for operations in ranks)
    workload = recorded_step(ranks, [begun] * len(ranks), stages)
    network = RecordedLinks(ranks)
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
    return [fmean(each) for each in zip(*by_rank, strict=False)]


def predicted_step(
    steps: Sequence[float], recorded: Sequence[float], ranks: int, assumptions: Sequence[str]
) -> PredictedStep:
    """Return the mean of simulated steps, with an interval of 95 % for that of another run.

    Its steps deviate each by itself as the `recorded` ones do, and all together by `RUNS_APART`.
    What the first of several recorded ones takes more than others is no deviation: replicas divide
    their gradients anew behind the first step, and another run does so, too.
    Raises `ValueError` for fewer than two.
    """
    center = fmean(steps)
    spread = mean_of([round(each) for each in recorded[len(recorded) > 2 :]])
    half = math.hypot(math.sqrt(2) * (spread.upper - spread.value), RUNS_APART * center)
    mean = MeanEstimate(center, max(0.0, center - half), center + half, len(steps))
    apart = f"another run differs as a whole by up to {RUNS_APART:.0%}"
    return PredictedStep(mean, ranks, (*assumptions, apart))
