"""Rules of the simulation whose results the authors have released: circuits by voting and polling.

For the comparison with those results only: the controller of `planning/controller.py` has others. A
stage's bit says whether it wants its ring (0) or its neighbours (1); two neighbouring stages that
both want each other are joined, and a stage that is joined to none has its ring. Source: the
released artifact, simulation/reconfig_backend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from math import sqrt

from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Group, Kind, Workload
from lightrig.harness.workloads.networks import Circuits, DedicatedLinks, Switching
from lightrig.harness.workloads.simulator import Simulator, StepTimes

RING = -1
"""Label of the data-parallel ring; that of a circuit to a neighbour is its rank."""
GIB = 2**30 / 1e9
"""Bytes a nanosecond of what the archive calls 1 GB/s."""

Marks = Mapping[int, Mapping[int, Sequence[int]]]
"""Of each rank, labels that it asks for when its communication of a number has ended."""


def lines_of(bits: Sequence[int]) -> frozenset[Hashable]:
    """Return the circuits of a state: rings of stages, and joints of a stage with the next."""
    count = len(bits)
    joints = {stage for stage in range(count) if bits[stage] and bits[(stage + 1) % count]}
    rings = {s for s in range(count) if s not in joints and (s - 1) % count not in joints}
    return frozenset([*(("dp", s) for s in rings), *(("pp", s) for s in joints)])


def circuits(
    workload: Workload, bandwidths: Mapping[str, float], timing: Timing, switching: Switching
) -> Circuits:
    """Return the network: all rings at first. `switching` in nanoseconds."""
    stages = workload.stages
    count = max(stages) + 1

    def line_of(members: tuple[int, ...], kind: str) -> Hashable | None:
        if kind != "pp":
            return (kind, stages[members[0]]) if kind == "dp" else None
        low, high = sorted(stages[member] for member in members)
        return ("pp", low if high == low + 1 else high)

    return Circuits(bandwidths, timing, line_of, lines_of([0] * count), switching, 1)


class ArchivedControl:
    """The archive's control, on demand; with `marks` also ahead of demand.

    voting: a ring is asked for once all its ranks want it; left out, by the first.
    """

    def __init__(
        self,
        workload: Workload,
        circuits: Circuits,
        marks: Marks | None = None,
        *,
        voting: bool = True,
    ) -> None:
        self._circuits = circuits
        self._stages = workload.stages
        self._bits = [0] * (max(self._stages) + 1)
        self._present = tuple(self._bits)
        self._votes: dict[Group, set[int]] = defaultdict(set)
        self._granted: dict[Group, int] = {}
        self._in_flight = 0
        self._marks = marks or {}
        self._voting = voting
        self.ended_labels: list[list[int | None]] = [[] for _ in self._stages]

    def may_start(self, simulator: Simulator, rank: int, number: int) -> bool:
        """Grant a send, or a collective of a ring, if its circuits are there or may be made."""
        node = simulator.node(rank, number)
        if node.kind is Kind.SEND:
            self._want(rank, simulator.peer(rank, number))
            return self._ask(simulator)
        group = simulator.group(rank, number)
        if group.kind != "dp":
            return True
        if group not in self._granted:
            self._votes[group].add(rank)
            if self._voting and len(self._votes[group]) < len(group.members):
                return False
            self._want(rank, RING)
            if not self._ask(simulator):
                return False
            self._granted[group] = 0
            self._in_flight += 1
        self._granted[group] += 1
        if self._granted[group] == len(group.members):
            del self._granted[group], self._votes[group]
        return True

    def ended(self, simulator: Simulator, rank: int, number: int) -> None:
        """Count what has ended; ask for what follows it, if that is known."""
        node = simulator.node(rank, number)
        label = None
        if node.kind in {Kind.SEND, Kind.RECEIVE}:
            label = simulator.peer(rank, number)
        elif (group := simulator.group(rank, number)).kind == "dp":
            label = RING
            if len(group.members) > 1 and rank == group.members[-1]:
                self._in_flight -= 1
        finished = len(self.ended_labels[rank])
        self.ended_labels[rank].append(label)
        for wanted in self._marks.get(rank, {}).get(finished, ()):
            if wanted != label:
                self._want(rank, wanted)
                self._ask(simulator)

    def _want(self, rank: int, label: int) -> None:
        stage = self._stages[rank]
        if label == RING:
            self._bits[stage] = 0
        else:
            self._bits[stage] = self._bits[self._stages[label]] = 1

    def _ask(self, simulator: Simulator) -> bool:
        wanted = tuple(self._bits)
        if wanted == self._present:
            return True
        if self._circuits.draining or self._in_flight:
            return False
        self._present = wanted
        self._circuits.change(simulator, lines_of(wanted))
        return True


def marks(ended: Sequence[Sequence[int | None]]) -> Marks:
    """Return where ranks ask ahead, from the labels of what ended in a run on demand."""
    found: dict[int, dict[int, list[int]]] = {}
    for rank, labels in enumerate(ended):
        asked: dict[int, list[int]] = defaultdict(list)
        before, at = None, 0
        for number, label in enumerate(labels):
            if label is None:
                continue
            if label != before:
                asked[at].append(label)
            before, at = label, number
        found[rank] = dict(asked)
    return found


def on_demand(
    workload: Workload,
    bandwidths: Mapping[str, float],
    timing: Timing,
    switching: Switching,
    *,
    voting: bool = True,
) -> tuple[StepTimes, Marks]:
    """Return a step on demand, and what a second one asks for ahead."""
    network = circuits(workload, bandwidths, timing, switching)
    control = ArchivedControl(workload, network, voting=voting)
    times = Simulator(workload, network, control).run()
    return times, marks(control.ended_labels)


def provisioned(
    workload: Workload,
    bandwidths: Mapping[str, float],
    timing: Timing,
    switching: Switching,
    ahead: Marks,
) -> StepTimes:
    """Return a step whose ranks ask ahead."""
    network = circuits(workload, bandwidths, timing, switching)
    return Simulator(workload, network, ArchivedControl(workload, network, ahead)).run()


def one_shot(workload: Workload, scale_out: float, scale_up: float) -> dict[str, float]:
    """Return the bandwidths of a fabric that never changes, split by the root of its traffic.

    The archive's rule: all links of the fabric, those within a server too, share one budget.
    """
    carried = workload.traffic()
    stages = max(workload.stages) + 1
    group = workload.groups[0]
    data, tensor = group["dp"].size, group["tp"].size
    ranks = data * tensor * stages
    links = {
        "dp": ranks * min(data - 1, 2),
        "pp": ranks * min(stages - 1, 2),
        "tp": ranks * (tensor - 1),
    }
    budget = max(links["dp"], links["pp"]) * scale_out + links["tp"] * scale_up
    roots = {kind: sqrt(carried[kind] / carried["tp"]) for kind in links}
    return {kind: budget * root / sum(roots.values()) / links[kind] for kind, root in roots.items()}


def packet(workload: Workload, bandwidths: Mapping[str, float], timing: Timing) -> StepTimes:
    """Return a step on packet switches without contention: each kind of link at its full rate."""
    return Simulator(workload, DedicatedLinks(bandwidths, timing)).run()
