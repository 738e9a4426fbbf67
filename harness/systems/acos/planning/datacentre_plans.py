"""Switch states for every parallelism of a data centre, and checks of the traced topologies."""

from dataclasses import dataclass

import numpy as np

from lightrig.harness.systems.acos.planning.datacentre import (
    DOUBLE_SHIFTS,
    RINGS,
    STAGES,
    DataCentre,
    axis_of,
    double_offset,
    expander_links,
    join_places,
    parities,
    rack_members,
)
from lightrig.harness.systems.acos.planning.optics import CROSS, DARK, Ints, States, selected
from lightrig.harness.systems.acos.planning.rings import (
    BACKUP,
    NODES,
    merge_points,
    set_ring,
    shifted,
)


@dataclass(frozen=True, slots=True)
class HallPlan:
    """States of all switches for one job, and the racks and nodes that work in it."""

    tp: int
    pp: int
    ep: int
    states: States
    spare_node: Ints
    spare_position: Ints


def configure_hall(
    made: DataCentre,
    tp: int,
    pp: int,
    ep: int,
    spare_node: Ints | None = None,
    spare_position: Ints | None = None,
) -> HallPlan:
    """States for a job of TP 4, 8 or 16, PP 4 or 8 and EP 16, 32 or 64.

    spare_node: node without a task of each rack. spare_position: place without a task of each
    ring of racks, stages x other dimensions. The backups where omitted.
    """
    hall = made.hall
    racks = np.arange(hall.columns)
    nodes = np.full(hall.columns, BACKUP) if spare_node is None else spare_node
    rings = (STAGES, *hall.further)
    positions = np.full(rings, hall.ring) if spare_position is None else spare_position
    states = made.fabric.rest()
    of = made.fabric.of
    for direction in ("forward", "reverse"):
        for failed in np.unique(nodes):
            which = racks[nodes == failed]
            for j in range(RINGS):
                set_ring(made, states, j, direction, tp, int(failed), which)
            if tp == 4:
                places = shifted(4, int(failed))
                points = {frozenset(pair): pair for pair in merge_points(made.resilient)}
                for k in range(4):
                    p, q = points[frozenset((places[k], places[k + 4]))]
                    of(states, f"DP-nodes-{p}-{q}-0-{direction}")[which] = CROSS
        of(states, f"DP-rack-{direction}")[...] = CROSS * (tp == 16)
        _set_between(made, states, direction, tp, pp, nodes, positions)
        for level, crossed in ((2, ep < 32), (1, ep < 64)):
            for name in ("out", "back"):
                of(states, f"EP-split-{level}-{name}")[...] = CROSS * crossed
    return HallPlan(tp, pp, ep, states, nodes, positions)


def _set_between(
    made: DataCentre, states: States, direction: str, tp: int, pp: int, nodes: Ints, positions: Ints
) -> None:
    hall, of = made.hall, made.fabric.of
    if pp == 4:
        _set_joins(made, states, direction, nodes, positions)
    if not (hall.rack_backups or made.resilient):
        return
    per_rack = 2 if made.resilient else 1
    parity = parities(made)
    for name in (*made.dimensions[1:], "PP"):
        out = of(states, f"{name}-out-{direction}")
        into = of(states, f"{name}-in-{direction}")
        for source, target, option in _rack_links(made, name, positions):
            step = -1 if parity[source] == 0 else 1
            near, far = int(nodes[source]), int(nodes[target])
            diagonal = 1
            if double_offset(made, name):
                # Both racks shift alike: ranks between the two spare nodes are one node apart, all
                # in one direction. The backup stands behind the last node and before the first.
                left = bool(parity[source])
                ends = zip(shifted(tp, near, left=left), shifted(tp, far, left=left), strict=True)
                step = 1 if 1 in {(q - p) % hall.nodes for p, q in ends} else -1
                diagonal = DOUBLE_SHIFTS.index(step)
            if not made.resilient or near == far:
                # No diagonal: the whole rack at once.
                state = option * per_rack
                if direction == "forward":
                    out[:, source], into[:, target] = state, state
                else:
                    out[:, target], into[:, source] = state, state
                continue
            for here, there, aside in shift_links(hall.nodes, near, far, step):
                state = option * per_rack + diagonal * aside
                if direction == "forward":
                    out[:, source, here], into[:, target, there] = state, state
                else:
                    out[:, target, there], into[:, source, here] = state, state


def _set_joins(
    made: DataCentre, states: States, direction: str, nodes: Ints, positions: Ints
) -> None:
    """Merge rings of stages s and s + 4 where no spare rack or node is in between."""
    hall, half = made.hall, STAGES // 2
    busy = np.zeros((half, *hall.further), dtype=bool)
    spare_node = nodes.reshape(made.column.shape) != BACKUP
    for place in join_places(hall):
        free = ~busy
        for part in (slice(0, half), slice(half, STAGES)):
            for end in (place, (place + 1) % hall.positions):
                free &= (positions[part] != end) & ~spare_node[part, end]
        busy |= free
        array = made.fabric.of(states, f"DP-stages-{place}-{direction}")
        array[...] = np.where(free.reshape(-1)[None, :, None, None], CROSS, 0)


def _rack_links(made: DataCentre, name: str, positions: Ints) -> list[tuple[int, int, int]]:
    """Racks that a job links in one dimension, with the option that leads there."""
    hall, column = made.hall, made.column
    found: list[tuple[int, int, int]] = []
    axis = axis_of(name)
    for line in np.ndindex(*positions.shape):
        racks = column[(line[0], slice(None), *line[1:])]
        spare = int(positions[line])
        if name == "ring":
            for place in (p for p in range(hall.positions) if p != spare):
                skip = (place + 1) % hall.positions == spare
                target = racks[(place + 1 + skip) % hall.positions]
                found.append((int(racks[place]), int(target), int(skip)))
            continue
        along = 0 if axis == 0 else axis - 1
        after = list(line)
        after[along] = (after[along] + 1) % positions.shape[along]
        beyond = column[(after[0], slice(None), *after[1:])]
        step = -1 if sum(line) % 2 == 0 else 1
        far = int(positions[tuple(after)])
        for here, there, aside in shift_links(hall.positions, spare, far, step):
            found.append((int(racks[here]), int(beyond[there]), aside))
    return found


def shift_links(count: int, near: int, far: int, step: int) -> list[tuple[int, int, int]]:
    """Links between two rows of `count` places that leave out `near` and `far`.

    A diagonal leads `step` places on. Returns the places at both ends and whether the link is a
    diagonal. It is the only one-to-one choice that uses no place left out, so whether it joins
    equal ranks depends on the directions of the shifts alone.
    """
    aside, place = set(), near
    while place != far:
        place = (place - step) % count
        aside.add(place)
    return [
        (n, (n + step) % count if n in aside else n, int(n in aside))
        for n in range(count)
        if n != near
    ]


def hall_errors(made: DataCentre, plan: HallPlan) -> list[str]:
    """Differences between the topologies traced from a plan and those asked for."""
    errors: list[str] = []
    active = active_gpus(made, plan)
    node_rank, place_rank = ranks_of(made, plan)
    for index, name in enumerate(made.selection.topologies):
        choice = np.full((made.hall.gpus, 8), index, dtype=np.int8)
        trace = made.fabric.trace(selected(made.fabric, plan.states, choice))
        gpus = trace.gpus
        if name == "TP":
            errors += cycle_errors("TP", gpus[:, made.half("A")], active, plan.tp)
        elif name == "DP":
            sizes = [RINGS * 8 // plan.tp, made.hall.ring * 8 // plan.pp, *made.hall.further]
            for k, size in enumerate(sizes):
                lanes = gpus[:, made.dimension_lanes(k, "A")]
                errors += cycle_errors(f"DP {made.dimensions[k]}", lanes, active, size)
                errors += rank_errors(f"DP {made.dimensions[k]}", lanes[:, 0], active, node_rank)
        elif name == "PP":
            errors += _stage_errors(made, plan, gpus, active, (node_rank, place_rank))
        else:
            members = rack_members(made)
            links = np.array(expander_links(made, plan.ep))
            both = np.concatenate([links, links[:, ::-1]])
            count = members.shape[1]
            wanted = np.sort(both[:, 0] * count + both[:, 1])
            ends = gpus[members]
            rows = np.arange(made.hall.columns)[:, None, None]
            if (ends < 0).any():
                errors.append("EP: a lane is dark")
                continue
            place = np.empty(made.hall.gpus, dtype=np.int64)
            place[members] = np.arange(count)
            column = np.empty(made.hall.gpus, dtype=np.int64)
            column[members] = np.arange(made.hall.columns)[:, None]
            found = np.sort(
                (np.arange(count)[None, :, None] * count + place[ends]).reshape(len(members), -1)
            )
            if (column[ends] != rows).any() or (found != wanted).any():
                errors.append("EP: links differ from the expander's")
    return errors


def active_gpus(made: DataCentre, plan: HallPlan) -> Ints:
    """Whether each GPU has a task."""
    found = np.ones(made.gpu.shape, dtype=bool)
    if made.resilient:
        found[:, np.arange(made.hall.columns), plan.spare_node] = False
    for ring in np.ndindex(*plan.spare_position.shape):
        place = int(plan.spare_position[ring])
        if place < made.hall.positions:
            found[:, made.column[(ring[0], place, *ring[1:])]] = False
    return found.reshape(-1)


def cycle_errors(name: str, after: Ints, active: Ints, size: int) -> list[str]:
    """Lanes agree, and every GPU with a task is in a cycle of `size` GPUs with tasks."""
    members = np.flatnonzero(active)
    if (after[members] != after[members, :1]).any() or (after[members] < 0).any():
        return [f"{name}: lanes of one GPU end at several others or nowhere"]
    following = np.full(len(active), DARK)
    following[members] = after[members, 0]
    at = members.copy()
    for step in range(1, size + 1):
        at = following[at]
        if not active[at].all():
            return [f"{name}: a ring leads through a GPU without a task"]
        if step < size and (at == members).any():
            return [f"{name}: a ring is shorter than {size}"]
    return [] if (at == members).all() else [f"{name}: a ring is longer than {size}"]


def ranks_of(made: DataCentre, plan: HallPlan) -> tuple[Ints, Ints]:
    """TP rank of each GPU inside its ring, and the place of its rack in the ring of racks."""
    count = made.hall.columns
    node_rank = np.full((RINGS, count, made.hall.nodes), DARK)
    parity = parities(made)
    for rack in range(count):
        places = shifted(plan.tp, int(plan.spare_node[rack]), left=bool(parity[rack]))
        node_rank[:, rack, list(places)] = np.arange(NODES) % plan.tp
    place_rank = np.full(made.column.shape, DARK)
    ring = made.hall.ring
    for line in np.ndindex(*plan.spare_position.shape):
        spare = int(plan.spare_position[line])
        row: Ints = np.arange(made.hall.positions)
        rank: Ints
        if sum(line) % 2 == 0:  # ranks behind the spare place have moved ahead, or back
            rank = row - (row > spare)
        else:
            rank = np.where(row < spare, row + (spare < ring), row)
            rank = np.where(row == ring, 0 if spare < ring else DARK, rank)
        rank[row == spare] = DARK
        place_rank[(line[0], slice(None), *line[1:])] = rank
    places_of = np.broadcast_to(place_rank.reshape(-1)[None, :, None], node_rank.shape)
    return node_rank.reshape(-1), places_of.reshape(-1)


def rank_errors(name: str, after: Ints, active: Ints, rank: Ints) -> list[str]:
    """Return an error where the links of a ring join nodes of unequal ranks, or lead nowhere."""
    members = np.flatnonzero(active)
    ends = after[members]
    if (ends < 0).any() or (rank[ends] != rank[members]).any():
        return [f"{name}: shuffled, a link joins unequal ranks"]
    return []


def _stage_errors(
    made: DataCentre, plan: HallPlan, gpus: Ints, active: Ints, ranks: tuple[Ints, Ints]
) -> list[str]:
    """Every GPU of a stage but the last is linked to a GPU of the next one, one to one."""
    per_stage = made.hall.columns // STAGES
    rows = (np.arange(made.hall.columns) // per_stage)[None, :, None]
    stage: Ints = np.broadcast_to(rows, made.gpu.shape).reshape(-1)
    members = np.flatnonzero(active & (stage % plan.pp < plan.pp - 1))
    ahead = gpus[members, 0]
    if (ahead < 0).any() or not active[ahead].all() or (stage[ahead] != stage[members] + 1).any():
        return ["PP: a GPU has no link to the next stage"]
    if any((rank[ahead] != rank[members]).any() for rank in ranks):
        return ["PP: shuffled, a link joins unequal ranks"]
    return [] if len(np.unique(ahead)) == len(ahead) else ["PP: two GPUs share a link"]
