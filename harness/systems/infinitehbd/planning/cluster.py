"""Jobs of any size on one K-hop row: which nodes make their rings, through failures and repairs.

`managers` groups all nodes alike; here each job states the size and number of its groups, and all
that is known fits into a JSON document, from which a service continues after it was killed.
"""

# What follows a cluster is a cluster: it may be asked what only they are asked.
# ruff: noqa: SLF001

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.managers import Paths
from lightrig.harness.systems.infinitehbd.planning.placement import place
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, Wiring

LEAST_RING = 3
"""Nodes of a ring that closes over links: it has two ends, and a node between them."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job and the nodes that it has.

    Attributes:
        name: of the job.
        size: nodes of each of its groups; 0 for one ring through all healthy nodes.
        count: number of groups that it wants.
        groups: those that it has, each in the order of the row.
    """

    name: str
    size: int
    count: int
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def missing(self) -> int:
        """Number of groups that it waits for."""
        return self.count - len(self.groups)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Faulty nodes and placed jobs; every event gives the next state.

    A failure touches the groups of the nodes that failed, the other groups carry traffic. What
    a job has lost is placed again where there is room, jobs in the order in which they came.
    """

    wiring: Wiring
    faulty: frozenset[int] = frozenset()
    jobs: tuple[Job, ...] = ()

    def submitted(self, name: str, size: int, count: int = 1) -> "Cluster":
        """Place a job; submitting it twice places it once.

        Raises `InfiniteHbdError` for sizes that no row could hold, for another job of that name,
        and for a job beside one that has all nodes.
        """
        if count < 1 or size < 0 or size * count > self.wiring.nodes or (not size and count > 1):
            raise InfiniteHbdError(
                f"job {name} wants {count} groups of {size} nodes, of {self.wiring.nodes} in all; "
                "a size of 0 is one ring of all healthy nodes"
            )
        if not size and not self.wiring.closed:
            raise InfiniteHbdError("the row is a line, expected a ring: its ends have no link")
        for job in self.jobs:
            if job.name == name:
                if (job.size, job.count) == (size, count):
                    return self
                raise InfiniteHbdError(f"job {name} runs with {job.count} groups of {job.size}")
            if not size or not job.size:
                raise InfiniteHbdError(f"job {job.name} is there, and a ring of all has no room")
        return replace(self, jobs=(*self.jobs, Job(name, size, count)))._placed()

    def withdrawn(self, name: str) -> "Cluster":
        """End a job; jobs that wait may get its nodes. Raises `InfiniteHbdError` without it."""
        left = tuple(job for job in self.jobs if job.name != name)
        if len(left) == len(self.jobs):
            known = ", ".join(job.name for job in self.jobs) or "none"
            raise InfiniteHbdError(f"found no job {name}; jobs are {known}")
        return replace(self, jobs=left)._placed()

    def failed(self, nodes: Iterable[int]) -> "Cluster":
        """Drop the groups of failed nodes and place them again; raises `InfiniteHbdError`."""
        return replace(self, faulty=self.faulty | self._known(nodes))._placed()

    def repaired(self, nodes: Iterable[int]) -> "Cluster":
        """Take nodes in again, for jobs that wait; raises `InfiniteHbdError`."""
        return replace(self, faulty=self.faulty - self._known(nodes))._placed()

    @property
    def healthy(self) -> tuple[int, ...]:
        """The nodes that have not failed, in the order of the row."""
        return tuple(node for node in range(self.wiring.nodes) if node not in self.faulty)

    def paths(self) -> dict[int, Paths]:
        """The path of each bundle of each healthy node; nodes of no group are in loopback."""
        wanted = np.full((self.wiring.nodes, len(bundles(self.wiring))), Path.LOOPBACK)
        for job in self.jobs:
            for group in job.groups:
                taken, _ = paths(self.wiring, np.array([group]), closed=not job.size)
                wanted[list(group)] = taken[list(group)]
        return {node: tuple(map(Path, wanted[node].tolist())) for node in self.healthy}

    def document(self) -> dict[str, Any]:
        """Everything that a restart needs to know, for JSON."""
        return {
            "nodes": self.wiring.nodes,
            "hops": list(self.wiring.hops),
            "closed": self.wiring.closed,
            "faulty": sorted(self.faulty),
            "jobs": [
                {
                    "name": job.name,
                    "size": job.size,
                    "count": job.count,
                    "groups": [list(group) for group in job.groups],
                }
                for job in self.jobs
            ],
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> "Cluster":
        """The cluster of such a `document`; raises `InfiniteHbdError` for anything else."""
        try:
            wiring = Wiring(document["nodes"], tuple(document["hops"]), document["closed"])
            jobs = tuple(
                Job(job["name"], job["size"], job["count"], tuple(map(tuple, job["groups"])))
                for job in document["jobs"]
            )
            return cls(wiring, frozenset(document["faulty"]), jobs)
        except (KeyError, TypeError) as error:
            raise InfiniteHbdError(f"found no state of a cluster: {error!r}") from error

    def _known(self, nodes: Iterable[int]) -> frozenset[int]:
        found = frozenset(nodes)
        if unknown := sorted(node for node in found if not 0 <= node < self.wiring.nodes):
            raise InfiniteHbdError(
                f"found node {unknown[0]}, expected 0 to {self.wiring.nodes - 1}"
            )
        return found

    def _placed(self) -> "Cluster":
        """Keep the groups without a faulty node, and place what is missing on free nodes."""
        whole = [
            replace(job, groups=tuple(g for g in job.groups if self.faulty.isdisjoint(g)))
            for job in self.jobs
        ]
        taken = np.zeros(self.wiring.nodes, dtype=bool)
        taken[
            [*self.faulty, *(node for job in whole for group in job.groups for node in group)]
        ] = 1
        placed = []
        for job in whole:
            if not job.size:
                placed.append(replace(job, groups=self._ring_of_all()))
                continue
            fresh: list[tuple[int, ...]] = []
            if job.missing:
                found = place(taken, job.size, self.wiring.reach, closed=self.wiring.closed)
                joined = found[paths(self.wiring, found)[1]]
                fresh = [tuple(group) for group in joined.tolist()][: job.missing]
                taken[[node for group in fresh for node in group]] = True
            placed.append(replace(job, groups=(*job.groups, *fresh)))
        return replace(self, jobs=tuple(placed))

    def _ring_of_all(self) -> tuple[tuple[int, ...], ...]:
        """One closed ring of all healthy nodes; none where the links do not reach."""
        healthy = self.healthy
        if len(healthy) < LEAST_RING:
            return ()
        hops = np.diff([*healthy, healthy[0]]) % self.wiring.nodes
        if not np.isin(hops, self.wiring.hops).all():
            return ()
        _, joined = paths(self.wiring, np.array([healthy]), closed=True)
        return (healthy,) if joined.all() else ()
