"""Clusters of one or two racks: 16, 64, 72, 128 and 144 GPUs (§5.1 and §5.2).

A GPU stands at (stage, d, node): `stage` counts along the chain of the pipeline, d is one of two
replicas, and tensor-parallel rings run over the nodes. In a resilient cluster node 8 is the
backup. Lanes are in two halves: A faces forward, B backward. The paper draws its wiring in
figures without a list of links; what is built here is derived from its counts of switches:

- TP: a ring of eight nodes for each (stage, d). TP 4 splits it, TP 16 joins the rings of
  `stage` and `stage + stages / 2`, whose data-parallel rings then stay as they are.
- DP: a ring of two (d = 0, 1), joined to other nodes' by TP 4 and to `stage + stages / 2` by a
  lower PP. A still lower PP gives the chain's unused links to DP, lane by lane.
- PP: a chain without switches; of d = 0 it runs from A to B, of d = 1 from B to A.
- EP: one splittable expander a stage, with d = 0 and d = 1 as halves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lightrig.harness.systems.acos.planning.expanders import Splittable, splittable
from lightrig.harness.systems.acos.planning.optics import (
    FabricError,
    Ints,
    OpticalFabric,
    States,
    select,
)
from lightrig.harness.systems.acos.planning.rings import (
    BACKUP,
    NODES,
    TP_4_8,
    Ends,
    Frame,
    Rings,
    Topology,
    merge_points,
)

PP_4_2, EP_8_16 = "PP 4-2", "EP 8-16"


@dataclass(frozen=True, slots=True)
class Spec:
    """A cluster to build. stages: 1 (16 GPUs, rings only), 4 (one rack) or 8 (two racks)."""

    stages: int
    lanes: int = 8
    resilient: bool = False

    @property
    def expands(self) -> bool:
        """Whether stages have expanders: a node of degree eight needs as many lanes."""
        return self.stages > 1 and self.lanes == 8

    @property
    def nodes(self) -> int:
        """Nodes of a ring, the backup included."""
        return NODES + self.resilient

    @property
    def racks(self) -> int:
        """Number of racks."""
        return 2 if self.stages == 8 else 1

    @property
    def gpus(self) -> int:
        """Number of GPUs, backups included."""
        return self.stages * 2 * self.nodes

    def at_node(self, rack: int, node: int) -> list[int]:
        """Return the GPUs of a node, in the order of their stages; a node has those of its rack."""
        stages = [stage for stage in range(self.stages) if self.rack_of(stage) == rack]
        return [(stage * 2 + d) * self.nodes + node for stage in stages for d in (0, 1)]

    def rack_of(self, stage: int) -> int:
        """Rack of a stage: the chain changes racks at every second link."""
        return stage // 2 % 2 if self.racks == 2 else 0


CLUSTERS: Mapping[str, Spec] = {
    "16": Spec(1, lanes=2),
    "18": Spec(1, lanes=2, resilient=True),
    "64": Spec(4),
    "72": Spec(4, resilient=True),
    "128": Spec(8),
    "144": Spec(8, resilient=True),
}
"""Clusters by number of GPUs with backups: those of the paper, and the smallest that has some."""


def cluster(gpus: int, lanes: int | None = None) -> Spec:
    """Return a cluster of 16 to 144 GPUs, with 8 lanes a GPU from 64 on, or 2 for jobs without EP.

    Raises `FabricError` for others.
    """
    spec = CLUSTERS.get(str(gpus))
    if spec is None:
        raise FabricError(f"found {gpus} GPUs, expected one of {', '.join(CLUSTERS)}")
    if lanes not in {None, 2, spec.lanes}:
        raise FabricError(
            f"found {lanes} lanes with {gpus} GPUs, expected 2{' or 8' * (spec.stages > 1)}"
        )
    return replace(spec, lanes=lanes or spec.lanes)


@dataclass(frozen=True, slots=True, order=True)
class Degrees:
    """Degrees of parallelism; `ep` is 0 where there is no expander."""

    tp: int
    pp: int
    dp: int
    ep: int = 0

    def __str__(self) -> str:
        return f"TP {self.tp}, PP {self.pp}, DP {self.dp}" + f", EP {self.ep}" * bool(self.ep)


@dataclass(frozen=True, slots=True)
class Plan:
    """States of all switches for one job.

    Attributes:
        states: adaptation and resilience; selection at rest.
        choice: topology of each lane while a dimension communicates, GPUs x lanes.
        ranks: of each GPU, by dimension; `DARK` for a GPU without a task.
    """

    degrees: Degrees
    states: States
    choice: Mapping[Topology, Ints]
    ranks: Mapping[Topology, Ints]


@dataclass
class Rack(Frame):
    """A cluster, wired; `gpu` numbers the GPU at (stage, d, node)."""

    spec: Spec
    expander: Splittable | None = None
    offsets: tuple[int, ...] = ()
    """Stages whose link to the next one leaves the rack and has offsetting links."""

    def node_of(self, gpu: int) -> tuple[int, int]:
        """Rack and node of a GPU: the unit that fails with it."""
        stage, _, node = np.unravel_index(gpu, self.gpu.shape)
        return self.spec.rack_of(int(stage)), int(node)


def build(spec: Spec, seed: int = 1) -> Rack:
    """Wire a cluster; `seed` draws its expander."""
    fabric = OpticalFabric(spec.gpus, spec.lanes)
    names = ("TP", "DP", "PP", "EP")[: 2 if spec.stages == 1 else 3 + spec.expands]
    gpu = np.arange(spec.gpus, dtype=np.int32).reshape(spec.stages, 2, spec.nodes)
    rack = Rack(fabric, gpu, select(fabric, names), spec.lanes, spec.resilient, spec)
    for direction in ("forward", "reverse"):
        Rings(rack, direction).wire()
        _wire_replicas(rack, direction)
    if spec.stages > 1:
        _wire_chain(rack)
    if spec.expands:
        rack.expander = splittable(spec.nodes, seed)
        _wire_expander(rack, rack.expander)
    return rack


def _wire_replicas(rack: Rack, direction: str) -> None:
    """Data-parallel rings of two, x to y and back; x is d = 0 in even stages."""
    fabric, spec = rack.fabric, rack.spec
    ends = Ends(rack, "DP", direction)
    even = np.arange(spec.stages) % 2
    x, y = (np.arange(spec.stages), even), (np.arange(spec.stages), 1 - even)
    if direction == "forward":
        sources, sinks = (ends.out[x], ends.out[y]), (ends.into[y], ends.into[x])
    else:  # the reverse of x to y is y to x, through the same merge point
        sources, sinks = (ends.out[y], ends.out[x]), (ends.into[x], ends.into[y])
    to_y, to_x = sources[0].copy(), sources[1].copy()  # stages x nodes x lanes
    for p, q in merge_points(spec.resilient):
        to_y[:, p], to_y[:, q] = fabric.exchange(
            f"DP-nodes-{p}-{q}-{direction}", to_y[:, p].copy(), to_y[:, q].copy(), TP_4_8, "DP"
        )
    if spec.stages > 1:
        half = spec.stages // 2
        to_x[:half], to_x[half:] = fabric.exchange(
            f"DP-stages-{direction}", to_x[:half].copy(), to_x[half:].copy(), PP_4_2, "DP"
        )
    fabric.join(to_y, sinks[0])
    fabric.join(to_x, sinks[1])


def _wire_chain(rack: Rack) -> None:
    """Pipeline links between neighbouring stages; between racks with offsetting links."""
    spec = rack.spec
    links = [(s, s + 1) for s in range(spec.stages - 1)]
    links += [(spec.stages - 1, 0)] * (spec.racks == 2)  # a link that PP 2 needs, PP 8 leaves dark
    for s, after in links:
        leaves = spec.rack_of(s) != spec.rack_of(after)
        if leaves and spec.resilient:
            rack.offsets = (*rack.offsets, s)
        for d in (0, 1):
            for direction in ("forward", "reverse"):
                _wire_bundle(rack, (s, after), d, direction, leaves and spec.resilient)


def _wire_bundle(rack: Rack, stages: tuple[int, int], d: int, direction: str, offset: bool) -> None:
    s, after = stages
    # Forward light leaves the stage nearer to the chain's head for d = 0, its tail for d = 1.
    source, sink = (s, after) if (d == 0) == (direction == "forward") else (after, s)
    ends = Ends(rack, "PP", direction)
    out, into = ends.out[source, d], ends.into[sink, d]  # nodes x lanes
    if not offset:
        rack.fabric.join(out, into)
        return
    name, why = f"PP-{s}-{d}-{direction}", "PP resiliency"
    leave = rack.fabric.diverge(f"{name}-out", 2, out.shape, why, "PP")
    enter = rack.fabric.converge(f"{name}-in", 2, into.shape, why, "PP")
    rack.fabric.join(out, leave.inputs[..., 0])
    rack.fabric.join(enter.outputs[..., 0], into)
    rack.fabric.join(leave.outputs[..., 0], enter.inputs[..., 0])
    diagonal_out, diagonal_in = leave.outputs[..., 1], enter.inputs[..., 1]
    down = rack.spec.rack_of(source) == 0  # from rack 0 a diagonal leads to the node before
    # At the point where TP 4 splits rings, two 2x2 change which node is "before" (Fig. 5 C).
    p, q, v = (4, 0, 3) if down else (3, 7, 4)
    # Bar, from rack 0: 4 to 3, 0 to the backup, the backup to 7. Cross: 4 to the backup, the
    # backup to 3. From rack 1 the same in reverse.
    carried, to_backup = rack.fabric.exchange(
        f"{name}-offset-1", diagonal_out[p], diagonal_out[q], why, "PP"
    )
    first, second = rack.fabric.exchange(
        f"{name}-offset-2", carried, diagonal_out[BACKUP], why, "PP"
    )
    for fiber, reached in ((to_backup, BACKUP), (first, v), (second, 7 if down else 0)):
        rack.fabric.join(fiber, diagonal_in[reached])
    plain = (
        {n: n - 1 for n in (1, 2, 3, 5, 6, 7)} if down else {n: n + 1 for n in (0, 1, 2, 4, 5, 6)}
    )
    for node, reached in plain.items():
        rack.fabric.join(diagonal_out[node], diagonal_in[reached])


def _wire_expander(rack: Rack, expander: Splittable) -> None:
    """Lay each stage's expander: fixed links first, then those that 2x2 switches convert."""
    branch = rack.topology("EP")
    members = rack.gpu.reshape(rack.spec.stages, -1)
    out = rack.selection.transmit[:, :, branch][members]
    into = rack.selection.receive[:, :, branch][members]
    used = [0] * expander.nodes

    def lane(node: int) -> int:
        used[node] += 1
        return used[node] - 1

    for u, v in expander.fixed:
        at_u, at_v = lane(u), lane(v)
        rack.fabric.join(out[:, u, at_u], into[:, v, at_v])
        rack.fabric.join(out[:, v, at_v], into[:, u, at_u])
    ends = np.array([[p.a, p.b, p.c, p.d] for p in expander.pairs])
    lanes = np.array([[lane(int(node)) for node in row] for row in ends])
    (a, b, c, d), (la, lb, lc, ld) = ends.T, lanes.T
    # Merged a-b and c-d is the bar state; split a-c and b-d is the cross state.
    turns = (
        ("out", (a, la, b, lb), (d, ld, c, lc)),
        ("back", (c, lc, d, ld), (b, lb, a, la)),
    )
    for name, (u, lu, to_u, lane_u), (v, lv, to_v, lane_v) in turns:
        one, two = rack.fabric.exchange(
            f"EP-split-{name}", out[:, u, lu], out[:, v, lv], EP_8_16, "EP"
        )
        rack.fabric.join(one, into[:, to_u, lane_u])
        rack.fabric.join(two, into[:, to_v, lane_v])
