"""Fabrics of 1,024 to 32,768 GPUs: racks of 64 joined by DP tori and pipelines (§5.3).

A rack is part of one pipeline stage; eight stages are wired, and PP 4 folds stage s onto s + 4.
DP is a torus: one dimension runs over the eight rings of a rack, one (three in a 4D torus)
between racks. With `rack_backups` the ring of eight racks gets a ninth, with skip links, and the
pipeline diagonals to the next rack; with `node_backups` racks are those of 72 GPUs, and links
between racks get diagonals to the neighbouring node. Both together multiply. `double_offsets` gives
DP links between racks diagonals to both neighbours, by 1x3 switches, as the text of §5.3 has it;
Table 6 counts 1x2 switches, that is, one diagonal.

GPUs are numbered at (j, column, node): j of eight rings in a rack, column = (stage, q, u).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from lightrig.harness.systems.acos.planning.expanders import Edge, pair_up, random_regular
from lightrig.harness.systems.acos.planning.optics import FabricError, Ints, OpticalFabric, select
from lightrig.harness.systems.acos.planning.rings import (
    NODES,
    TP_4_8,
    TP_8_16,
    Frame,
    Rings,
    Topology,
    merge_points,
)

STAGES, RINGS = 8, 8
PP_8_4 = "PP 8-4"
DOUBLE_SHIFTS = (0, 1, -1)
"""Nodes by which the branches of a 1x3 shift, in their order."""
_JOINS = (1, 5)
"""Places of the two redundant sets of 2x2 that merge DP rings of racks for PP 4."""


@dataclass(frozen=True, slots=True)
class Hall:
    """A data centre to build.

    ring: active racks of the DP ring between racks (eight or fewer). further: sizes of further DP
    dimensions between racks. Racks are eight stages times all of them.
    """

    ring: int
    further: tuple[int, ...] = ()
    node_backups: bool = False
    rack_backups: bool = False
    double_offsets: bool = False

    @property
    def nodes(self) -> int:
        """Nodes of a rack."""
        return NODES + self.node_backups

    @property
    def positions(self) -> int:
        """Racks of the DP ring between racks, the backup included."""
        return self.ring + self.rack_backups

    @property
    def columns(self) -> int:
        """Racks, backups included."""
        return STAGES * self.positions * prod(self.further)

    @property
    def active(self) -> int:
        """GPUs with tasks."""
        return STAGES * self.ring * prod(self.further) * RINGS * NODES

    @property
    def gpus(self) -> int:
        """GPUs, backups included."""
        return self.columns * RINGS * self.nodes


HALLS: Mapping[int, Hall] = {
    1024: Hall(2),
    4096: Hall(8),
    32768: Hall(8, (4, 2)),
}
"""Sizes of the paper; in a 4D torus three dimensions join racks, of sizes chosen here."""


@dataclass
class DataCentre(Frame):
    """A data centre, wired."""

    hall: Hall
    column: Ints
    """Number of the rack at (stage, position in the ring, other dimensions)."""
    expander: tuple[tuple[Edge, ...], tuple[tuple[Edge, Edge], ...], tuple[tuple[Edge, Edge], ...]]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """DP dimensions: inside the rack, then between racks."""
        return ("inside", "ring", *(f"torus-{k}" for k in range(len(self.hall.further))))

    def dimension_lanes(self, index: int, lane_half: str) -> slice:
        """Lanes of one half of a DP dimension; all dimensions have equally many."""
        each = self.lane_count // len(self.dimensions)
        start = index * each + (each // 2 if lane_half == "B" else 0)
        return slice(start, start + each // 2)


def build_hall(hall: Hall, seed: int = 1) -> DataCentre:
    """Wire a data centre; `seed` draws the expander of its racks.

    Raises `FabricError` for double offsetting links without backup nodes, or with backup racks.
    """
    if hall.double_offsets and (hall.rack_backups or not hall.node_backups):
        raise FabricError(
            "double offsetting links lead to neighbouring nodes: they need backup nodes, and with "
            "backup racks a fiber would need a 1x6 switch"
        )
    fabric = OpticalFabric(hall.gpus, 8)
    gpu = np.arange(hall.gpus, dtype=np.int32).reshape(RINGS, hall.columns, hall.nodes)
    column = np.arange(hall.columns).reshape(STAGES, hall.positions, *hall.further)
    selection = select(fabric, ("TP", "DP", "PP", "EP"))
    expander = _nested_expander(hall.nodes, seed)
    made = DataCentre(fabric, gpu, selection, 8, hall.node_backups, hall, column, expander)
    for direction in ("forward", "reverse"):
        Rings(made, direction).wire()
        _wire_inside(made, direction)
        _wire_between(made, direction)
    _wire_expander(made)
    return made


def _ends(made: DataCentre, topology: Topology, sends: slice, hears: slice) -> tuple[Ints, Ints]:
    branch = made.topology(topology)
    out = made.selection.transmit[:, :, branch][made.gpu][..., sends].copy()
    return out, made.selection.receive[:, :, branch][made.gpu][..., hears].copy()


def _lanes(made: DataCentre, index: int, direction: str) -> tuple[slice, slice]:
    a, b = made.dimension_lanes(index, "A"), made.dimension_lanes(index, "B")
    return (a, b) if direction == "forward" else (b, a)


def _wire_inside(made: DataCentre, direction: str) -> None:
    """DP rings over the eight rings of a rack; TP 16 splits them, TP 4 merges those of nodes."""
    out, into = _ends(made, "DP", *_lanes(made, 0, direction))
    ahead = direction == "forward"
    # In reverse the links 4-3 and 0-7 are those that pass the same place.
    first, second = (3, 7) if ahead else (4, 0)
    out[first], out[second] = made.fabric.exchange(
        f"DP-rack-{direction}", out[first].copy(), out[second].copy(), TP_8_16, "DP"
    )
    for set_, place in enumerate((1,) if made.resilient else _JOINS):
        j = place if ahead else place + 1
        for p, q in merge_points(made.resilient):
            out[j, :, p], out[j, :, q] = made.fabric.exchange(
                f"DP-nodes-{p}-{q}-{set_}-{direction}",
                out[j, :, p].copy(),
                out[j, :, q].copy(),
                TP_4_8,
                "DP",
            )
    made.fabric.join(out, np.roll(into, -1 if ahead else 1, axis=0))


def options_to(made: DataCentre, dimension: str) -> list[Ints]:
    """Rack that each option of a link leads to from each rack; the options in their order."""
    column = made.column
    if dimension == "ring":
        options = [np.roll(column, -k, axis=1) for k in (1, 2)]
    else:
        axis = axis_of(dimension)
        after = np.roll(column, -1, axis=axis)
        # Diagonals lead one rack back from even places, ahead from odd ones: one for each link.
        places = np.indices(column.shape)
        even = (places.sum(axis=0) - places[1]) % 2 == 0
        back, ahead = (np.roll(after, k, axis=1) for k in (1, -1))
        options = [after, np.where(even, back, ahead)]
    found = options if made.hall.rack_backups else options[:1]
    return [each.reshape(-1) for each in found]


def axis_of(dimension: str) -> int:
    """Axis of `DataCentre.column` that a dimension between racks runs along."""
    if dimension == "PP":
        return 0
    return 1 if dimension == "ring" else 2 + int(dimension.removeprefix("torus-"))


def _wire_between(made: DataCentre, direction: str) -> None:
    """Links between racks: pipeline, and the DP dimensions beyond the rack."""
    links: list[tuple[str, Topology, tuple[slice, slice]]] = [
        (name, "DP", _lanes(made, index, direction))
        for index, name in enumerate(made.dimensions)
        if index
    ]
    a, b = made.half("A"), made.half("B")
    links.append(("PP", "PP", (a, b) if direction == "forward" else (b, a)))
    for name, topology, (sends, hears) in links:
        out, into = _ends(made, topology, sends, hears)
        _wire_options(made, name, direction, out, into)


def _wire_options(made: DataCentre, name: str, direction: str, out: Ints, into: Ints) -> None:
    racks = options_to(made, name)
    where = "DP" if name != "PP" else "PP"
    shifts: tuple[int, ...] = (0, 1) if made.resilient else (0,)
    if double_offset(made, name):
        shifts = DOUBLE_SHIFTS
    branches = len(racks) * len(shifts)
    if branches > 1:
        leave = made.fabric.diverge(
            f"{name}-out-{direction}", branches, out.shape, "Resiliency between racks", where
        )
        enter = made.fabric.converge(
            f"{name}-in-{direction}", branches, into.shape, "Resiliency between racks", where
        )
        made.fabric.join(out, leave.inputs[..., 0])
        made.fabric.join(enter.outputs[..., 0], into)
        outs = [leave.outputs[..., k] for k in range(branches)]
        ins = [enter.inputs[..., k] for k in range(branches)]
    else:
        outs, ins = [out], [into]
    rank = np.arange(made.hall.columns)
    for k, (rack_option, shift) in enumerate((r, s) for r in racks for s in shifts):
        target = rack_option
        # Racks alternate: from even ones a single diagonal leads to the node before, from odd ones
        # after. Double ones lead to both from every rack.
        turned = (parities(made)[rank] == 0)[:, None] & (not double_offset(made, name))
        node = np.arange(made.hall.nodes)[None, :]
        to_node = (node + np.where(turned, -shift, shift)) % made.hall.nodes
        sink = ins[k][:, target[:, None], to_node]
        source = outs[k]
        if direction == "reverse":
            # Light from the far end of each link: the same places, the other fibers.
            source, sink = outs[k][:, target[:, None], to_node], ins[k]
        if name == "ring" and k == 0:
            source = _merge_stages(made, source.copy(), direction)
        made.fabric.join(source, sink)


def double_offset(made: DataCentre, dimension: str) -> bool:
    """Whether links of a dimension between racks have diagonals to both neighbouring nodes."""
    return made.hall.double_offsets and dimension != "PP"


def _merge_stages(made: DataCentre, source: Ints, direction: str) -> Ints:
    """Merge DP rings of stage s and s + 4 at two places, in the order of the links' near ends."""
    half = STAGES // 2
    for place in join_places(made.hall):
        one = made.column[:half, place].reshape(-1)
        two = made.column[half:, place].reshape(-1)
        source[:, one], source[:, two] = made.fabric.exchange(
            f"DP-stages-{place}-{direction}",
            source[:, one].copy(),
            source[:, two].copy(),
            PP_8_4,
            "DP",
        )
    return source


def join_places(hall: Hall) -> tuple[int, ...]:
    """Places where rings of racks merge for PP 4: two where a failure may take one away."""
    if hall.ring == 2:
        return (0,)
    return _JOINS if hall.rack_backups or hall.node_backups else _JOINS[1:]


def parities(made: DataCentre) -> Ints:
    """Parity of each rack's place, by which the directions of shifts and diagonals alternate.

    With double offsetting links all racks of a stage shift alike: only the pipeline alternates.
    """
    places = np.indices(made.column.shape)
    found: Ints = (places[0] if made.hall.double_offsets else places.sum(axis=0)) % 2
    return found.reshape(-1)


def _nested_expander(
    nodes: int, seed: int
) -> tuple[tuple[Edge, ...], tuple[tuple[Edge, Edge], ...], tuple[tuple[Edge, Edge], ...]]:
    """Links of a rack's expander that splits twice: 64, 32 and 16 GPUs, or 72, 36 and 18.

    Links inside quarters of degree four each, as (first, second) pairs of links of two parts: at
    level two of the quarters of a half, at level one of the halves. Level-one pairs convert to
    links inside quarters, so no fiber passes two 2x2 in a row, and at each size exactly half of a
    GPU's links cross the next cut.
    """
    quarter = RINGS * nodes // 4
    random = np.random.default_rng(seed)
    draw = iter(range(seed, seed + 8))

    def inside(part: int) -> list[Edge]:
        edges = random_regular(quarter, 4, 1000 * next(draw))
        return [(part * quarter + u, part * quarter + v) for u, v in edges]

    pairs_two = [
        ((p.a, p.c), (p.b, p.d))
        for low, high in ((0, 1), (2, 3))
        for p in pair_up(inside(low), inside(high), random)
    ]
    pairs_one = [
        ((p.a, p.c), (p.b, p.d))
        for p in pair_up(inside(0) + inside(1), inside(2) + inside(3), random)
    ]
    return (), tuple(pairs_two), tuple(pairs_one)


def rack_members(made: DataCentre) -> Ints:
    """GPUs of each rack as nodes of its expander; a quarter is two rings."""
    return made.gpu.transpose(1, 0, 2).reshape(made.hall.columns, -1)


def _wire_expander(made: DataCentre) -> None:
    branch = made.topology("EP")
    members = rack_members(made)
    out = made.selection.transmit[:, :, branch][members]
    into = made.selection.receive[:, :, branch][members]
    used = np.zeros(members.shape[1], dtype=int)
    for level, pairs in ((2, made.expander[1]), (1, made.expander[2])):
        ends = np.array(pairs).reshape(-1, 4)  # a, c, b, d
        lanes = np.empty_like(ends)
        for row, place in np.ndindex(*ends.shape):
            lanes[row, place] = used[ends[row, place]]
            used[ends[row, place]] += 1
        (a, c, b, d), (la, lc, lb, ld) = ends.T, lanes.T
        turns = (
            ("out", (a, la, b, lb), (d, ld, c, lc)),
            ("back", (c, lc, d, ld), (b, lb, a, la)),
        )
        purpose = "EP 32-64" if level == 1 else "EP 16-32"
        for name, (u, lu, to_u, lane_u), (v, lv, to_v, lane_v) in turns:
            one, two = made.fabric.exchange(
                f"EP-split-{level}-{name}", out[:, u, lu], out[:, v, lv], purpose, "EP"
            )
            made.fabric.join(one, into[:, to_u, lane_u])
            made.fabric.join(two, into[:, to_v, lane_v])


def expander_links(made: DataCentre, ep: int) -> list[Edge]:
    """Links that a rack's expander is asked for: the whole (64), two halves or four quarters."""
    _, two, one = made.expander
    found: list[Edge] = []
    for pairs, whole in ((two, ep >= 32), (one, ep == 64)):
        for (a, c), (b, d) in pairs:
            found += [(a, b), (c, d)] if whole else [(a, c), (b, d)]
    return found
