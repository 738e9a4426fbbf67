"""A training step as its ranks issue it: one forward, one backward, over a pipeline with FSDP."""

from collections.abc import Iterator

from lightrig.harness.systems.opus.planning.operations import (
    ASYMMETRIC,
    Operation,
    OpusError,
    RailJob,
)
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered


def pipeline_step(
    job: RailJob, rank: int, *, microbatches: int, gathers: int = 1, reduces: int = 1
) -> tuple[Operation, ...]:
    """The operations of a rank in one step of the 1F1B schedule (Opus Fig. 3).

    Each forward and each backward pass gathers parameters `gathers` times in dimension 1; at the
    end gradients are reduced `reduces` times. Where a stage sends one microbatch on and takes
    another back it is one operation, since two that wait for each other would be a deadlock.
    """
    return numbered(list(_step(job, rank, microbatches, gathers, reduces)))


def phase_tables(
    job: RailJob, steps: int, *, microbatches: int, gathers: int = 1, reduces: int = 1
) -> tuple[PhaseTable, ...]:
    """Every rank's phase table for so many steps of `pipeline_step`."""
    return tuple(
        PhaseTable(
            pipeline_step(job, rank, microbatches=microbatches, gathers=gathers, reduces=reduces),
            steps,
        )
        for rank in range(len(job.stage_of))
    )


def pair(job: RailJob, rank: int, stage: int) -> str:
    """The group in which a rank talks to its neighbour in `stage`; raises `OpusError`."""
    for group in job.groups.values():
        stages = {job.stage_of[member] for member in group.ranks}
        if group.dimension == ASYMMETRIC and rank in group.ranks and stage in stages:
            return group.name
    raise OpusError(f"rank {rank} of job {job.name} has no neighbour in stage {stage}")


def ring(job: RailJob, rank: int, dimension: int) -> str:
    """The group of a symmetric dimension that a rank is in; raises `OpusError`."""
    for group in job.groups.values():
        if group.dimension == dimension and rank in group.ranks:
            return group.name
    raise OpusError(f"rank {rank} of job {job.name} is in no group of dimension {dimension}")


def _step(
    job: RailJob, rank: int, microbatches: int, gathers: int, reduces: int
) -> Iterator[Operation]:
    stage, last = job.stage_of[rank], job.stages - 1
    collective = Operation(ring(job, rank, 1), 0, 1)

    def talk(neighbour: int) -> Iterator[Operation]:
        if 0 <= neighbour <= last:
            yield Operation(pair(job, rank, neighbour), 0, ASYMMETRIC)

    def compute() -> Iterator[Operation]:
        yield from [collective] * gathers

    warm_up = min(last - stage, microbatches)
    steady = microbatches - warm_up
    for _ in range(warm_up):
        yield from talk(stage - 1)
        yield from compute()
        yield from talk(stage + 1)
    if steady:
        yield from talk(stage - 1)
    for _ in range(steady):
        yield from compute()
        yield from talk(stage + 1)
        yield from compute()
        yield from talk(stage - 1)
    for _ in range(warm_up):
        yield from talk(stage + 1)
        yield from compute()
        yield from talk(stage - 1)
    yield from [collective] * reduces
