"""Answers of the API as models: the schemas that its document states."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lightrig.harness.orchestration.waiting import Code


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(BaseModel):
    """Why a request was not carried out, by RFC 9457; nothing has changed."""

    model_config = ConfigDict(strict=True)

    type: str = Field(description="about:blank: what the status says")
    title: str
    status: int
    detail: str


class Reason(_Answer):
    """Why a job waits."""

    code: Code
    detail: str


class Group(_Answer):
    """Nodes that are joined by circuits, in the order of their ranks."""

    nodes: list[str]
    details: dict[str, Any] = Field(description="how they are joined, as the system has it")


class Job(_Answer):
    """A job and the groups that it has."""

    shape: dict[str, Any]
    priority: int
    gang: bool
    reserved: bool
    missing: int = Field(description="groups that it waits for")
    epoch: int = Field(description="of the last change of its groups, or of the switches it uses")
    within: list[str] | None = Field(description="nodes that it may have; null for all")
    moved: list[int] = Field(description="groups that the last change moved although theirs worked")
    keep_alive: float | None = Field(
        description="seconds without a further submit after which it is withdrawn; null for never"
    )
    groups: list[Group | None]
    ready: bool = Field(description="whether its circuits are set")
    without: list[str] = Field(description="switches of it that have failed")
    measures: dict[str, float]
    reason: Reason | None = Field(description="why it waits; null where it does not")


class Agent(_Answer):
    """An agent that does not answer."""

    error: str
    jobs: list[str]


class FabricStatus(_Answer):
    """What is wanted and seen."""

    epoch: int
    lead: int
    settled: bool
    doubt: str | None
    faulty: dict[str, str] = Field(description="reasons by node")
    dark_ports: dict[str, str] = Field(
        description="nodes with light at some monitored ports and none at others"
    )
    crossed: dict[str, str] = Field(
        description="NIC ports that hear another one than their link says, and the fibers"
    )
    silent: dict[str, str] = Field(description="reasons by switch")
    drained: list[str]
    agents: dict[str, Agent]
    jobs: dict[str, Job]


class Jobs(_Answer):
    """All jobs by name."""

    epoch: int
    jobs: dict[str, Job]


class RankLink(_Answer):
    """A link of a rank between NIC ports."""

    port: str
    to: str


class Rank(_Answer):
    """A rank of a group with its node and links."""

    rank: int
    node: str
    links: list[RankLink]


class Ring(_Answer):
    """The ranks of a group in order."""

    group: int
    ranks: list[Rank]


class PlacedJob(Job):
    """A job with its ranks; links over switches that have failed are not among them."""

    job: str
    rings: list[Ring]


class Event(BaseModel):
    """An event; some have details."""

    model_config = ConfigDict(strict=True)

    epoch: int
    time: str
    event: str


class MissingGroups(_Answer):
    """Numbers of missing groups; null before a job is there."""

    before: int | None
    after: int


class Measures(_Answer):
    """How groups are placed; null before a job is there."""

    before: dict[str, float] | None
    after: dict[str, float]


class JobChange(_Answer):
    """What a request would change of a job."""

    changed: list[int] | None
    moved: list[int]
    missing: MissingGroups
    measures: Measures
    groups: list[Group | None]


class Outlook(_Answer):
    """What a request with `dry_run` would change, by job; null for one that would end."""

    dry_run: Literal[True]
    epoch: int
    doubt: str | None
    jobs: dict[str, JobChange | None]


class Health(_Answer):
    """Whether the service probes its switches."""

    alive: bool
