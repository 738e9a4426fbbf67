"""Groups of nodes on one K-hop row, for the orchestrator: alone, or on a fat tree behind it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.systems.infinitehbd.planning.placement import aligned, orchestrate
from lightrig.harness.systems.infinitehbd.planning.placement import place as most_groups
from lightrig.harness.systems.infinitehbd.planning.rings import Path, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Mask,
    Nodes,
    RowWiring,
    k_hop,
)
from lightrig.testbeds import Circuit, Testbed

LEAST_RING = 3
"""Nodes of a ring that closes over links: it has two ends, and a node between them."""

_SWITCH = re.compile(r"trx(\d+)-node(\d+)")
_IDLE = circuits(Path.LOOPBACK, 1)


class FatTreeShape(Shape):
    """The packet network behind the row, whose nodes are deployed as Algorithm 3 has them."""

    per_tor: Annotated[int, Field(ge=1, le=4096, description="Nodes under a ToR")]
    per_domain: Annotated[int, Field(ge=1, le=4096, description="Nodes of a domain")]


class RingShape(Shape):
    """Groups of nodes, or of GPUs, each of which is one ring."""

    size: Annotated[
        int | None,
        Field(ge=0, le=4096, description="Nodes of a group; 0: one ring of all that work"),
    ] = None
    gpus: Annotated[
        int | None, Field(ge=1, le=1_048_576, description="GPUs of a group, in place of its nodes")
    ] = None
    groups: Annotated[int, Field(ge=1, le=4096, description="Number of groups")] = 1
    fat_tree: FatTreeShape | None = None


def wiring_of(testbed: Testbed) -> RowWiring:
    """The closed K-hop wiring of a testbed as `lightrig generate infinitehbd` names its parts.

    Raises `InfiniteHbdError` for another testbed.
    """
    found = [_SWITCH.fullmatch(name) for name in testbed.optical_switches]
    if not found or None in found:
        raise InfiniteHbdError(
            f"{testbed.path} has switches that are no bundles of a node, trxB-nodeN"
        )
    places = [(int(match[1]), int(match[2])) for match in found if match]
    hops, nodes = (1 + max(each) for each in zip(*places, strict=True))
    return k_hop(nodes, hops, closed=True)


class RowLayout:
    """The row that a testbed cables, as `lightrig generate infinitehbd` names its parts.

    Raises `InfiniteHbdError` for another testbed.
    """

    shape = RingShape

    def __init__(self, testbed: Testbed) -> None:
        self.wiring = wiring_of(testbed)
        self.nodes = tuple(testbed.servers)
        self._place_of = {name: place for place, name in enumerate(self.nodes)}
        self._gpus = {spec.gpus.count for spec in testbed.servers.values()}

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        wanted = RingShape.model_validate(shape)
        size = self._size(wanted)
        if size * wanted.groups > self.wiring.nodes or (not size and wanted.groups > 1):
            raise OrchestrationError(
                f"found {wanted.groups} groups of {size} nodes, of {self.wiring.nodes} in all; "
                "a size of 0 is one ring of all nodes that work"
            )
        if not size and not self.wiring.closed:
            raise OrchestrationError("the row is a line, expected a ring: its ends have no link")
        if wanted.fat_tree:
            self._tree(wanted.fat_tree)
        return wanted.groups

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return the nodes whose modules `switches` are."""
        return {self.nodes[int(name.rpartition("node")[2])]: name for name in switches}

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; a ring of all takes in what has come back."""
        wanted = RingShape.model_validate(job.shape)
        size = self._size(wanted)
        if not size:
            ring = self._ring_of_all(free | job.nodes)
            return job if job.groups == ring else replace(job, groups=ring)
        if not job.missing:
            return job
        usable = np.array([node in free for node in self.nodes])
        moved = self._moved(job, usable, size)
        for number in moved:
            usable[self._places(job, [number])] = True
        empty = [n for n, group in enumerate(job.groups) if group is None or n in moved]
        fresh = map(self._group, self._groups(wanted, usable, size, len(empty)).tolist())
        groups = dict(zip(empty, fresh, strict=False))
        return replace(
            job,
            groups=tuple(
                groups.get(n) if n in empty else group for n, group in enumerate(job.groups)
            ),
        )

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`."""
        wanted: dict[str, frozenset[Circuit]] = {}
        closed = RingShape.model_validate(job.shape).size == 0
        for group in filter(None, job.groups):
            try:
                places = [self._place_of[node] for node in group.nodes]
                taken, joined = paths(self.wiring, np.array([places]), closed=closed)
            except (KeyError, InfiniteHbdError) as error:
                raise OrchestrationError(f"job {job.name}: {error}") from error
            if not joined.all():
                raise OrchestrationError(f"job {job.name}: {group.nodes} cannot be joined")
            for place in places:
                for bundle, path in enumerate(taken[place].tolist()):
                    wanted[f"trx{bundle}-node{place}"] = circuits(Path(path), 1)
        return wanted

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return the loopback of a module."""
        return _IDLE

    def _size(self, wanted: RingShape) -> int:
        """Return the number of nodes of a group."""
        if (wanted.size is None) == (wanted.gpus is None):
            raise OrchestrationError("expected one of size, in nodes, and gpus")
        if wanted.size is not None:
            return wanted.size
        each = next(iter(self._gpus)) if len(self._gpus) == 1 else 0
        if not each or wanted.gpus % each:  # type: ignore[operator]
            raise OrchestrationError(
                f"found groups of {wanted.gpus} GPUs, expected a multiple of the {each} of a node"
            )
        return wanted.gpus // each  # type: ignore[operator]

    def _tree(self, wanted: FatTreeShape) -> FatTree:
        try:
            return FatTree(self.wiring.nodes, wanted.per_tor, wanted.per_domain)
        except InfiniteHbdError as error:
            raise OrchestrationError(str(error)) from error

    def _groups(self, wanted: RingShape, usable: Mask, size: int, count: int) -> Nodes:
        """Return groups by place in the row, in the order in which a job gets them.

        As many as there is room for, or `count` or more.
        """
        if not wanted.fat_tree:
            return self._most_groups(usable, size)
        tree = self._tree(wanted.fat_tree)
        order = tree.order()
        place_in_row = np.argsort(order)
        found = orchestrate(tree, ~usable[place_in_row], size, self.wiring.reach, count)
        groups = self._joinable(place_in_row[found.groups]) if found else None
        if groups is None or len(groups) < count:  # the row is a ring, its deployed line is not
            groups = self._most_groups(usable, size)
        return np.asarray(place_in_row[aligned(tree, order[groups])])

    def _most_groups(self, usable: Mask, size: int) -> Nodes:
        """Return as many groups as the row alone can join (Algorithm 2)."""
        return self._joinable(
            most_groups(~usable, size, self.wiring.reach, closed=self.wiring.closed)
        )

    def _joinable(self, groups: Nodes) -> Nodes:
        return np.asarray(groups[paths(self.wiring, groups)[1]])

    def _moved(self, job: Job, free: Mask, size: int) -> list[int]:
        """Return the groups of a job that move, so that there is room for all that it wants.

        None where there is room without, or not even where all that may move do. For each group
        more the shortest run of neighbours in the row moves that makes room for it.
        """
        may_move = [
            number
            for number, group in enumerate(job.groups)
            if group and (job.within is None or job.within.issuperset(group.nodes))
        ]
        rest = sorted(may_move, key=lambda number: self._places(job, [number])[0])
        present = len(job.groups) - job.missing

        def room(moved: Sequence[int]) -> int:
            usable = free.copy()
            usable[self._places(job, moved)] = True
            return present - len(moved) + len(self._most_groups(usable, size))

        moved: list[int] = []
        found = room(moved)
        if found >= len(job.groups) or room(rest) < len(job.groups):
            return moved
        while found < len(job.groups):
            run, end, around = rest, 0, rest + rest
            for first in range(len(rest)):
                while end - first < len(run) and room(moved + around[first:end]) <= found:
                    end += 1
                if end - first < len(run):
                    run = around[first:end]
            moved += run
            rest = [number for number in rest if number not in run]
            found = room(moved)
        for number in moved.copy():
            if room([each for each in moved if each != number]) >= len(job.groups):
                moved.remove(number)
        return moved

    def _places(self, job: Job, numbers: Collection[int]) -> list[int]:
        """Return the places in the row of the nodes of groups."""
        groups = (job.groups[number] for number in numbers)
        return [self._place_of[node] for group in groups if group for node in group.nodes]

    def _ring_of_all(self, usable: Collection[str]) -> tuple[Group | None, ...]:
        """Return one closed ring of all nodes that work; None where the links do not reach."""
        places = [place for place, node in enumerate(self.nodes) if node in usable]
        if len(places) < LEAST_RING:
            return (None,)
        hops = np.diff([*places, places[0]]) % self.wiring.nodes
        if not np.isin(hops, self.wiring.hops).all():
            return (None,)
        _, joined = paths(self.wiring, np.array([places]), closed=True)
        return (self._group(places) if joined.all() else None,)

    def _group(self, places: Sequence[int]) -> Group:
        return Group(tuple(self.nodes[place] for place in places), {})
