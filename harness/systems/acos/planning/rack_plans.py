"""Switch states for every parallelism of a cluster, also with a failed node in each rack."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from lightrig.harness.systems.acos.planning.optics import (
    CROSS,
    DARK,
    FabricError,
    Ints,
    States,
    selected,
)
from lightrig.harness.systems.acos.planning.rack import Degrees, Plan, Rack, Spec
from lightrig.harness.systems.acos.planning.rings import (
    BACKUP,
    NODES,
    Topology,
    merge_points,
    set_ring,
    shifted,
)


def supported(spec: Spec) -> list[Degrees]:
    """Degrees of parallelism that a cluster can take, in order.

    PP degrees are those that divide the chain by folding and by giving DP its unused links; DP of
    more than 16 ranks and of one are none of the paper's.
    """
    if spec.stages == 1:
        return [Degrees(4, 1, 4), Degrees(8, 1, 2)]
    found = []
    for tp, pp, ep in product((4, 8, 16), (1, 2, 4, 8), (8, 16) if spec.expands else (0,)):
        most = spec.stages // 2 if tp == 16 else spec.stages
        dp = spec.stages * 2 * NODES // (tp * pp)
        if pp <= most and 2 <= dp <= 16:
            found.append(Degrees(tp, pp, dp, ep))
    return found


def configure(
    rack: Rack,
    degrees: Degrees,
    spare: Sequence[int] | None = None,
    lefts: Sequence[bool] | None = None,
) -> Plan:
    """States and ranks for a job that leaves one node of each rack without a task.

    spare: that node in each rack, the backup where omitted. lefts: whether each rack shifts its
    tasks left; rack 0 shifts right and rack 1 left where omitted, as §4.3 has it for single
    offsetting links. Raises `FabricError` for degrees that the cluster cannot take.
    """
    spec = rack.spec
    if degrees not in supported(spec):
        raise FabricError(f"{degrees}: a cluster of {spec.gpus} GPUs cannot take it")
    spare = tuple(spare or [BACKUP] * spec.racks)
    if not spec.resilient and set(spare) != {BACKUP}:
        raise FabricError("a cluster without backups has no node to spare")
    lefts = tuple(lefts or [r == 1 for r in range(spec.racks)])
    nodes = [shifted(degrees.tp, f, left=left) for f, left in zip(spare, lefts, strict=True)]
    states = rack.fabric.rest()
    for stage in range(spec.stages):
        f = spare[spec.rack_of(stage)]
        for direction in ("forward", "reverse"):
            set_ring(rack, states, stage, direction, degrees.tp, f)
            _set_replicas(rack, states, stage, direction, degrees, nodes[spec.rack_of(stage)])
    for stage in rack.offsets:
        _set_offsets(rack, states, stage, nodes, spare)
    if degrees.ep == 8:
        for name in ("EP-split-out", "EP-split-back"):
            rack.fabric.of(states, name)[...] = CROSS
    ranks = _ranks(rack, degrees, nodes)
    return Plan(degrees, states, _choice(rack, degrees, nodes), ranks)


def _set_replicas(
    rack: Rack,
    states: States,
    stage: int,
    direction: str,
    degrees: Degrees,
    nodes: Sequence[int],
) -> None:
    """Merge one stage's data-parallel rings across nodes, and with the other half's stages."""
    fabric, spec = rack.fabric, rack.spec
    if degrees.tp == 4:
        points = {frozenset(pair): pair for pair in merge_points(spec.resilient)}
        for place in range(4):
            pair = points.get(frozenset((nodes[place], nodes[place + 4])))
            if pair is None:
                raise FabricError(f"no merge point joins nodes {nodes[place]}, {nodes[place + 4]}")
            fabric.of(states, f"DP-nodes-{pair[0]}-{pair[1]}-{direction}")[stage] = CROSS
    half = spec.stages // 2
    if stage < half and degrees.pp <= half and degrees.tp != 16:
        # With TP 4 the two rings of a pair of nodes are one already: merge them once.
        for node in nodes[: 4 if degrees.tp == 4 else NODES]:
            fabric.of(states, f"DP-stages-{direction}")[stage, node] = CROSS


def _diagonal(node: int, crossed: tuple[int, int]) -> int:
    """Node of rack 1 that the diagonal of a node of rack 0 leads to."""
    plain = {4: 3, 0: BACKUP, BACKUP: 7}
    aside = {4: "middle", 0: "backup"} if not crossed[0] else {4: "backup", 0: "middle"}
    if node in aside:
        return BACKUP if aside[node] == "backup" else (7 if crossed[1] else 3)
    if node == BACKUP:
        return 3 if crossed[1] else 7
    return plain.get(node, node - 1)


def _set_offsets(
    rack: Rack, states: States, stage: int, nodes: Sequence[Sequence[int]], spare: Sequence[int]
) -> None:
    """Lead a pipeline link between racks to equal ranks, or, where it cannot be, to any."""
    pairs = dict(zip(nodes[0], nodes[1], strict=True))
    crossed: tuple[int, int]
    for crossed in product((0, 1), (0, 1)):
        if all(p == q or _diagonal(p, crossed) == q for p, q in pairs.items()):
            break
    else:
        # Diagonals for the nodes from behind rack 0's failed one to rack 1's lose no link.
        crossed, pairs = (0, 0), {}
        aside, node = set(), spare[0]
        while node != spare[1]:
            node = (node + 1) % (NODES + 1)
            aside.add(node)
        pairs = {
            p: _diagonal(p, crossed) if p in aside else p for p in range(NODES + 1) if p != spare[0]
        }
    fabric = rack.fabric
    for d, direction in product((0, 1), ("forward", "reverse")):
        name = f"PP-{stage}-{d}-{direction}"
        after = (stage + 1) % rack.spec.stages
        source = stage if (d == 0) == (direction == "forward") else after
        down = rack.spec.rack_of(source) == 0
        out, into = fabric.of(states, f"{name}-out"), fabric.of(states, f"{name}-in")
        for p, q in pairs.items():
            here, there = (p, q) if down else (q, p)
            out[here] = into[there] = p != q
        # From rack 1 the same links run backwards, so their switches are in the other order.
        first, second = crossed if down else crossed[::-1]
        fabric.of(states, f"{name}-offset-1")[...] = first
        fabric.of(states, f"{name}-offset-2")[...] = second


def _stage_of(spec: Spec, degrees: Degrees, stage: int) -> tuple[int, int]:
    """Pipeline rank of a stage, and the place of the stage in it."""
    half = spec.stages // 2
    if degrees.pp == spec.stages:
        return stage, 0
    if degrees.pp == half:
        return stage % half, stage // half
    if degrees.pp == 2:  # two racks: a rank each
        rack = spec.rack_of(stage)
        partner = stage if rack == 0 else (stage - 1 if stage % 4 == 2 else (stage + 1) % 8)
        return rack, partner
    return 0, stage


def _ranks(rack: Rack, degrees: Degrees, nodes: Sequence[Sequence[int]]) -> Mapping[Topology, Ints]:
    spec = rack.spec
    ranks: dict[Topology, Ints] = {
        name: np.full(spec.gpus, DARK, dtype=np.int32) for name in ("TP", "DP", "PP", "EP")
    }
    half = spec.stages // 2
    for stage, d, place in product(range(spec.stages), (0, 1), range(NODES)):
        gpu = rack.gpu[stage, d, nodes[spec.rack_of(stage)][place]]
        pipeline, part = _stage_of(spec, degrees, stage)
        high = degrees.tp == 16 and stage >= half
        ranks["TP"][gpu] = place % degrees.tp + NODES * high
        if degrees.tp == 16:
            part = part % half if degrees.pp < half else 0
        ranks["PP"][gpu] = pipeline
        ranks["DP"][gpu] = (part * 2 + d) * 2 + (place // 4 if degrees.tp == 4 else 0)
        ranks["EP"][gpu] = stage * 2 + (d if degrees.ep == 8 else 0)
    return ranks


def _choice(
    rack: Rack, degrees: Degrees, nodes: Sequence[Sequence[int]]
) -> Mapping[Topology, Ints]:
    """Topology of each lane in each phase; in DP some lanes take links of the chain."""
    spec = rack.spec
    shape = spec.gpus, spec.lanes
    choice: dict[Topology, Ints] = {}
    for index, name in enumerate(rack.selection.topologies):
        choice[name] = np.full(shape, index, dtype=np.int8)  # type: ignore[index]
    if spec.stages == 1:
        return choice
    dp, chain = choice["DP"], rack.topology("PP")
    half = spec.stages // 2

    def take(stage: int, d: int, place: int, lane_half: str) -> None:
        gpu = rack.gpu[stage, d, nodes[spec.rack_of(stage)][place]]
        dp[gpu, rack.half("A" if lane_half == "A" else "B")] = chain

    def join(stage: int, place: int, beside: int, across: int) -> None:
        """Swap the links of two rings at `stage` and the next for two links of the chain.

        The ring link of `stage` ends at `beside`, which for a merge of nodes is another place,
        for one of stages the same place of the stage `across`.
        """
        after, x = stage + 1, stage % 2
        inner = stage % 2 == 0
        a, b = (0, 1) if inner else (x ^ 1, x)
        take(stage, a, place, "A")
        take(across, b, beside, "B")
        take(across + 1, b, beside, "A")
        take(after, a, place, "B")

    if degrees.pp < half:  # the links inside racks are idle: they join stages 2k and 2k + 1
        places = range(4 if degrees.tp == 4 else NODES)
        first = [0] if spec.racks == 1 else [0, 2]
        if degrees.tp == 16:
            first = list(range(0, spec.stages, 2))
        for stage, place in product(first, places):
            join(stage, place, place + 4 if degrees.tp == 4 else place, stage)
    if degrees.pp == 1 and spec.racks == 2:  # the links between racks as well
        for place in range(NODES):
            if degrees.tp == 16:
                join(1, place, place, 1)
                join(5, place, place, 5)
            else:
                join(1, place, place, 5)
    return choice


def topology_errors(rack: Rack, plan: Plan, broken: Ints | None = None) -> list[str]:
    """Differences between the topologies traced from a plan and those asked for.

    Unequal TP ranks at the ends of a pipeline link are reported as "shuffled", apart from links
    that are not there.
    """
    errors: list[str] = []
    for name in rack.selection.topologies:
        topology: Topology = name  # type: ignore[assignment]
        states = selected(rack.fabric, plan.states, plan.choice[topology])
        trace = rack.fabric.trace(states, broken)
        if topology in {"TP", "DP"}:
            errors += _ring_errors(rack, plan, topology, trace.gpus, trace.lanes)
        elif topology == "PP":
            errors += _chain_errors(rack, plan, trace.gpus)
        else:
            errors += _expander_errors(rack, plan, trace.gpus)
    return errors


def _ring_errors(rack: Rack, plan: Plan, topology: Topology, gpus: Ints, lanes: Ints) -> list[str]:
    ahead, back = rack.half("A"), rack.half("B")
    active = np.flatnonzero(plan.ranks["TP"] >= 0)
    after, before = gpus[active, ahead], gpus[active, back]
    half = rack.spec.lanes // 2
    for found, sent in ((after, back.start), (before, 0)):
        if (found < 0).any() or (found != found[:, :1]).any():
            return [f"{topology}: lanes of one GPU end at several others or nowhere"]
        arriving = lanes[active, ahead if sent else back]
        if (arriving != sent + np.arange(half)).any():
            return [f"{topology}: a lane arrives at another lane than its opposite"]
    following = np.full(rack.spec.gpus, DARK)
    preceding = following.copy()
    following[active], preceding[active] = after[:, 0], before[:, 0]
    if (plan.ranks["TP"][following[active]] < 0).any():
        return [f"{topology}: a ring leads through a GPU without a task"]
    if (preceding[following[active]] != active).any():
        return [f"{topology}: the two directions of a ring differ"]
    size = plan.degrees.tp if topology == "TP" else plan.degrees.dp
    at, least = active.copy(), active.copy()
    orthogonal: list[Topology] = ["DP", "PP"] if topology == "TP" else ["TP", "PP"]
    for step in range(1, size + 1):
        at = following[at]
        if any(
            (plan.ranks[across][at] != plan.ranks[across][active]).any() for across in orthogonal
        ):
            return [f"{topology}: a ring joins GPUs of several groups"]
        if topology == "TP":
            expected = (plan.ranks["TP"][active] + step) % size
            # TP 16 is two rings of eight joined in the middle, so its ranks interleave.
            if size < 16 and (plan.ranks["TP"][at] != expected).any():
                return ["TP: ranks do not follow each other"]
        if step < size and (at == active).any():
            return [f"{topology}: a ring is shorter than {size}"]
        least = np.minimum(least, at)
    return [] if (at == active).all() else [f"{topology}: a ring is longer than {size}"]


def _chain_errors(rack: Rack, plan: Plan, gpus: Ints) -> list[str]:
    """Each GPU reaches, by half of its lanes, the GPU of equal ranks in the next stage."""
    ranks, errors = plan.ranks, []
    for gpu in np.flatnonzero((ranks["PP"] >= 0) & (ranks["PP"] < plan.degrees.pp - 1)):
        found = set()
        for lane_half in (rack.half("A"), rack.half("B")):
            ends = set(gpus[gpu, lane_half].tolist())
            if len(ends) == 1:
                found |= {end for end in ends if end >= 0 and ranks["PP"][end] >= 0}
        ahead = [end for end in found if ranks["PP"][end] == ranks["PP"][gpu] + 1]
        if not ahead:
            errors.append(f"PP: GPU {gpu} has no link to the next stage")
        elif not any(
            ranks["TP"][end] == ranks["TP"][gpu] and ranks["DP"][end] == ranks["DP"][gpu]
            for end in ahead
        ):
            errors.append(f"PP: shuffled, GPU {gpu} is linked to another rank of the next stage")
    return errors


def _expander_errors(rack: Rack, plan: Plan, gpus: Ints) -> list[str]:
    assert rack.expander is not None
    asked = rack.expander.split if plan.degrees.ep == 8 else rack.expander.merged
    members = rack.gpu.reshape(rack.spec.stages, -1)
    for row in members:
        wanted = sorted((int(row[u]), int(row[v])) for a, b in asked for u, v in ((a, b), (b, a)))
        found = sorted((int(gpu), int(end)) for gpu in row for end in gpus[gpu])
        if wanted != found:
            return ["EP: links differ from the expander's"]
    return []
