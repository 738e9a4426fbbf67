"""Tensor-parallel rings of eight nodes and, in resilient clusters, a backup (§5.2, Fig. 5 B).

Rings of two halves share the backup: it stands between nodes 7 and 0, between 3 and 0 where
TP 4 splits the ring, and between 7 and 4. That takes a 1x4 at each of its fibers, a 1x2 at all
others, and three 2x2 a fiber for TP 4; TP 16 joins rings at one of two places, so that one is
left whichever node has failed.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from lightrig.harness.systems.acos.planning.optics import (
    CROSS,
    Ints,
    OpticalFabric,
    Selection,
    States,
)

Topology: TypeAlias = Literal["TP", "DP", "PP", "EP"]
NODES, BACKUP = 8, 8
MERGES = (8, 4, 0, 5, 1, 6, 2, 7, 3)
"""Cycle of nodes: neighbours' DP rings can be merged. Without any one node it leaves a path of
eight, whose four pairs are those that TP 4 needs: each node merges with two others (§5.2)."""
_BACKUP_TO, _BACKUP_FROM = {0: 0, 1: 1, 4: 2, 5: 3}, {7: 0, 6: 1, 2: 2, 3: 3}
TP_4_8, TP_8_16 = "TP 4-8", "TP 8-16"


@dataclass
class Frame:
    """GPUs with selected topologies, to be wired.

    gpu: numbers of the GPUs; nodes last, and first the axis whose two halves TP 16 joins.
    """

    fabric: OpticalFabric
    gpu: Ints
    selection: Selection
    lane_count: int
    resilient: bool

    def half(self, lane_half: Literal["A", "B"]) -> slice:
        """Lanes of one half: A faces forward, B backward."""
        middle = self.lane_count // 2
        return slice(0, middle) if lane_half == "A" else slice(middle, self.lane_count)

    def topology(self, name: Topology) -> int:
        """Branch of the selection switches that leads to a topology."""
        return self.selection.topologies.index(name)


class Ends:
    """Branches of one topology at one direction's ends: those that send, those that receive."""

    def __init__(self, frame: Frame, topology: Topology, direction: str) -> None:
        ahead = direction == "forward"
        sends, hears = frame.half("A" if ahead else "B"), frame.half("B" if ahead else "A")
        branch = frame.topology(topology)
        # GPUs in their places, then lanes.
        self.out = frame.selection.transmit[:, :, branch][frame.gpu][..., sends].copy()
        self.into = frame.selection.receive[:, :, branch][frame.gpu][..., hears].copy()


class Rings:
    """Tensor-parallel rings of one direction, in places along it: 0..7, and 8 for the backup."""

    def __init__(self, frame: Frame, direction: str) -> None:
        self.frame, self.direction = frame, direction
        self.fabric, self.resilient = frame.fabric, frame.resilient
        order = ring_order(direction)[: frame.gpu.shape[-1]]
        ends = Ends(frame, "TP", direction)
        self.out = np.moveaxis(ends.out[:, :, order], 2, 0)
        self.into = np.moveaxis(ends.into[:, :, order], 2, 0)

    def wire(self) -> None:
        """Lay all links of the direction."""
        regular_out, regular_in = self.out, self.into
        if self.resilient:
            regular_out, regular_in = self._skips()
        regular_out = regular_out.copy()
        self._merge("split", regular_out[3], regular_out[7], TP_4_8)
        if self.frame.gpu.shape[0] > 1:
            for place in (1, 5) if self.resilient else (redundant_place(1, self.direction),):
                half = self.frame.gpu.shape[0] // 2
                link = regular_out[place]
                link[:half], link[half:] = self.fabric.exchange(
                    f"TP-join-{place}-{self.direction}", link[:half], link[half:], TP_8_16, "TP"
                )
        for place in range(NODES):
            self.fabric.join(regular_out[place], regular_in[(place + 1) % NODES])

    def _merge(self, name: str, one: Ints, two: Ints, purpose: str) -> None:
        one[...], two[...] = self.fabric.exchange(
            f"TP-{name}-{self.direction}", one.copy(), two.copy(), purpose, "TP"
        )

    def _skips(self) -> tuple[Ints, Ints]:
        """Add 1x2 switches and links past one node; the backup is shared by both halves."""
        shape, why = self.out[:NODES].shape, "TP resiliency"
        out = self.fabric.diverge(f"TP-skip-out-{self.direction}", 2, shape, why, "TP")
        into = self.fabric.converge(f"TP-skip-in-{self.direction}", 2, shape, why, "TP")
        spare = self.out[BACKUP].shape
        leave = self.fabric.diverge(f"TP-backup-out-{self.direction}", 4, spare, why, "TP")
        enter = self.fabric.converge(f"TP-backup-in-{self.direction}", 4, spare, why, "TP")
        self.fabric.join(self.out[:NODES], out.inputs[..., 0])
        self.fabric.join(into.outputs[..., 0], self.into[:NODES])
        self.fabric.join(self.out[BACKUP], leave.inputs[..., 0])
        self.fabric.join(enter.outputs[..., 0], self.into[BACKUP])
        skip_out, skip_in = out.outputs[..., 1].copy(), into.inputs[..., 1]
        back_out = leave.outputs.copy()
        for place, reached in ((2, 4), (3, 5)):
            branch = _BACKUP_TO[reached]
            skip_out[place], back_out[..., branch] = self.fabric.exchange(
                f"TP-share-{place}-{self.direction}",
                skip_out[place].copy(),
                back_out[..., branch].copy(),
                TP_4_8,
                "TP",
            )
            self.fabric.join(back_out[..., branch], enter.inputs[..., _BACKUP_FROM[place]])
        for place in (0, 1, 2, 3, 4, 5):
            self.fabric.join(skip_out[place], skip_in[place + 2])
        for place in (6, 7):
            self.fabric.join(skip_out[place], enter.inputs[..., _BACKUP_FROM[place]])
        for reached in (0, 1):
            self.fabric.join(back_out[..., _BACKUP_TO[reached]], skip_in[reached])
        return out.outputs[..., 0], into.inputs[..., 0]


def ring_order(direction: str) -> tuple[int, ...]:
    """Nodes along a ring in one direction, the backup last."""
    order = tuple(range(NODES))
    return (*(order if direction == "forward" else order[::-1]), BACKUP)


def redundant_place(which: int, direction: str) -> int:
    """Place of the link that joins rings for TP 16: between nodes 1 and 2, or 5 and 6."""
    ahead = (1, 5)[which]
    return ahead if direction == "forward" else NODES - 2 - ahead


def merge_points(resilient: bool) -> list[tuple[int, int]]:
    """Nodes whose DP rings a 2x2 can merge for TP 4."""
    if not resilient:
        return [(node, node + NODES // 2) for node in range(NODES // 2)]
    return list(pairwise((*MERGES, MERGES[0])))


def shifted(tp: int, failed: int, *, left: bool = False) -> tuple[int, ...]:
    """Node of each place 0..7 when `failed` (8: the backup, none) has no task.

    Every task moves by one node at most, always in one direction: right, up to the backup, or
    left. With TP 4 both halves shift outwards, to the backup behind the last node and before the
    first: no diagonal between racks then crosses the point where the rings are split, and the extra
    2x2 that §4.3 has there are not needed.
    """
    if failed == BACKUP:
        return tuple(range(NODES))
    if tp == 4:
        start = 0 if failed < 4 else 4
        left = failed < 4
    else:
        start = 0
    size = 4 if tp == 4 else NODES
    places = list(range(NODES))
    for rank in range(size):
        node = start + rank
        if left and node <= failed:
            places[node] = node - 1 if rank else BACKUP
        elif not left and node >= failed:
            places[node] = node + 1 if rank < size - 1 else BACKUP
    return tuple(places)


def set_ring(
    frame: Frame,
    states: States,
    row: int,
    direction: str,
    tp: int,
    failed: int,
    columns: Ints | slice = slice(None),
) -> None:
    """Set the rings of one row of GPUs, of some of its columns, in one direction."""
    fabric = frame.fabric
    fabric.of(states, f"TP-split-{direction}")[row, columns] = CROSS * (tp == 4)
    half = frame.gpu.shape[0] // 2
    if row < half:
        # Between nodes 5 and 6, or between 1 and 2 where one of those has failed.
        which = 0 if failed in {5, 6} else 1
        place = redundant_place(which, direction)
        fabric.of(states, f"TP-join-{place}-{direction}")[row, columns] = CROSS * (tp == 16)
    if not frame.resilient:
        return
    for place in (2, 3):
        fabric.of(states, f"TP-share-{place}-{direction}")[row, columns] = CROSS * (tp == 4)
    order = ring_order(direction)
    lost = order.index(failed)
    parts = ((0, 1, 2, 3), (4, 5, 6, 7)) if tp == 4 else (tuple(range(NODES)),)
    out, into = (fabric.of(states, f"TP-skip-{end}-{direction}") for end in ("out", "in"))
    leave, enter = (fabric.of(states, f"TP-backup-{end}-{direction}") for end in ("out", "in"))
    for part in parts:
        ring = [place for place in part if place != lost]
        if len(ring) < len(part):
            ring.append(BACKUP)
        for here, there in zip(ring, [*ring[1:], ring[0]], strict=True):
            if here == BACKUP:
                leave[row, columns] = _BACKUP_TO[there]
                into[there, row, columns] = 1
            elif there == BACKUP:
                out[here, row, columns] = 1
                enter[row, columns] = _BACKUP_FROM[here]
            else:
                skips = (there - here) % NODES == 2 and there - here == 2
                out[here, row, columns] = into[there, row, columns] = skips
