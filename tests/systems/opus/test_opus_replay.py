"""A run's journal replayed with other switching times is what a run with these would have been."""

from collections.abc import Sequence
from functools import partial

import pytest
from systems.opus.opus_world import attachments
from systems.opus.test_opus_rails import Switches

from lightrig.harness.systems.opus.measurements.replay import (
    Waits,
    replayed,
    waits_of,
)
from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import Operation, RailJob
from lightrig.harness.systems.opus.planning.run_events import Began, Confirmed, Ended, Rewiring
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.planning.wiring import RailWiring
from lightrig.harness.systems.opus.runtime.rails import Journal, Rails, Wait
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.steps import pair, phase_tables, ring
from lightrig.testbeds import Circuit

MS = 1_000_000


def journal(clock: VirtualClock, job: RailJob, mode: Mode, delay: int) -> Journal:
    """Run two steps of a pipeline on one switch, whose changes take `delay` ns."""
    tables = phase_tables(job, 2, microbatches=3)
    shims = [Shim(rank, job.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    wiring = RailWiring.of(job, 0, attachments(job, 0))
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
    job = RailJob.grid("deep", stages, [2])
    short, long = (journal(clock, job, mode, delay) for delay in (30 * MS, 200 * MS))
    expected = lengths(waits_of(long))
    assert len(set(expected.values())) > stages
    assert lengths(replayed(short, 170 * MS).waits) == expected
    assert lengths(replayed(short, 0).waits) == lengths(waits_of(short))
    assert sum(lengths(replayed(long, -170 * MS).waits).values()) >= sum(
        lengths(waits_of(short)).values()
    )


def uneven(clock: VirtualClock, delay: int) -> Journal:
    """Run four stages that leave their rings for two pipelines, and return one by one.

    Two stages in a pipeline leave a port of each rank dark, four do not: to take down what was
    there is a command of its own. So the first change takes `delay` twice; all take 5 ms more, in
    which links come back.
    """
    job = RailJob.grid("uneven", 4, [2])
    programs = [
        [Operation(pair(job, rank, stage ^ 1), 0, 0), Operation(ring(job, rank, 1), 0, 1)]
        for rank, stage in enumerate(job.stage_of)
    ]
    shims = [
        Shim(rank, job.stage_of[rank], PhaseTable(tuple(program), 1), "default")
        for rank, program in enumerate(programs)
    ]
    commands = iter((2, 1, 1, 1, 1, 1))
    counted: list[int] = []

    def count(_: Sequence[Rewire]) -> int:
        counted.append(next(commands))
        return counted[-1]

    def apply(_: Sequence[Rewire]) -> None:
        clock.sleep(counted[-1] * delay + 5 * MS)

    wiring = RailWiring.of(job, 0, attachments(job, 0))
    begun = Controller.of(job, TopologyId("1111"))
    rails = Rails(clock, job, shims, [wiring], apply, ["ocs0"], begun, count=count)

    def run(rank: int) -> None:
        stage = job.stage_of[rank]
        for operation, computes in zip(programs[rank], COMPUTES[stage], strict=True):
            clock.sleep(computes * MS)
            rails.before(rank, operation)
            clock.sleep(10 * MS)
            rails.after(rank, operation)

    rails.run([partial(run, rank) for rank in range(8)])
    return rails.journal


COMPUTES = ((0, 100), (0, 120), (30, 130), (30, 170))
"""For how many ms each stage computes before each of its two operations."""


def test_a_change_of_two_commands_takes_two_switching_times(
    clock: VirtualClock,
) -> None:
    """By hand, for switching times of 20 and of 50 ms.

    A change is gathered for 1 ms, once no neighbour changes. The first command is under way from 1
    to 46 ms, or to 106; the second one, wanted at 30, from 47 to 72, or from 107 to 162. Stages
    return from 156, 176, 212, 252 ms on, or 216, 236, 302, 342, by commands that end at 182, 208,
    238, 278, or at 272, 328, 384, 440.
    """
    expected = {20: (46, 46, 42, 42, 26, 32, 26, 26), 50: (106, 106, 132, 132, 56, 92, 82, 98)}
    runs = {delay: uneven(clock, delay * MS) for delay in expected}
    for delay, longer in ((20, 0), (20, 30), (50, 0), (50, -30)):
        waits = lengths(replayed(runs[delay], longer * MS).waits)
        found = [
            waits[2 * stage, name] / MS
            for place in range(2)
            for stage in range(4)
            for name in [[n for rank, n in waits if rank == 2 * stage][place]]
        ]
        assert found == list(expected[delay + longer])
        assert lengths(waits_of(runs[delay + longer])) == waits


def test_part_of_a_change_is_hidden_behind_what_ranks_compute() -> None:
    """By hand: ranks compute for 30 and 40 ns while a change from 112 to 145 is under way.

    The last rank wants the operation at 140, so 28 of it are hidden and 10 exposed, 5 of which are
    control. A change 10 shorter is over at 135; one 20 longer, at 165.
    """
    ring = frozenset({Circuit(1, 2)})
    run = Journal(
        events=[
            *(Began(rank + 50, rank, "a", "ocs", frozenset({Circuit(3, 4)})) for rank in (0, 1)),
            *(Ended(at, rank, "a") for rank, at in enumerate((100, 110))),
            Rewiring(115, "ocs", "1", frozenset(), ring, wanted=112),
            Confirmed(145, "ocs", "1"),
            *(Began(150, rank, "b", "ocs", ring) for rank in (0, 1)),
            *(Ended(at, rank, "b") for rank, at in enumerate((160, 161))),
            *(Began(163, rank, "c", "ocs", ring) for rank in (0, 1)),
        ],
        waits=[
            *(Wait(rank + 40, rank, "a", 10) for rank in (0, 1)),
            *(Wait(at, rank, "b", 150 - at) for rank, at in enumerate((130, 140))),
            *(Wait(at, rank, "c", 163 - at) for rank, at in enumerate((162, 163))),
        ],
    )
    for longer, began, hidden in ((0, 150, 28), (-10, 145, 23), (20, 170, 28)):
        replay = replayed(run, longer)
        assert replay.hidden == {"b": hidden}
        assert lengths(replay.waits)[1, "b"] == began - 140
        assert lengths(replay.waits)[0, "b"] == began - 130
