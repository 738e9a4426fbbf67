"""G1, G2 and O1 hold, and nobody waits for ever, whatever order things happen in.

A hundred thousand random schedules are tried by `LIGHTRIG_SCHEDULES=100000 pytest
tests/systems/opus/test_opus_interleavings.py`; by default fewer.
"""

import os
import random
from collections import Counter
from dataclasses import replace

import pytest
from systems.opus import opus_schedules
from systems.opus.opus_schedules import (
    a_step,
    apart,
    at_random,
    begin,
    every_one,
    out_and_back,
    outcome,
)
from systems.opus.opus_world import World

from lightrig.harness.systems.opus.planning.controller import Barrier, Controller
from lightrig.harness.systems.opus.planning.operations import Operation, RailJob
from lightrig.harness.systems.opus.planning.run_events import Rewiring
from lightrig.harness.systems.opus.planning.schedule import numbered
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.suites.claims.opus.steps import pair

SCHEDULES = int(os.environ.get("LIGHTRIG_SCHEDULES", "150"))
LONG = SCHEDULES >= 10_000
PARTS = 4
JOBS = (
    RailJob.grid("pairs", 2, [2]),
    RailJob.grid("three stages", 3, [2]),
    RailJob.grid("pipeline", 3, [1]),
    RailJob.grid("odd rings", 2, [3]),
    RailJob.grid("two rails", 2, [1], rails=2),
    RailJob.grid("four rings, two rails", 2, [2], rails=2),
    RailJob.grid("five stages", 5, [1]),
    RailJob.grid("four stages", 4, [2]),
)
MODES: tuple[Mode, ...] = ("default", "provisioning")


@pytest.mark.timeout(120 + SCHEDULES // PARTS // 4)
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))]
)
def test_random_schedules_with_faults(part: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(part, SCHEDULES, PARTS):
        job, mode = JOBS[seed // PARTS % 8], MODES[seed // PARTS // 8 % 2]
        faults, steps = (0, 3, 10)[seed // PARTS // 16 % 3], 1 + (seed % 11 == 0)
        ended, broken = at_random(job, mode, seed, faults, steps)
        assert not broken, f"{job.name}, {mode}, seed {seed}: {broken}"
        assert ended != "stuck", f"{job.name}, {mode}, seed {seed}"
        assert faults or ended == "done", f"{job.name}, {mode}, seed {seed}: {ended}"
        ends[ended] += 1
    assert ends["done"] > ends["told that no rail is left"]
    assert ends["done on a ring"] > 0


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", [out_and_back, a_step] if LONG else [out_and_back])
def test_every_schedule_of_two_ranks_with_a_fault(
    mode: Mode, program: opus_schedules.Program
) -> None:
    _, ends, broken = every_one(RailJob.grid("two", 2, [1]), mode, program, faults=1)
    assert not broken
    assert ends["done"] > 0
    assert not ends["stuck"]


@pytest.mark.long
@pytest.mark.timeout(3600 if LONG else 120)
@pytest.mark.parametrize("mode", MODES if LONG else MODES[1:])
@pytest.mark.parametrize("stages", [2, 4] if LONG else [4])
def test_every_schedule_of_four_ranks(mode: Mode, stages: int) -> None:
    """Four stages, of which two that are no neighbours change at once; or two of two ranks."""
    job = RailJob.grid("four", stages, [4 // stages])
    states, ends, broken = every_one(job, mode, a_step, most=2_000_000)
    assert not broken
    assert ends == {"done": 1}
    assert states > 10_000


class GroupAlone(Controller):
    """As printed: a group that is ready moves its stages, whoever else is on them."""

    __slots__ = ()

    def may_change(self, rail: int, topology: TopologyId, target: TopologyId) -> bool:
        return True


class BlindToHolders(Controller):
    """Waits for who wants a change, not for who loses a link by it."""

    __slots__ = ()

    def may_change(self, rail: int, topology: TopologyId, target: TopologyId) -> bool:
        nobody = replace(self, holding=(0,) * len(self.holding))
        return Controller.may_change(nobody, rail, topology, target)


class Hasty(Controller):
    """Grants what is being changed."""

    __slots__ = ()

    def is_served(self, barrier: Barrier) -> bool:
        rails = []
        for rail in self.rails:
            topology = rail.topology
            for change in rail.changes:
                assert isinstance(topology, TopologyId)
                topology = topology.with_stages(dict(change.digits))
            rails.append(replace(rail, topology=topology, changes=()))
        return Controller.is_served(replace(self, rails=tuple(rails)), barrier)


@pytest.mark.parametrize(
    ("wrong", "width", "promise"),
    [(GroupAlone, 2, "G2"), (BlindToHolders, 1, "G2")],
    ids=["group alone", "blind to holders"],
)
def test_a_controller_that_is_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch, wrong: type[Controller], width: int, promise: str
) -> None:
    monkeypatch.setattr(opus_schedules, "Controller", wrong)
    _, _, broken = every_one(RailJob.grid("few", 2, [width]), "default", out_and_back)
    assert broken
    assert broken[0].startswith(promise)


def test_granting_what_is_being_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a third stage, whose message comes in between."""
    monkeypatch.setattr(opus_schedules, "Controller", Hasty)
    seen = {line for seed in range(40) for line in at_random(JOBS[2], "default", seed, 0)[1]}
    assert any(line.startswith("under reconfiguration") for line in seen)
    assert any(line.startswith("G1") for line in seen)


def test_starting_on_what_was_granted_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shim, "is_granted", property(lambda self: self.granted is not None))
    _, _, broken = every_one(RailJob.grid("two", 2, [1]), "default", out_and_back)
    assert broken
    assert broken[0].startswith("G1")


def passed_on(job: RailJob, rank: int) -> list[Operation]:
    """What the stage before sends, then the same to the stage after, twice: one dimension alone."""
    stage = job.stage_of[rank]
    near = [other for other in (stage - 1, stage + 1) if 0 <= other < job.stages]
    return list(numbered([Operation(pair(job, rank, other), 0, 0) for other in 2 * near]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_pairs_whose_circuits_never_change_wait_for_no_other_pair(mode: Mode, seed: int) -> None:
    """The third rank begins with a pair that is not the one with which the second begins."""
    world = World.of(RailJob.grid("pipeline", 4, [1]), gathers=True)
    state = begin(world, mode, passed_on, steps=2)
    shims = (replace(each, table=replace(each.table, still=True)) for each in state.shims)
    state, rng = state._replace(shims=tuple(shims)), random.Random(seed)
    while options := world.choices(state):
        state = world.follow(state, rng.choice(options))
    assert outcome(state) == "done"
    assert world.broken == []
    assert not [each for each in world.log if isinstance(each, Rewiring)]


def test_without_releases_all_ranks_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed default mode has none: who has sent says nothing until it asks again."""
    job = RailJob.grid("two", 2, [1])
    assert every_one(job, "default", apart)[1] == {"done": 1}

    def silent(self: Shim) -> tuple[Shim, tuple[()]]:
        return replace(self, granted=None), ()

    monkeypatch.setattr(Shim, "give_back", silent)
    assert every_one(job, "default", apart)[1]["stuck"] > 0
