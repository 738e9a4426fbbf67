"""The controllers of the regions of all jobs of a service: one for each region (MixNet §5, §5.4).

A controller is sent what its region's gates have chosen, as the demand of each pair of servers,
plans the links by Algorithm 1, and has the switch set to them. It knows nothing of other regions.
What links a region has is part of its job's shape: a service that was killed goes on with them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.jobs import (
    Job,
    JobConflictError,
    OrchestrationError,
    UnknownJobError,
)
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.rank_messages import ForeignError
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.runtime.region_layout import RegionLayout, link_texts
from lightrig.testbeds import LightrigError, Link

_AT_ONCE = 8
"""Regions whose controllers plan at the same time."""


class _Demand(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    region: Annotated[int, Field(ge=0, description="Of the job, from 0")]
    turn: Annotated[int, Field(ge=1, le=2**63 - 1, description="Counts the region's demands")]
    demand: Annotated[
        list[list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]],
        Field(description="Of each pair of its servers, above the diagonal, in any unit"),
    ]


class Demand(_Demand):
    """What a region's gates send, before the all-to-alls that circuits are wanted for."""

    do: Literal["demand"]


class Outlook(_Demand):
    """Which links that demand would get now: packets leave circuits before those move."""

    do: Literal["plan"]


class Answer(BaseModel):
    """The links that a region has, or would get; one that `waits` is sent again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: Literal["set", "planned", "failed", "waits"]
    region: int
    turn: int
    links: list[list[str]] = Field(default=[], description="Pairs of NIC ports")
    reason: str | None = Field(default=None, description="Why circuits are not set")


@dataclass
class _Controller:
    """A region of a job: its last demand, and the answer to that."""

    turn: int = 0
    answer: Future[Mapping[str, Any]] = field(default_factory=Future)


class RegionControllers:
    """See `lightrig.harness.orchestration.rank_messages.RankMessages`.

    Args:
        running: moves the circuits, whose layout is a `RegionLayout`.
        file, control: not used: what links there are is in the state of `running`.
    """

    messages = (Demand, Outlook)
    answer = Answer

    def __init__(self, running: Orchestrator, file: Path, control: Control | None = None) -> None:
        del file, control
        assert isinstance(running.layout, RegionLayout)
        self._running, self._layout = running, running.layout
        self._controllers: dict[tuple[str, int], _Controller] = {}
        self._turn, self._setting = threading.Lock(), threading.Lock()
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="region")

    def start(self) -> None:
        """See `RankMessages`."""

    def close(self) -> None:
        """See `RankMessages`."""
        self._workers.shutdown()

    def check(self, request: object) -> None:
        """See `RankMessages`."""
        if not (isinstance(request, Mapping) and request.get("do") == "submit"):
            return
        shape, name = request.get("shape"), request.get("job")
        states = isinstance(shape, Mapping) and shape.get("links") is not None
        if states and any(job == name for job, _ in self._controllers):
            raise JobConflictError(
                f"the links of job {name} are those that its controllers plan: state none"
            )

    def forget(self, job: str) -> None:
        """See `RankMessages`."""
        with self._turn:
            for key in [key for key in self._controllers if key[0] == job]:
                del self._controllers[key]

    def waiting(self, message: BaseModel) -> Mapping[str, Any]:
        """See `RankMessages`."""
        assert isinstance(message, Demand | Outlook)
        return Answer(answer="waits", region=message.region, turn=message.turn).model_dump()

    def receive(self, job: str, message: BaseModel) -> Future[Mapping[str, Any]]:
        """See `RankMessages`."""
        assert isinstance(message, Demand | Outlook)
        with self._turn:
            self._nodes(job, message)
            if isinstance(message, Outlook):
                return self._workers.submit(self._planned, job, message)
            known = self._controllers.setdefault((job, message.region), _Controller())
            if message.turn < known.turn:
                raise JobConflictError(
                    f"region {message.region} of job {job} was at turn {known.turn} before turn "
                    f"{message.turn} came"
                )
            if message.turn > known.turn:
                known.turn = message.turn
                known.answer = self._workers.submit(self._set, job, message)
            return known.answer

    def _planned(self, name: str, message: Outlook) -> Mapping[str, Any]:
        """Return the answer with the links that a region would get."""
        about: dict[str, Any] = {"region": message.region, "turn": message.turn}
        try:
            links = link_texts(self._plan(name, message))
        except LightrigError as error:
            return Answer(answer="failed", reason=str(error), **about).model_dump()
        return Answer(answer="planned", links=links, **about).model_dump()

    def _set(self, name: str, message: Demand) -> Mapping[str, Any]:
        """Plan the links of a region, set them, and return the answer."""
        about: dict[str, Any] = {"region": message.region, "turn": message.turn}
        try:
            planned = self._plan(name, message)
            self._bring(name, message.region, planned)
        except LightrigError as error:
            return Answer(answer="failed", reason=str(error), **about).model_dump()
        return Answer(answer="set", links=link_texts(planned), **about).model_dump()

    def _plan(self, name: str, message: Demand | Outlook) -> tuple[Link, ...]:
        """Plan the links of a region by Algorithm 1, keeping those that fit."""
        _, region = self._layout.region_of(self._nodes(name, message))
        current = self._layout.links_of(self._job(name))[message.region]
        return plan_region(region, np.array(message.demand), current)

    def _bring(self, name: str, region: int, planned: tuple[Link, ...]) -> None:
        """Set the links of a region; those of the job's other regions stay."""
        with self._setting:
            present = self._layout.links_of(self._job(name))
            links = [link_texts(each) for each in present]
            links[region] = link_texts(planned)
            self._running.change(name, {"links": links})
        if late := self._running.lacking(self._layout.circuits_of(planned)):
            raise OrchestrationError(f"circuits of {', '.join(late)} are not set")

    def _nodes(self, name: str, message: Demand | Outlook) -> tuple[str, ...]:
        """Return the servers of a message's region; raises as `RankMessages.receive` does."""
        job = self._job(name)
        if message.region >= len(job.groups):
            raise ForeignError(f"job {name} has {len(job.groups)} regions, none {message.region}")
        group = job.groups[message.region]
        if group is None or job.reserved:
            raise JobConflictError(f"region {message.region} of job {name} has no servers yet")
        count = len(group.nodes)
        if [len(row) for row in message.demand] != [count] * count:
            raise OrchestrationError(
                f"found a demand of {len(message.demand)} rows, expected {count} x {count}: the "
                f"servers of region {message.region} of job {name}"
            )
        return group.nodes

    def _job(self, name: str) -> Job:
        found = next((job for job in self._running.wanted.jobs if job.name == name), None)
        if found is None:
            raise UnknownJobError(f"found no job {name}")
        return found
