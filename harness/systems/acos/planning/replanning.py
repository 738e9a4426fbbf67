"""A data centre's job past failed nodes, racks and switches: re-formed, or what cannot be joined.

A failed node is left out of its rack where racks have backup nodes; a second one of its rack, or
any where they have none, takes the rack with it. A failed rack is left out of its ring where rings
have backup racks. A failed 1xN or 2x2 is left out with a node, else a rack, at an end of its light
(§4.3); in an expander, traffic goes round, as it does round GPUs that have failed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from lightrig.harness.systems.acos.planning.datacentre import (
    STAGES,
    DataCentre,
    join_places,
    parities,
    rack_members,
)
from lightrig.harness.systems.acos.planning.datacentre_plans import (
    HallPlan,
    active_gpus,
    configure_hall,
    hall_errors,
    ranks_of,
)
from lightrig.harness.systems.acos.planning.optics import (
    DARK,
    Array,
    FabricError,
    Ints,
    selected,
)
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES, shifted

Node = tuple[int, int]
"""Rack and node."""


@dataclass(frozen=True, slots=True)
class Failures:
    """What has failed: racks, nodes of racks, and switches by their numbers."""

    racks: frozenset[int] = frozenset()
    nodes: frozenset[Node] = frozenset()
    switches: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Unjoined:
    """A fiber that the job needs and that no setting joins: of a lane of a GPU, in a topology."""

    topology: str
    gpu: int
    lane: int


@dataclass(frozen=True, slots=True)
class Replanned:
    """Outcome.

    Attributes:
        plan: states with the failures left out; as good as it gets where fibers are unjoined.
        unjoined: fibers that are needed; none where the job is re-formed.
        shuffled: PP where a link of pipelines joins unequal ranks.
        moved: tasks that another GPU has than before. changed: switches in another state.
        around: fibers of expanders that traffic goes round.
        passed: nodes and racks that were left out for a switch alone.
    """

    plan: HallPlan
    unjoined: tuple[Unjoined, ...]
    shuffled: tuple[str, ...]
    moved: int
    changed: int
    around: int
    passed: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the job is re-formed."""
        return not self.unjoined


@dataclass
class _Assignment:
    """Units that a plan leaves out, and those that it cannot."""

    spare_node: Ints
    spare_position: Ints
    left: set[Node] = field(default_factory=set)
    names: list[str] = field(default_factory=list)


def replan(made: DataCentre, degrees: tuple[int, int, int], failures: Failures) -> Replanned:
    """Leave out failures of a job of TP, PP and EP degrees that used no backup before."""
    before = configure_hall(made, *degrees)
    dead = np.array(sorted(failures.switches), dtype=np.int64)
    nodes = set(failures.nodes) | set(_behind_selection(made, failures.switches))
    found = _assign(made, nodes, failures.racks)
    plan = configure_hall(made, *degrees, found.spare_node, found.spare_position)
    extra: list[str] = []
    for switch in dead:
        array = array_of(made, int(switch))
        if array.dimension in {"all", "EP"}:
            continue
        lost = _lost(made, plan, found.left, np.array([switch]), (array.dimension,))
        if not lost:
            continue
        for name, more_nodes, more_racks in _ends_of(made, plan, int(switch), array.dimension):
            tried = _assign(made, nodes | more_nodes, failures.racks | more_racks)
            if tried.left:
                continue
            changed = configure_hall(made, *degrees, tried.spare_node, tried.spare_position)
            if not _lost(made, changed, set(), dead, (array.dimension,)):
                nodes, found, plan = nodes | more_nodes, tried, changed
                extra.append(name)
                break
    topologies = made.selection.topologies
    lost = _lost(made, plan, found.left, dead, [t for t in topologies if t != "EP"])
    errors = [] if lost else hall_errors(made, plan)
    # §4.3 lets some implementations of pipelines have links between unequal ranks, rings none.
    shuffled = tuple(e.partition(":")[0] for e in errors if e.startswith("PP: shuffled"))
    if len(shuffled) < len(errors):
        lost = _unmerged(made, plan) or _unequal(made, plan)
    around, apart = _expanders(made, plan, found.left, failures, dead)
    return Replanned(
        plan,
        (*lost, *apart),
        shuffled,
        _moved(made, before, plan),
        int((before.states != plan.states).sum()),
        around,
        tuple(extra),
    )


def array_of(made: DataCentre, switch: int) -> Array:
    """Return the array of a switch."""
    return next(a for a in made.fabric.arrays.values() if a.first <= switch < a.first + a.count)


def _behind_selection(made: DataCentre, switches: Collection[int]) -> Iterator[Node]:
    """Yield the nodes of GPUs whose selection switches are among `switches`."""
    for switch in switches:
        array = array_of(made, switch)
        if array.dimension == "all":
            yield _node_of(made, (switch - array.first) // made.fabric.lanes)


def _node_of(made: DataCentre, gpu: int) -> Node:
    _, rack, node = np.unravel_index(gpu, made.gpu.shape)
    return int(rack), int(node)


def _assign(made: DataCentre, nodes: Collection[Node], racks: Collection[int]) -> _Assignment:
    """Give each failure a backup, as long as there are some."""
    hall = made.hall
    found = _Assignment(np.full(hall.columns, BACKUP), np.full((8, *hall.further), hall.ring))
    of_rack: defaultdict[int, set[int]] = defaultdict(set)
    for rack, node in nodes:
        of_rack[rack].add(node)
    failed_racks = set(racks)
    for rack, lost in of_rack.items():
        if made.resilient and len(lost) == 1:
            found.spare_node[rack] = min(lost)
        else:
            failed_racks.add(rack)
    lines: defaultdict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for rack in sorted(failed_racks):
        stage, place, *beyond = (int(x) for x in np.unravel_index(rack, made.column.shape))
        lines[stage, *beyond].append((place, rack))
    for line, members in lines.items():
        spared = members[: int(hall.rack_backups)]
        for place, rack in spared:
            found.spare_position[line] = place
            found.spare_node[rack] = BACKUP
        for _, rack in members[len(spared) :]:
            lost = set(range(hall.nodes)) if rack in racks else of_rack[rack]
            if made.resilient and rack not in racks:  # one of its nodes is spared
                found.spare_node[rack] = min(lost)
                lost = lost - {min(lost)}
            found.left |= {(rack, node) for node in lost}
    return found


def _lost(
    made: DataCentre,
    plan: HallPlan,
    left: Collection[Node],
    dead: Ints,
    topologies: Collection[str],
) -> tuple[Unjoined, ...]:
    """Return the fibers of tasks that end at, or come from, what has failed."""
    if not left and not len(dead):
        return ()
    active, failed = active_gpus(made, plan), _mask(made, left)
    found: list[Unjoined] = []
    for topology in topologies:
        index = made.selection.topologies.index(topology)
        choice = np.full((made.hall.gpus, made.fabric.lanes), index, dtype=np.int8)
        states = selected(made.fabric, plan.states, choice)
        ends = made.fabric.trace(states).gpus
        wanted = (ends >= 0) & active[:, None] & active[ends]
        if topology == "PP":  # a pipeline's last stage needs no link to the next pipeline
            stage = _stages(made)
            wanted &= stage[ends] // plan.pp == stage[:, None] // plan.pp
            wanted &= np.abs(stage[ends] - stage[:, None]) == 1
        broken = made.fabric.trace(states, dead).gpus != ends if len(dead) else wanted & False
        bad = wanted & (broken | failed[:, None] | failed[ends])
        found += [Unjoined(topology, int(g), int(n)) for g, n in zip(*np.nonzero(bad), strict=True)]
    return tuple(found)


def _unmerged(made: DataCentre, plan: HallPlan) -> tuple[Unjoined, ...]:
    """Return the fibers between racks at which rings of DP should merge for a shorter pipeline.

    Rings of two stages merge by 2x2 on regular links at one place, or one of two, between racks. A
    link past a failed node or rack is another one and passes no 2x2, so that a failure at each of
    the places leaves the rings parted; then the fibers at all places are returned.
    """
    if plan.pp == STAGES:
        return ()
    places, half = join_places(made.hall), STAGES // 2
    merged = [
        made.fabric.of(plan.states, f"DP-stages-{place}-forward").any(axis=(0, 2, 3))
        for place in places
    ]
    parted = ~np.logical_or.reduce(merged)
    rows = made.column[:, list(places)].reshape(2, half, len(places), -1)
    racks = rows.transpose(0, 2, 1, 3).reshape(2, len(places), -1)[..., parted].reshape(-1)
    active = active_gpus(made, plan)
    gpus = [gpu for gpu in made.gpu[:, racks].reshape(-1).tolist() if active[gpu]]
    lanes = made.dimension_lanes(1, "A")
    return tuple(Unjoined("DP", gpu, n) for gpu in gpus for n in range(lanes.start, lanes.stop))


def _unequal(made: DataCentre, plan: HallPlan) -> tuple[Unjoined, ...]:
    """Return the fibers of DP that lead to a GPU of another rank.

    Which links shift follows from the nodes and racks left out, and the directions of the shifts
    are fixed (§4.3), so no other setting leads them to equal ranks.
    """
    index = made.selection.topologies.index("DP")
    choice = np.full((made.hall.gpus, made.fabric.lanes), index, dtype=np.int8)
    ends = made.fabric.trace(selected(made.fabric, plan.states, choice)).gpus
    (rank, place), active = ranks_of(made, plan), active_gpus(made, plan)
    across = place[ends] != place[:, None]
    for half in ("A", "B"):  # the ring of racks alone leads to other places
        across[:, made.dimension_lanes(1, half)] = False
    bad = (ends >= 0) & active[:, None] & ((rank[ends] != rank[:, None]) | across)
    if not bad.any():
        raise FabricError("a plan without lost fibers has other topologies than asked for")
    return tuple(Unjoined("DP", int(g), int(n)) for g, n in zip(*np.nonzero(bad), strict=True))


def _stages(made: DataCentre) -> Ints:
    """Return the stage of each GPU."""
    rows = np.arange(made.hall.columns) * STAGES // made.hall.columns
    return np.broadcast_to(rows[None, :, None], made.gpu.shape).reshape(-1)


def _mask(made: DataCentre, nodes: Collection[Node]) -> Ints:
    found = np.zeros(made.gpu.shape, dtype=bool)
    for rack, node in nodes:
        found[:, rack, node] = True
    return found.reshape(-1)


def _ends_of(
    made: DataCentre, plan: HallPlan, switch: int, topology: str
) -> Iterator[tuple[str, set[Node], set[int]]]:
    """Yield the nodes, then the racks, at the ends of the light through a switch."""
    index = made.selection.topologies.index(topology)
    choice = np.full((made.hall.gpus, made.fabric.lanes), index, dtype=np.int8)
    states = selected(made.fabric, plan.states, choice)
    ends = made.fabric.trace(states).gpus
    through = made.fabric.trace(states, np.array([switch])).gpus != ends
    gpus = [int(g) for g in np.flatnonzero(through.any(axis=1))]
    gpus += [int(g) for g in ends[through] if g >= 0]
    nodes = list(dict.fromkeys(_node_of(made, gpu) for gpu in gpus))
    if made.resilient:
        for rack, node in nodes:
            yield f"rack{rack}-node{node}", {(rack, node)}, set()
    if made.hall.rack_backups:
        for rack in dict.fromkeys(rack for rack, _ in nodes):
            yield f"rack{rack}", set(), {rack}


def _moved(made: DataCentre, before: HallPlan, after: HallPlan) -> int:
    """Return how many tasks another GPU has."""
    one, two = (_gpu_of_task(made, plan) for plan in (before, after))
    return int((one != two).sum())


def _gpu_of_task(made: DataCentre, plan: HallPlan) -> Ints:
    """Return the GPU of each task, numbered by rank of its rack, ring and rank of its node."""
    hall, parity = made.hall, parities(made)
    place = ranks_of(made, plan)[1].reshape(made.gpu.shape)[0, :, 0].reshape(made.column.shape)
    found = np.full((8, hall.ring, *hall.further, made.gpu.shape[0], NODES), DARK)
    for where in np.ndindex(*made.column.shape):
        if place[where] < 0:
            continue
        rack = int(made.column[where])
        nodes = shifted(plan.tp, int(plan.spare_node[rack]), left=bool(parity[rack]))
        found[(where[0], int(place[where]), *where[2:])] = made.gpu[:, rack, list(nodes)]
    return found


def _expanders(
    made: DataCentre, plan: HallPlan, left: Collection[Node], failures: Failures, dead: Ints
) -> tuple[int, list[Unjoined]]:
    """Return how many fibers traffic goes round, and one for each GPU that it cannot reach.

    Failed GPUs and those without a task are not counted; they may route unless they have failed.
    """
    in_expanders = [s for s in dead.tolist() if array_of(made, s).dimension == "EP"]
    racks = {rack for rack, _ in failures.nodes | set(left)} - failures.racks
    if not (in_expanders or racks):
        return 0, []
    index = made.selection.topologies.index("EP")
    choice = np.full((made.hall.gpus, made.fabric.lanes), index, dtype=np.int8)
    states = selected(made.fabric, plan.states, choice)
    whole = made.fabric.trace(states).gpus
    ends = made.fabric.trace(states, np.array(in_expanders, dtype=np.int64)).gpus
    out = _mask(made, failures.nodes)
    racks |= {_node_of(made, int(g))[0] for g in np.flatnonzero((ends != whole).any(axis=1))}
    around, apart = int((ends != whole).sum()), []
    members, active = rack_members(made), active_gpus(made, plan)
    for rack in racks:
        around += int(out[whole[members[rack]]].sum())
        for group in _groups(members[rack].tolist(), whole):
            works = {gpu for gpu in group if not out[gpu]}
            seen, edge = set(), [next(iter(works))] if works else []
            while edge:
                at = edge.pop()
                if at not in seen:
                    seen.add(at)
                    edge += [int(g) for g in ends[at] if int(g) in works]
            apart += [Unjoined("EP", gpu, 0) for gpu in sorted(works - seen) if active[gpu]]
    return around, apart


def _groups(members: list[int], ends: Ints) -> Iterator[set[int]]:
    """Yield the groups that a rack's expander is asked for."""
    left = set(members)
    while left:
        group, edge = set(), [min(left)]
        while edge:
            at = edge.pop()
            if at not in group:
                group.add(at)
                edge += [int(g) for g in ends[at] if g >= 0]
        left -= group
        yield group
