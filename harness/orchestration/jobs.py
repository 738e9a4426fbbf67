"""Jobs that are wanted, and the nodes that their groups have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lightrig.testbeds import LightrigError


class OrchestrationError(LightrigError, ValueError):
    """A request, or a file of state, that an orchestrator cannot use."""


class UnknownJobError(OrchestrationError):
    """There is no job of that name."""


class JobConflictError(OrchestrationError):
    """A job of that name is there, and wants something else."""


class ImpossibleError(OrchestrationError):
    """A job that the fabric, or the nodes that it may have, cannot hold: that is proved."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are joined by circuits.

    Attributes:
        nodes: in the order of their ranks.
        details: how they are joined, as the system has it; JSON.
    """

    nodes: tuple[str, ...]
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A job and the groups that it has.

    Attributes:
        name: of the job.
        shape: what it wants, as the system has it; JSON.
        priority: jobs of a greater one are placed first.
        gang: whether a new job gets all of its groups or none.
        reserved: whether it has its nodes without circuits, until it is submitted.
        groups: by number, which a group keeps for as long as the job is there; None waits.
        epoch: of the last change of its groups.
        within: nodes that it may have; None for all.
        moved: numbers of the groups that this change gave other nodes although theirs worked.
        keep_alive: seconds without a further `submit` after which it is withdrawn; None: never.
    """

    name: str
    shape: Mapping[str, Any]
    priority: int
    gang: bool
    reserved: bool
    groups: tuple[Group | None, ...]
    epoch: int = 0
    within: frozenset[str] | None = None
    moved: tuple[int, ...] = ()
    keep_alive: float | None = None

    @property
    def missing(self) -> int:
        """Number of groups that it waits for."""
        return self.groups.count(None)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes of all groups."""
        return frozenset(node for group in self.groups if group for node in group.nodes)

    def document(self) -> dict[str, Any]:
        """Return the job as JSON has it."""
        return {
            "job": self.name,
            "shape": dict(self.shape),
            "priority": self.priority,
            "gang": self.gang,
            "reserved": self.reserved,
            "missing": self.missing,
            "epoch": self.epoch,
            "within": None if self.within is None else sorted(self.within),
            "moved": list(self.moved),
            "keep_alive": self.keep_alive,
            "groups": [
                group and {"nodes": list(group.nodes), "details": dict(group.details)}
                for group in self.groups
            ],
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Job:
        """Return the job of such a `document`; raises KeyError and TypeError for another."""
        groups = tuple(
            group and Group(tuple(group["nodes"]), group["details"]) for group in document["groups"]
        )
        within = document.get("within")  # not in documents written before
        return cls(
            document["job"],
            document["shape"],
            document["priority"],
            document["gang"],
            document["reserved"],
            groups,
            document["epoch"],
            None if within is None else frozenset(within),
            tuple(map(int, document.get("moved", ()))),  # nor are these
            document.get("keep_alive"),
        )

    def without(self, nodes: frozenset[str]) -> tuple[Job, dict[int, Group]]:
        """Return the job without the groups that have one of `nodes`, and these by number."""
        lost = {
            number: group
            for number, group in enumerate(self.groups)
            if group and not nodes.isdisjoint(group.nodes)
        }
        if not lost:
            return self, lost
        left = (None if n in lost else group for n, group in enumerate(self.groups))
        return replace(self, groups=tuple(left)), lost
