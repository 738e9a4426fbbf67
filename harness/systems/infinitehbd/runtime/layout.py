"""Groups of nodes on one K-hop row, for the orchestrator: alone, or on a fat tree behind it."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.systems.infinitehbd.planning.placement import most_possible
from lightrig.harness.systems.infinitehbd.planning.repair import MISSING, Policy, Repair
from lightrig.harness.systems.infinitehbd.planning.rings import Path, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Nodes,
    RowWiring,
    k_hop,
    powers_of_two,
)
from lightrig.testbeds import Circuit, Testbed

LEAST_RING = 3
"""Nodes of a ring that closes over links: it has two ends, and a node between them."""

_SWITCH = re.compile(r"trx(\d+)-node(\d+)")
_CIRCUITS = {int(path): circuits(path, 1) for path in Path}
_IDLE = _CIRCUITS[int(Path.LOOPBACK)]


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
    policy: Annotated[
        Literal["keep", "repair", "optimal"],
        Field(description="Groups that may move: none, as few as found, or all"),
    ] = "repair"
    crossing: Annotated[
        float,
        Field(ge=0, le=1, description="Greatest share of traffic across ToRs that repair leaves"),
    ] = 0.03

    CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"policy", "crossing"})

    @model_validator(mode="before")
    @classmethod
    def _tree_of_the_file(cls, found: object) -> object:
        if isinstance(found, Mapping) and "fat_tree" in found:
            raise ValueError(
                "found fat_tree, which belongs to the fabric's file: "
                "lightrig generate infinitehbd --per-tor --per-domain"
            )
        return found


def wiring_of(testbed: Testbed) -> RowWiring:
    """The wiring of a testbed as `lightrig generate infinitehbd` names its parts.

    Raises `InfiniteHbdError` for another testbed.
    """
    found = [_SWITCH.fullmatch(name) for name in testbed.optical_switches]
    if not found or None in found:
        raise InfiniteHbdError(
            f"{testbed.path} has switches that are no bundles of a node, trxB-nodeN"
        )
    places = [(int(match[1]), int(match[2])) for match in found if match]
    bundles, nodes = (1 + max(each) for each in zip(*places, strict=True))
    at = {f"node{number}": number for number in range(nodes)}
    cabled = set()
    for fiber in testbed.fibers:
        match = _SWITCH.fullmatch(fiber.source.owner)
        if match and fiber.sink.owner in at and at[fiber.sink.owner] != int(match[2]):
            cabled.add(at[fiber.sink.owner] - int(match[2]))
    for make, closed in itertools.product((k_hop, powers_of_two), (True, False)):
        with contextlib.suppress(InfiniteHbdError):
            row = make(nodes, bundles, closed=closed)
            left, right = row.links().T
            if cabled == {*(right - left).tolist(), *(left - right).tolist()}:
                return row
    raise InfiniteHbdError(
        f"{testbed.path} has fibers over {sorted(each for each in cabled if each > 0)} nodes, "
        f"expected those of {bundles} bundles on a ring or a line, as lightrig generate has them"
    )


@dataclass(frozen=True)
class Row:
    """A row by its sizes.

    Attributes:
        nodes: in the order of the row. gpus: that a node has, where all have as many.
        tree: the packet network behind it, whose order of deployment the row has.
    """

    wiring: RowWiring
    nodes: tuple[str, ...]
    tree: FatTree | None = None
    gpus: int | None = None


def row_of(testbed: Testbed) -> Row:
    """Return the row of a testbed.

    Raises `InfiniteHbdError` for one of other parts, and for one wired for binary exchange.
    """
    wiring = wiring_of(testbed)
    if wiring.hops != tuple(range(1, wiring.reach + 1)):
        raise InfiniteHbdError(
            f"{testbed.path} is wired for binary exchange, over {wiring.hops} nodes: the paper "
            "places no jobs on it (Appendix G), so orchestrate does not either"
        )
    gpus = {spec.gpus.count for spec in testbed.servers.values()}
    behind = testbed.fat_tree
    return Row(
        wiring,
        tuple(testbed.servers),
        FatTree(wiring.nodes, behind.per_tor, behind.per_domain) if behind else None,
        gpus.pop() if len(gpus) == 1 else None,
    )


class RowLayout:
    """The row that a testbed cables, as `lightrig generate infinitehbd` names its parts.

    Raises `InfiniteHbdError` for another testbed; see `row_of`.
    """

    shape = RingShape

    def __init__(self, fabric: Testbed | Row) -> None:
        row = fabric if isinstance(fabric, Row) else row_of(fabric)
        self.wiring, self.tree, self._gpus = row.wiring, row.tree, row.gpus
        self.nodes = row.nodes
        self._place_of = {name: place for place, name in enumerate(self.nodes)}
        self._placed: dict[str, tuple[Job, frozenset[str], Job]] = {}

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        wanted = RingShape.model_validate(shape)
        size = self._size(wanted)
        if wanted.crossing != RingShape.model_fields["crossing"].default and not self.tree:
            raise OrchestrationError("found a limit of crossing, and the file states no fat_tree")
        if size * wanted.groups > self.wiring.nodes or (not size and wanted.groups > 1):
            raise OrchestrationError(
                f"found {wanted.groups} groups of {size} nodes, of {self.wiring.nodes} in all; "
                "a size of 0 is one ring of all nodes that work"
            )
        if not size and not self.wiring.closed:
            raise OrchestrationError("the row is a line, expected a ring: its ends have no link")
        return wanted.groups

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        size = self._size(RingShape.model_validate(job.shape))
        if not size:
            return (
                None
                if self._ring_of_all(nodes) != (None,)
                else f"no links close one ring of the {len(nodes)} nodes that it may have"
            )
        usable = np.zeros(self.wiring.nodes, dtype=bool)
        usable[[self._place_of[node] for node in nodes]] = True
        most = most_possible(self.wiring, usable, size)
        if most >= len(job.groups):
            return None
        return (
            f"{most} groups of {size} nodes at most are among the {len(nodes)} nodes that it may "
            f"have, with links over {self.wiring.reach} nodes"
        )

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
        if not (job.missing or self.tree):
            return job
        known = self._placed.get(job.name)
        if known is None or known[:2] != (job, free):
            known = self._placed[job.name] = job, free, self._repaired(job, wanted, size, free)
        return known[2]

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return the share of the traffic between a job's groups that crosses ToRs."""
        size = self._size(RingShape.model_validate(job.shape))
        if not (self.tree and size):
            return {}
        return {"crossing": self._repair(job, 0.0, size, frozenset()).share(self._rows(job, size))}

    def _repaired(self, job: Job, wanted: RingShape, size: int, free: frozenset[str]) -> Job:
        found = self._repair(job, wanted.crossing, size, free).placed(Policy(wanted.policy))
        rows, before = found.tolist(), self._rows(job, size).tolist()
        if rows == before:
            return job
        groups = tuple(
            group if row == old else None if row[0] == MISSING else self._group(row)
            for group, row, old in zip(job.groups, rows, before, strict=True)
        )
        return replace(job, groups=groups)

    def _repair(self, job: Job, crossing: float, size: int, free: frozenset[str]) -> Repair:
        stay = [
            group is not None and job.within is not None and not job.within.issuperset(group.nodes)
            for group in job.groups
        ]
        usable = np.zeros(self.wiring.nodes, dtype=bool)
        usable[[self._place_of[node] for node in free]] = True
        before = self._rows(job, size)
        return Repair(self.wiring, self.tree, before, usable, np.array(stay), crossing)

    def _rows(self, job: Job, size: int) -> Nodes:
        """Return the places in the row of a job's groups, by number."""
        missing = [MISSING] * size
        return np.array(
            [[self._place_of[node] for node in g.nodes] if g else missing for g in job.groups],
            dtype=np.int64,
        )

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`."""
        wanted: dict[str, frozenset[Circuit]] = {}
        closed = RingShape.model_validate(job.shape).size == 0
        by_size: defaultdict[int, list[Group]] = defaultdict(list)
        for group in filter(None, job.groups):
            by_size[len(group.nodes)].append(group)
        for groups in by_size.values():
            try:
                rows = np.array([[self._place_of[node] for node in g.nodes] for g in groups])
                taken, joined = paths(self.wiring, rows, closed=closed)
            except (KeyError, InfiniteHbdError) as error:
                raise OrchestrationError(f"job {job.name}: {error}") from error
            if not joined.all():
                apart = groups[int(np.flatnonzero(~joined)[0])]
                raise OrchestrationError(f"job {job.name}: {apart.nodes} cannot be joined")
            for place in rows.ravel().tolist():
                for bundle, path in enumerate(taken[place].tolist()):
                    wanted[f"trx{bundle}-node{place}"] = _CIRCUITS[path]
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
        if not self._gpus:
            raise OrchestrationError(
                f"found groups of {wanted.gpus} GPUs, and nodes do not state as many GPUs each: "
                "state size, in nodes"
            )
        if not wanted.gpus or wanted.gpus % self._gpus:
            raise OrchestrationError(
                f"found groups of {wanted.gpus} GPUs, expected a multiple of the {self._gpus} of a "
                "node: a loopback closes a ring over all GPUs of a node, and none over some of them"
            )
        return wanted.gpus // self._gpus

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
