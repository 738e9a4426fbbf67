"""From what ranks were seen to do to the phase tables that their shims consult."""

from collections.abc import Mapping, Sequence

from lightrig.harness.systems.opus.planning.operations import Job, Operation, OpusError
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered


def profiled(job: Job, groups: Mapping[int, Sequence[str]]) -> tuple[PhaseTable, ...]:
    """Every rank's phase table, from the groups of its operations in their order.

    What repeats itself to the end, at least twice, is taken for the steps; what comes before is
    done once. Where nothing does, all of it is one step. Raises `OpusError` for ranks that do not
    agree in how often they talk to each other, or that say nothing.
    """
    for group in job.groups.values():
        counts = {rank: list(groups[rank]).count(group.name) for rank in group.ranks}
        if len(set(counts.values())) > 1:
            counted = ", ".join(f"rank {rank} {count}" for rank, count in counts.items())
            raise OpusError(f"operations of {group.name} differ in number: {counted}")
    return tuple(_table(job, groups[rank]) for rank in range(len(job.stage_of)))


def _table(job: Job, seen: Sequence[str]) -> PhaseTable:
    once, period = _cycle(seen)
    names = seen[: once + period]
    operations = numbered([Operation(name, 0, job.groups[name].dimension) for name in names])
    return PhaseTable(operations[once:], before=operations[:once])


def _cycle(seen: Sequence[str]) -> tuple[int, int]:
    """Return the shortest prefix and period that reproduce the whole sequence."""
    found = 0, len(seen)
    for period in range(1, len(seen) // 2 + 1):
        alike = 0
        while alike + period < len(seen) and seen[-1 - alike] == seen[-1 - alike - period]:
            alike += 1
        rounds = (alike + period) // period
        once = len(seen) - rounds * period
        if once + period < sum(found):
            found = once, period
    return found
