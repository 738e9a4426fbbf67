"""The step of a script on circuits, predicted from its run on the ring of all ranks before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lightrig.harness.jobs.predicted_steps import (
    Controlled,
    PredictedStep,
    matched,
    predicted_step,
    simulated_steps,
)
from lightrig.harness.jobs.recorded_steps import RecordedOperation
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode
from lightrig.harness.systems.opus.planning.simulated_control import SimulatedRails
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.workloads.graph import FRONT_END, Kind, Workload, WorkloadError
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Control, Simulator
from lightrig.instruments.jobs.traffic.training import Done
from lightrig.testbeds import format_duration

_FRONT_END = "front end "
"""How groups of operations begin that no rail carries; behind it are the ranks."""


def predicted(
    job: RailJob,
    ring: Trained,
    tables: Sequence[PhaseTable],
    mode: Mode,
    switching: int | None,
) -> PredictedStep | str:
    """Return the predicted mean step on circuits, or why there is none.

    ring: the run on the ring of all ranks. switching: what a change of circuits takes until links
    are back, in ns; None where none was timed.
    """
    ranks = matched([_operations(job, ring, rank) for rank in range(len(tables))])
    bounds = [_bounds(of, table) for of, table in zip(ranks, tables, strict=True)]
    count = min(map(len, bounds))
    if count < 2:
        return f"the run on the ring of all ranks has {count} steps behind the first, not two"
    still = all(table.still for table in tables)
    if not still and switching is None:
        return "no change of circuits was timed before the run"
    recorded = [
        sum(of[last].ended - of[first].ended for of, (first, last) in zip(ranks, step, strict=True))
        / len(ranks)
        for step in zip(*bounds, strict=False)
    ]
    controlled = None if still else _controlled(job, tables, mode, switching or 0)
    try:
        steps = simulated_steps(ranks, bounds, job.stage_of, controlled)
    except WorkloadError as error:
        return str(error)
    except OpusError as error:
        # A script may do what the simulated control plane does not follow; it is to run all the
        # same, and the answer says why nothing was predicted.
        return f"the simulated control plane does not follow its operations: {error}"
    assumed = ["ranks compute, and data move, as long as on the ring of all ranks"]
    if not still:
        assumed.append(
            f"each change of circuits takes {format_duration(switching or 0)}, as that to the ring "
            "did, and what ranks and controller tell each other takes no time"
        )
    return predicted_step(steps, recorded, len(ranks), assumed)


def _operations(job: RailJob, run: Trained, rank: int) -> list[RecordedOperation]:
    """Return what a rank did, in the order in which it began: messages of the front end apart.

    Those may be received while others run; ranks wait for them within their computing.
    """
    found = [_recorded(done, job.groups[done.operation.group].ranks)
             for done in run.operations[rank]]  # fmt: skip
    for done in run.front_end.get(rank, ()):
        if done.operation.kind not in {"send", "recv"}:
            members = tuple(map(int, done.operation.group.removeprefix(_FRONT_END).split(",")))
            found.append(_recorded(done, members, FRONT_END))
    return sorted(found, key=lambda one: one.asked)


def _recorded(done: Done, members: tuple[int, ...], link: str = "dp") -> RecordedOperation:
    one = done.operation
    return RecordedOperation(
        one.kind, members, one.size, done.asked.latest, done.ended.latest, done.parts, link
    )


def _bounds(operations: Sequence[RecordedOperation], table: PhaseTable) -> list[tuple[int, int]]:
    """Return of each usual step but the first the places of the operation before it and its last.

    The table joins sends and receives that are operations of their own here.
    """
    last: list[int] = []  # the place of the last part, of each operation of the table
    left = 0
    for place, one in enumerate(operations):
        if one.link == FRONT_END:
            continue
        for _ in one.parts or "c":
            if not left:
                left = table.joined_at(len(last))
                last.append(place)
            last[-1], left = place, left - 1
    return [(last[begin - 1], last[end - 1]) for begin, end in table.steps_in(len(last))[1:]]


def _controlled(
    job: RailJob, tables: Sequence[PhaseTable], mode: Mode, switching: int
) -> Controlled:
    def controlled(
        workload: Workload, network: DedicatedLinks
    ) -> tuple[Control, Callable[[Simulator], None]]:
        order = [_joined(workload, rank, table) for rank, table in enumerate(tables)]
        rails = SimulatedRails(workload, network, order, mode, switching, job=job)
        return rails, rails.begin

    return controlled


def _joined(workload: Workload, rank: int, table: PhaseTable) -> list[tuple[int, ...]]:
    """Return the nodes of each of a rank's operations on its rail."""
    numbers = [
        number
        for number, node in enumerate(workload.graph(rank).nodes)
        if node.kind is not Kind.COMPUTE
        and not (node.kind is Kind.COLLECTIVE and node.group.startswith(FRONT_END))
    ]
    operations: list[tuple[int, ...]] = []
    while numbers:
        count = table.joined_at(len(operations))
        operations.append(tuple(numbers[:count]))
        del numbers[:count]
    return operations
