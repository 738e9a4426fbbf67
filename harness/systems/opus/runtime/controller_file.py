"""The file of what controllers have heard: one strict form, with a digest of its content.

As `lightrig.harness.orchestration.journal`: it is read whole, or refused with the reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.journal import digest_of
from lightrig.harness.systems.opus.planning.controller import Controller, RailChange, RailStatus
from lightrig.harness.systems.opus.planning.messages import TopoWrite
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.pending_asks import PendingAsks
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, Topology, TopologyId
from lightrig.harness.systems.opus.runtime.rail_layout import RING, topology_text
from lightrig.testbeds.json_text import from_strict_json

FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Change(_Part):
    version: int
    attempt: int
    digits: list[list[int]]
    reason: str


class _Rail(_Part):
    topology: str
    state: Literal["in use", "falling back", "dead"]
    changes: list[_Change]
    version: int
    overdue: int
    reason: str


class _Ask(_Part):
    rank: int
    turn: int
    group: str
    index: int
    stage: int


class _Controller(_Part):
    rails: list[_Rail] = Field(min_length=1)
    carrier: list[int]
    asks: list[_Ask]
    holding: list[int]
    turns: list[int]
    retries: int


class StoredJob(_Part):
    """A job whose circuits its ranks ask for."""

    job: str
    nodes: list[str] = Field(min_length=1)
    run: int
    controller: _Controller

    def of(self, job: RailJob) -> Controller:
        """Return the controller; raises `OrchestrationError` where it is that of another job."""
        stored, ranks = self.controller, len(job.stage_of)
        lengths = {len(stored.carrier), len(stored.holding), len(stored.turns)}
        if lengths != {ranks} or len(stored.rails) != job.rails:
            raise OrchestrationError(f"job {self.job} has {ranks} ranks on {job.rails} rails")
        try:
            return Controller(
                job,
                tuple(_status(each) for each in stored.rails),
                tuple(stored.carrier),
                PendingAsks(job.groups, (TopoWrite(**each.model_dump()) for each in stored.asks)),
                tuple(stored.holding),
                tuple(stored.turns),
                stored.retries,
            )
        except (OpusError, ValueError, KeyError) as error:
            raise OrchestrationError(f"job {self.job}: {error}") from error


class _File(_Part):
    format: Literal[1]
    jobs: list[StoredJob]
    sha256: str


def stored(name: str, nodes: tuple[str, ...], run: int, controller: Controller) -> dict[str, Any]:
    """Return a job as the file has it."""
    fields = ("carrier", "holding", "turns", "retries")
    asks = sorted(controller.asks, key=lambda ask: ask.rank)
    return {
        "job": name,
        "nodes": list(nodes),
        "run": run,
        "controller": {
            "rails": [_document(each) for each in controller.rails],
            "asks": [dataclasses.asdict(ask) for ask in asks],
            **{each: getattr(controller, each) for each in fields},
        },
    }


def text_of(jobs: list[dict[str, Any]]) -> str:
    """Return the file of jobs."""
    content = json.loads(json.dumps({"format": FORMAT, "jobs": jobs}))
    return json.dumps({**content, "sha256": digest_of(content)})


def jobs_of(text: str | bytes) -> list[StoredJob]:
    """Return what a file has; raises `OrchestrationError` for any other text."""
    try:
        document = from_strict_json(text)
        found = _File.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise OrchestrationError(f"{where}: {first['msg']}") from error
    except ValueError as error:
        raise OrchestrationError(f"it is cut or damaged: {error}") from error
    del document["sha256"]
    if found.sha256 != digest_of(document):
        raise OrchestrationError("its digest is that of another content: it was cut or changed")
    return found.jobs


def _document(status: RailStatus) -> Mapping[str, Any]:
    return {
        "topology": topology_text(status.topology),
        "state": status.state,
        "changes": [
            {
                "version": each.version,
                "attempt": each.attempt,
                "digits": sorted(map(list, each.digits)),
                "reason": each.reason,
            }
            for each in status.changes
        ],
        "version": status.version,
        "overdue": status.overdue,
        "reason": status.reason,
    }


def _status(rail: _Rail) -> RailStatus:
    topology: Topology = GIANT_RING if rail.topology == RING else TopologyId(rail.topology)
    changes = []
    for each in rail.changes:
        digits = frozenset((stage, digit) for stage, digit in each.digits)
        changes.append(RailChange(each.version, each.attempt, digits, each.reason))
    return RailStatus(topology, rail.state, tuple(changes), rail.version, rail.overdue, rail.reason)
