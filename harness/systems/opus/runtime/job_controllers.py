"""The controllers of all jobs of a service, each of which takes TopoWrite of its job's ranks.

Ranks are programs of any kind: Lightrig's shims, or others. What a controller has heard is on disk
before it answers, so that a service that was killed goes on where it was: ranks send what was not
answered again. Once all ranks of a job have sent their first message its rails leave the ring.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lightrig.harness.bench.lab_folder import LabFolderError, UntrustedFileError, opened
from lightrig.harness.bench.lease import LeaseLostError
from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.jobs import (
    Job,
    JobConflictError,
    OrchestrationError,
    UnknownJobError,
)
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.rank_messages import ForeignError
from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.messages import (
    Failed,
    Granted,
    NotProgrammed,
    Program,
    Programmed,
    Release,
    TopoWrite,
    ToShim,
)
from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC, RailJob
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.runtime.controller_file import jobs_of, stored, text_of
from lightrig.harness.systems.opus.runtime.rail_layout import (
    RailLayout,
    RailShape,
    changed_topology,
    topology_text,
)
from lightrig.instruments.clock import boot_time
from lightrig.testbeds import LightrigError

GATHERING_S = 0.001
"""Time for which a change waits for stages that are about to be ready for it too."""

OVERDUE_S = 10.0
"""Timeout of grants while a rail waits to fall back."""

AGAIN_S = 1.0
"""Period at which jobs that have ended are forgotten, and what failed is tried again."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rank: Annotated[int, Field(ge=0, description="Counts rails fastest, stages slowest")]
    node: Annotated[str, Field(description="The server that the rank runs on")]
    turn: Annotated[int, Field(ge=1, le=2**63 - 1, description="Counts the rank's writes")]
    run: Annotated[
        int,
        Field(ge=0, le=2**63 - 1, description="Counts the starts of the job's ranks"),
    ] = 0


class Write(_Message):
    """A rank needs the connectivity of a group for an operation, and no longer what it had."""

    do: Literal["topo_write"]
    group: Annotated[str, Field(description="Such as r0.d1.s0.0 or r0.pp0-1.0")]
    index: Annotated[int, Field(ge=0, le=2**63 - 1, description="Of the group's operation")]
    stage: Annotated[int, Field(ge=0, description="Of the rank")]


class GiveBack(_Message):
    """A rank no longer uses what it was granted at its turn."""

    do: Literal["release"]


class Answer(BaseModel):
    """What a rank is told; one that `waits` sends its message again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: Literal["granted", "released", "failed", "waits"]
    rank: int
    turn: int
    rail: int | None = Field(default=None, description="Which carries the operation")
    topology: str | None = Field(default=None, description="Of that rail: digits, or ring")
    reason: str | None = Field(default=None, description="Why no rail carries it")


@dataclass
class _Controlled:
    """A job whose circuits its ranks ask for.

    first: messages before the rails have left the ring. answers: those that are awaited, by rank,
    with the turn and kind of the message.
    """

    job: RailJob
    nodes: tuple[str, ...]
    run: int
    controller: Controller
    begun: bool = False
    first: dict[int, TopoWrite] = field(default_factory=dict)
    answers: dict[int, tuple[tuple[int, str], Future[Mapping[str, Any]]]] = field(
        default_factory=dict
    )
    programs: deque[Program] = field(default_factory=deque)
    overdue: dict[int, int] = field(default_factory=dict)
    tries: int = 0


class JobControllers:
    """See `lightrig.harness.orchestration.rank_messages.RankMessages`.

    Args:
        running: moves the circuits, whose layout is a `RailLayout`.
        file: of what the controllers have heard.
        control: by which this process leads; None where no other one can.

    Raises `OrchestrationError` where the file is that of another fabric, or was damaged.
    """

    messages = (Write, GiveBack)
    answer = Answer

    def __init__(self, running: Orchestrator, file: Path, control: Control | None = None) -> None:
        self._running, self._file, self._control = running, file, control
        assert isinstance(running.layout, RailLayout)
        self._rails = running.layout.rails
        self._jobs: dict[str, _Controlled] = {}
        self._turn = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="controllers")
        self._load()

    def start(self) -> None:
        """See `RankMessages`."""
        self._thread.start()

    def close(self) -> None:
        """See `RankMessages`."""
        with self._turn:
            self._over = True
            self._turn.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self, request: object) -> None:
        """See `RankMessages`."""
        if not (isinstance(request, Mapping) and request.get("do") == "submit"):
            return
        shape, name = request.get("shape"), request.get("job")
        states = isinstance(shape, Mapping) and shape.get("topologies") is not None
        if states and isinstance(name, str) and name in self._jobs:
            raise JobConflictError(
                f"the circuits of job {name} are those that its ranks ask for: state no topologies"
            )

    def forget(self, job: str) -> None:
        """See `RankMessages`."""
        with self._turn:
            self._forget({job})

    def waiting(self, message: BaseModel) -> Mapping[str, Any]:
        """See `RankMessages`."""
        assert isinstance(message, Write | GiveBack)
        return Answer(answer="waits", rank=message.rank, turn=message.turn).model_dump()

    def receive(self, job: str, message: BaseModel) -> Future[Mapping[str, Any]]:
        """See `RankMessages`."""
        assert isinstance(message, Write | GiveBack)
        with self._turn:
            controlled = self._of(job, message)
            self._check_sender(controlled, message)
            key, rank = (message.turn, message.do), message.rank
            known = controlled.answers.get(rank)
            if known is not None and known[0] == key:
                answered = known[1]
            else:
                answered = Future()
                controlled.answers[rank] = key, answered
            heard = (
                TopoWrite(rank, message.turn, message.group, message.index, message.stage)
                if isinstance(message, Write)
                else Release(rank, message.turn)
            )
            if controlled.begun:
                self._hear(controlled, heard)
            elif isinstance(heard, TopoWrite):
                controlled.first[rank] = heard
                self._turn.notify()
            else:
                raise JobConflictError(f"rank {rank} of job {job} was granted nothing")
            return answered

    # ------------------------------------------------------------------------- messages

    def _of(self, name: str, message: _Message) -> _Controlled:
        """Return the job of a message, whose controller begins with the first one of a run."""
        job = self._job(name)
        if job is None:
            raise UnknownJobError(f"found no job {name}")
        (group,) = job.groups
        if group is None or job.reserved:
            raise JobConflictError(f"job {name} has no circuits yet")
        known = self._jobs.get(name)
        if known is None or message.run > known.run:
            grid = self._grid(job)
            known = _Controlled(grid, group.nodes, message.run, Controller.of(grid))
            self._jobs[name] = known
        elif message.run < known.run:
            raise JobConflictError(
                f"run {message.run} of job {name} is over: run {known.run} is on"
            )
        elif known.nodes != group.nodes:
            raise JobConflictError(
                f"job {name} was on {', '.join(known.nodes)} and is on {', '.join(group.nodes)} "
                "now: start its ranks again, with a greater run"
            )
        return known

    def _check_sender(self, controlled: _Controlled, message: Write | GiveBack) -> None:
        """Raise `ForeignError` for what is not the rank's, `JobConflictError` for an old turn."""
        job, rank = controlled.job, message.rank
        who = f"rank {rank} of job {job.name}"
        if rank >= len(job.stage_of):
            raise ForeignError(f"job {job.name} has {len(job.stage_of)} ranks, and none is {rank}")
        node = controlled.nodes[rank // self._rails]
        if message.node != node:
            raise ForeignError(f"{who} is on {node}; {self._owner(message.node)}")
        if message.turn < controlled.controller.turns[rank]:
            raise JobConflictError(
                f"{who} was at turn {controlled.controller.turns[rank]} before turn {message.turn} "
                "came: ranks that were started again state a greater run"
            )
        if isinstance(message, GiveBack):
            return
        group = job.groups.get(message.group)
        if group is None:
            raise ForeignError(f"job {job.name} has no group {message.group}")
        if rank not in group.ranks:
            members = ", ".join(map(str, group.ranks))
            raise ForeignError(f"{who} is not in group {message.group}, whose ranks are {members}")
        if message.stage != job.stage_of[rank]:
            raise ForeignError(f"{who} is in stage {job.stage_of[rank]}, not {message.stage}")

    def _owner(self, node: str) -> str:
        for job in self._running.wanted.jobs:
            if node in job.nodes:
                return f"the circuits of {node} are job {job.name}'s"
        return f"{node} is no server of its"

    def _hear(
        self, controlled: _Controlled, message: TopoWrite | Release | Programmed | NotProgrammed
    ) -> None:
        before = controlled.controller
        after, sent = before.receive(message)
        self._take(controlled, after, sent)

    def _take(self, controlled: _Controlled, after: Controller, sent: tuple[Any, ...]) -> None:
        """Store what a controller has become, then say what it says."""
        before, controlled.controller = controlled.controller, after
        if after != before:
            try:
                self._store()
            except LightrigError:  # who sent the message sends it again
                controlled.controller = before
                raise
        for each in sent:
            if isinstance(each, Program):
                controlled.programs.append(each)
            else:
                self._tell(controlled, each)
        self._turn.notify()

    def _tell(self, controlled: _Controlled, message: ToShim) -> None:
        kind = "topo_write" if isinstance(message, Granted | Failed) else "release"
        awaited = controlled.answers.get(message.rank)
        if awaited is None or awaited[0] != (message.turn, kind):
            return  # it asks again
        del controlled.answers[message.rank]
        about: dict[str, Any] = {"rank": message.rank, "turn": message.turn}
        if isinstance(message, Granted):
            topology = topology_text(message.topology)
            about |= {"answer": "granted", "rail": message.rail, "topology": topology}
        elif isinstance(message, Failed):
            about |= {"answer": "failed", "reason": message.reason}
        else:
            about |= {"answer": "released"}
        awaited[1].set_result(Answer(**about).model_dump())

    # ------------------------------------------------------------------------- circuits

    def _run(self) -> None:
        try:
            while self._wait():
                # Stages that leave a phase nearly together change together.
                threading.Event().wait(GATHERING_S)
                for name, controlled in [*self._jobs.items()]:
                    self._advance(name, controlled)
        except LeaseLostError:
            return  # the loop of the service ends by it too, and says so
        except BaseException:
            self._running.alive = False  # the service ends: ranks would wait for ever
            raise

    def _wait(self) -> bool:
        """Wait until there may be something to do; return whether there will be."""
        with self._turn:
            self._turn.wait_for(lambda: self._over or self._is_due(), AGAIN_S)
            self._forget(self._jobs.keys() - {job.name for job in self._running.wanted.jobs})
            return not self._over

    def _is_due(self) -> bool:
        return any(
            each.programs
            or each.controller.due()
            or (not each.begun and not each.tries and self._has_all(each))
            for each in self._jobs.values()
        )

    def _has_all(self, controlled: _Controlled) -> bool:
        return len(controlled.first) == len(controlled.job.stage_of)

    def _forget(self, ended: Set[str]) -> None:
        for name in ended & self._jobs.keys():
            for _, answered in self._jobs.pop(name).answers.values():
                answered.set_exception(UnknownJobError(f"job {name} has ended"))
            self._store()

    def _advance(self, name: str, controlled: _Controlled) -> None:
        """Bring the circuits of a job to what its controller wants now."""
        if not controlled.begun:
            self._begin(name, controlled)
            return
        with self._turn:
            controller = controlled.controller
            for rail in controller.due():
                self._take(controlled, *controlled.controller.change(rail))
            self._hurry(controlled)
            # What is tried again goes alone, so that a port that fails fails no other rail.
            programs = [each for each in controlled.programs if each.attempt == 1]
            programs = programs or [*controlled.programs][:1]
            for each in programs:
                controlled.programs.remove(each)
        if programs:
            errors = self._carry_out(name, programs)
            with self._turn:
                for program, error in zip(programs, errors, strict=True):
                    about = program.rail, name, program.version
                    self._hear(
                        controlled,
                        Programmed(*about)
                        if error is None
                        else NotProgrammed(*about, program.attempt, error),
                    )

    def _begin(self, name: str, controlled: _Controlled) -> None:
        """Let the rails leave the ring once all ranks have asked for something."""
        if not self._has_all(controlled):
            return
        controlled.tries += 1
        pipeline = topology_text(TopologyId.uniform(controlled.job.stages, ASYMMETRIC))
        errors = self._set(name, [pipeline] * self._rails)
        if all(error is None for error in errors):
            with self._turn:
                controlled.begun = True
                first, controlled.first = controlled.first, {}
                for message in first.values():
                    self._hear(controlled, message)

    def _hurry(self, controlled: _Controlled) -> None:
        """Tell a controller for how long grants are held on a rail that is to fall back."""
        now = boot_time()
        for rail in range(self._rails):
            if not controlled.controller.falls_back(rail):
                controlled.overdue.pop(rail, None)
            elif now > controlled.overdue.setdefault(rail, now + round(OVERDUE_S * 1e9)):
                del controlled.overdue[rail]
                self._take(controlled, *controlled.controller.timeout(rail))

    def _carry_out(self, name: str, programs: list[Program]) -> list[str | None]:
        """Order the topologies of programs; return what went wrong with each."""
        job = self._job(name)
        if job is None:
            return ["the job has ended"] * len(programs)
        assert isinstance(self._running.layout, RailLayout)
        topologies = self._running.layout.topologies_of(job)
        for program in programs:
            before = topologies[program.rail]
            topologies[program.rail] = changed_topology(before, program.topology, program.stages)
        errors = self._set(name, [topology_text(each) for each in topologies])
        return [errors[program.rail] for program in programs]

    def _set(self, name: str, topologies: list[str]) -> list[str | None]:
        """Bring the rails of a job to topologies; return what went wrong with each."""
        assert isinstance(self._running.layout, RailLayout)
        try:
            found = self._running.change(name, {"topologies": topologies})["jobs"][name]
        except LeaseLostError:
            raise
        except (LightrigError, LookupError) as error:
            return [str(error)] * self._rails
        errors: list[str | None] = []
        for switch in self._running.layout.rail_switches:
            if switch in found["without"]:
                errors.append(f"switch {switch} does not answer")
            else:
                errors.append(None if found["ready"] else f"circuits of job {name} are not set")
        return errors

    def _job(self, name: str) -> Job | None:
        return next((job for job in self._running.wanted.jobs if job.name == name), None)

    # ------------------------------------------------------------------------- the file

    def _store(self) -> None:
        """Store all controllers.

        The thread has no client that would ask again: it waits until the folder takes them.
        """
        while True:
            try:
                self._write()
                return
            except LabFolderError:
                if self._over or threading.current_thread() is not self._thread:
                    raise
                self._turn.wait(AGAIN_S)

    def _write(self) -> None:
        if self._control is not None:
            self._control.check()
        jobs = [
            stored(name, each.nodes, each.run, each.controller)
            for name, each in self._jobs.items()
            if each.begun
        ]
        with opened(self._file.parent) as folder:
            folder.write_whole(self._file.name, text_of(jobs), durable=True)

    def _load(self) -> None:
        try:
            with opened(self._file.parent, make=False) as folder:
                text = folder.read(self._file.name)
        except LabFolderError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return
            raise
        except UntrustedFileError as error:
            raise OrchestrationError(f"{self._file} {error}: it is not used") from error
        try:
            for each in jobs_of(text):
                job = self._job(each.job)
                if job is not None and job.groups[0] is not None:  # else it has ended meanwhile
                    grid = self._grid(job)
                    known = _Controlled(
                        grid, tuple(each.nodes), each.run, each.of(grid), begun=True
                    )
                    known.programs.extend(known.controller.unacknowledged())
                    self._jobs[each.job] = known
        except OrchestrationError as error:
            raise OrchestrationError(f"{self._file} is no state of controllers: {error}") from error

    def _grid(self, job: Job) -> RailJob:
        shape = RailShape.model_validate(job.shape)
        return RailJob.grid(job.name, shape.stages, shape.widths, self._rails)
