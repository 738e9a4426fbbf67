"""Simulated steps of ACOS's configurations (Table 7), by the rules of the generator that it names.

MLSynth (NetMLSim/MLSynth 665fce2, Apache 2.0) is public; its layers of experts are marked there as
incomplete, and the authors' extension is not public. What is taken from it: each data-parallel
replica does the whole batch, in micro-batches, all forward passes first; a layer has two kernels of
8 T d^2 + 4 T S d and 16 T d^2 FLOP, twice of it backward, whatever its experts; a layer of experts
has an all-to-all of 1.25 k T d values before its experts forward, and one behind them backward; two
bytes a value; no tensor parallelism for experts. Here a layer's kernels follow each other, which
the released dependencies of a layer of experts do not state.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from lightrig.harness.claims.computed import Computed, exactly, over_draws
from lightrig.harness.systems.acos.planning.expanders import DEGREE
from lightrig.harness.systems.acos.planning.simulated_fabric import topologies
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.fabrics import Rates
from lightrig.harness.workloads.graph import (
    Device,
    Graph,
    GraphBuilder,
    Group,
    Kind,
    Node,
    Pattern,
    Workload,
)
from lightrig.suites.claims.acos.performance import MODELS, Model

H200 = Device(989e3, 4800.0)
"""FLOP and bytes a ns, as a data sheet has them: what the simulator takes operations for."""
RATE = 100.0
"""Bytes a ns of 800 Gbit/s."""
SWITCHING = 8_000_000
SEEDS = range(1, 6)
CAPACITY = 1.25
_BYTES, _SIMULATED = 2, 2
_TIMING = Timing(latency=500, endpoint=0, memory=0, splits=1, holding=0)


@cache
def step_of(name: str, sequence: int) -> Workload:
    """Return the step of a model of Table 7, of which tensor-parallel ranks do not exist.

    Data-parallel ranks do the same at the same times: two of a stage are simulated, since one
    alone would select no links.
    """
    model = MODELS[name]
    graphs = tuple(_Stage(model, sequence, stage).graph() for stage in range(model.pp))
    groups = []
    for stage in range(model.pp):
        members = tuple(stage * _SIMULATED + rank for rank in range(_SIMULATED))
        here = {"dp": Group("dp", members, model.dp), "ep": Group("ep", members, model.ep)}
        groups += [here] * _SIMULATED
    stages = tuple(stage for stage in range(model.pp) for _ in range(_SIMULATED))
    folded = {"DP": model.dp // _SIMULATED}
    return Workload(graphs, stages, tuple(groups), folded, stages)


class _Stage:
    """The graph of a stage."""

    def __init__(self, model: Model, sequence: int, stage: int) -> None:
        self._model, self._stage, self._sequence = model, stage, sequence
        self._tokens = model.batch * sequence // model.microbatches
        self._values = self._tokens * model.hidden
        self._layers = model.layers // model.pp
        self._builder = GraphBuilder(f"stage {stage}")
        self._before: list[tuple[str, int, str]] = []

    def graph(self) -> Graph:
        """Return all forward passes, all backward ones and the reduction of gradients."""
        model = self._model
        for micro in range(model.microbatches):
            self._pass("forward", micro, +1)
        for micro in range(model.microbatches):
            self._pass("backward", micro, -1)
        # The released formula, which counts a dense layer and no experts.
        parameters = 12 * model.layers * model.hidden**2
        self._add("reduce", 0, "gradients", self._collective("dp", parameters // model.pp))
        return self._builder.build()

    def _pass(self, phase: str, micro: int, ways: int) -> None:
        last = self._model.pp - 1
        source, target = self._stage - ways, self._stage + ways
        amount = self._values * _BYTES
        tag = 2 * micro + (phase == "backward")
        chain = self._before
        if 0 <= source <= last:
            self._before = []
            node = Node(Kind.RECEIVE, (), amount=amount, peer=-ways * _SIMULATED, tag=tag)
            self._add(phase, micro, "receive", node)
            self._before += chain
        for layer in range(self._layers):
            for name, node in self._layer(phase):
                self._add(phase, micro, f"{layer} {name}", node)
        chain = self._before
        if 0 <= target <= last:
            node = Node(Kind.SEND, (), amount=amount, peer=ways * _SIMULATED, tag=tag)
            self._add(phase, micro, "send", node)
            self._before = chain

    def _layer(self, phase: str) -> Iterator[tuple[str, Node]]:
        model, tokens, d = self._model, self._tokens, self._model.hidden
        exchange = self._collective("ep", int(CAPACITY * model.per_token * self._values))
        attention = self._compute(phase, 8 * tokens * d * d + 4 * tokens * self._sequence * d)
        gate = self._compute(phase, 2 * tokens * d)
        experts = self._compute(phase, 16 * tokens * d * d)
        parts = {"attention": attention, "gate": gate, "exchange": exchange, "experts": experts}
        if phase == "forward":
            yield from parts.items()
        else:
            yield from reversed(parts.items())

    def _compute(self, phase: str, operations: int) -> Node:
        matrix = (12 * self._model.hidden**2 + self._values) * _BYTES
        time = H200.nanoseconds(operations * (1 + (phase == "backward")), matrix)
        return Node(Kind.COMPUTE, (), nanoseconds=time)

    def _collective(self, group: str, values: int) -> Node:
        pattern = Pattern.ALL_TO_ALL if group == "ep" else Pattern.ALL_REDUCE
        return Node(Kind.COLLECTIVE, (), 0, pattern, values * _BYTES, group)

    def _add(self, phase: str, micro: int, name: str, node: Node) -> None:
        key = (phase, micro, name)
        self._builder.add(key, self._before, node)
        self._before = [key]


@cache
def step_time(
    name: str, sequence: int, mode: str, seed: int = 1, skew: float = 0.0, rate: float = RATE
) -> int:
    """Return the nanoseconds of a step on a fabric of that mode."""
    fabric = topologies(Rates(rate, rate, _TIMING), skew, seed)
    return fabric.simulate(step_of(name, sequence), mode, SWITCHING).step


def over_a_switch(name: str, sequence: int) -> Computed:
    """Return a step on selected topologies over that on packet switches (Table 9)."""
    packet, rules = step_time(name, sequence, "packet"), "simulated by the rules of MLSynth"
    if MODELS[name].ep <= DEGREE:  # a complete graph, the same by any seed
        return exactly(step_time(name, sequence, "selected") / packet, f"{rules}; even traffic")
    found = [step_time(name, sequence, "selected", seed) / packet for seed in SEEDS]
    return over_draws(found, f"{rules}, on five expanders; even traffic")


def with_tax(name: str, sequence: int, tax: float) -> Computed:
    """Return the same where an all-to-all takes `tax` times a switch's."""
    fabric = topologies(Rates(RATE, RATE, _TIMING))
    fabric = replace(fabric, exchanges={"selected": lambda _ranks: tax})
    step = fabric.simulate(step_of(name, sequence), "selected", SWITCHING).step
    return exactly(
        step / step_time(name, sequence, "packet"),
        f"simulated by the rules of MLSynth, with all-to-alls of {tax:g} times a switch's",
    )
