"""The part of a system that an orchestrator needs: which nodes make a group, by which circuits."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from lightrig.harness.orchestration.jobs import Group, Job
from lightrig.testbeds import Circuit


class Shape(BaseModel):
    """Base of what a job of a system wants: unknown fields and conversions are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    CHANGEABLE: ClassVar[frozenset[str]] = frozenset()
    """Fields that another `submit` of a job may change while the job is there."""

    UNCHANGED_BY_NULL: ClassVar[frozenset[str]] = frozenset()
    """Those of them that stay as they are where another `submit` states null or nothing."""


class Layout(Protocol):
    """Nodes of a fabric, and the groups that they can make. Values in, values out."""

    @property
    def nodes(self) -> Sequence[str]:
        """All nodes, in the order of the fabric."""

    @property
    def shape(self) -> type[Shape]:
        """The model of what a job wants."""

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """Return the number of groups of a job of a valid `shape`.

        Raises `OrchestrationError` for one that the fabric could not hold if it were empty.
        """

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return the nodes that cannot be used without `switches`, and the switch of each."""

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """Return the job with groups in as many of its empty places as possible.

        Groups that the job has stay, unless its shape lets the layout move some of them.

        job: its `within` are the nodes that a new group may have, None for all; a group with
        others stays. free: nodes of these that work and are in no group. lost: groups that had
        failed nodes, by number; the new ones keep as much of their order as they can. silent:
        switches that do not answer.
        """

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """Return the circuits of a job by switch, of no switch that it does not need.

        Raises `OrchestrationError` for groups that this layout does not make.
        """

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return how a job's groups are placed, by the name of a measure; less is better."""

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return the circuits of a switch that no job needs."""


@runtime_checkable
class ProvesImpossible(Protocol):
    """A layout that can prove that some jobs have no place."""

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """Return why a job without groups has no place on `nodes`, whatever is tried.

        All of `nodes` work and are free, and all switches answer. None where that is not proved:
        a search that finds no place is no proof, unless it finds every place that there is.
        """
