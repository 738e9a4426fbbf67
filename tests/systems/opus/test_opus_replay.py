"""A run's journal replayed with other switching times is what a run with these would have been."""

import pytest
from systems.opus.opus_world import attachments
from systems.opus.test_opus_rails import Switches

from lightrig.harness.systems.opus.measurements.replay import Waits, replayed, waits_of
from lightrig.harness.systems.opus.planning.operations import Job
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.wiring import Wiring
from lightrig.harness.systems.opus.runtime.rails import Journal, Rails
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.steps import phase_tables

MS = 1_000_000


def journal(clock: VirtualClock, job: Job, mode: Mode, delay: int) -> Journal:
    """Run two steps of a pipeline on one switch, whose changes take `delay` ns."""
    tables = phase_tables(job, 2, microbatches=3)
    shims = [Shim(rank, job.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    wiring = Wiring.of(job, 0, attachments(job, 0))
    rails = Rails(clock, job, shims, [wiring], Switches(clock, delay).apply, ["ocs0"])
    programs = {rank: table.all() for rank, table in enumerate(tables)}
    emulate(rails, programs, transfer=7 * MS, compute=11 * MS)
    return rails.journal


def lengths(waits: Waits) -> dict[tuple[int, str], int]:
    return {key: wait.length for key, wait in waits.items()}


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("mode", ["default", "provisioning"])
def test_a_replay_with_longer_changes_waits_as_such_a_run(
    clock: VirtualClock, mode: Mode, stages: int
) -> None:
    """To the nanosecond; with shorter ones it may wait longer, where stages change in turn."""
    job = Job.grid("deep", stages, [2])
    short, long = (journal(clock, job, mode, delay) for delay in (30 * MS, 200 * MS))
    expected = lengths(waits_of(long))
    assert len(set(expected.values())) > stages
    assert lengths(replayed(short, 170 * MS)) == expected
    assert lengths(replayed(short, 0)) == lengths(waits_of(short))
    assert sum(lengths(replayed(long, -170 * MS)).values()) >= sum(
        lengths(waits_of(short)).values()
    )
