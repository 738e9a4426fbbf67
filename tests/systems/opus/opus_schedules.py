"""Ways through an Opus world: one at random, or every one that there is."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from systems.opus.opus_world import Choice, State, World, settled

from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.operations import Operation, RailJob
from lightrig.harness.systems.opus.planning.schedule import numbered
from lightrig.harness.systems.opus.planning.shim import Mode
from lightrig.harness.systems.opus.planning.topology import GiantRing
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.steps import pair, pipeline_step, ring

PATIENCE = 0.02
"""Probability that a waiting participant times out."""
LONGEST = 20_000
"""Events in a schedule; the longest that comes to an end has some two thousand."""

Program = Callable[[RailJob, int], Sequence[Operation]]


def a_step(job: RailJob, rank: int) -> Sequence[Operation]:
    return pipeline_step(job, rank, microbatches=1)


def a_long_step(job: RailJob, rank: int) -> Sequence[Operation]:
    return pipeline_step(job, rank, microbatches=2, gathers=2)


def out_and_back(job: RailJob, rank: int) -> Sequence[Operation]:
    """Send/Recv, one collective, Send/Recv: the least that shifts both ways, in two stages."""
    other = pair(job, rank, 1 - job.stage_of[rank])
    return numbered(
        [Operation(other, 0, 0), Operation(ring(job, rank, 1), 0, 1), Operation(other, 0, 0)]
    )


def apart(job: RailJob, rank: int) -> Sequence[Operation]:
    """One Send/Recv, after which stage 1 leaves the pipeline and stage 0 has nothing to ask for."""
    sent = Operation(pair(job, rank, 1 - job.stage_of[rank]), 0, 0)
    return (sent, Operation(ring(job, rank, 1), 0, 1)) if job.stage_of[rank] else (sent,)


def begin(
    world: World, mode: Mode, program: Program = a_step, steps: int = 1, **limits: int
) -> State:
    job = world.job
    programs = {rank: program(job, rank) for rank in range(len(job.stage_of))}
    return world.begin(programs, mode, Controller.of(job, **limits), steps)


def choose(world: World, state: State, rng: random.Random, faults: int) -> Choice | None:
    """Return the next choice; None without any. Faults, while any are left, come now and then."""
    if faults and rng.random() < 0.1 and (options := world.faults(state)):
        return rng.choice(options)
    options = world.choices(state)
    impatient = world.timeouts(state)
    if impatient and (not options or (faults and rng.random() < PATIENCE)):
        options = impatient
    return rng.choice(options) if options else None


def outcome(state: State) -> str:
    """Return the end: "done", "done on a ring", "told that no rail is left", or "stuck"."""
    if state.done:
        rings = any(isinstance(rail.topology, GiantRing) for rail in state.controller.rails)
        return "done on a ring" if rings else "done"
    return "told that no rail is left" if state.told else "stuck"


def at_random(
    job: RailJob, mode: Mode, seed: int, faults: int, steps: int = 1
) -> tuple[str, list[str]]:
    """One schedule with up to `faults` faults: how it ended, and what was broken on the way."""
    rng = random.Random(seed)
    world = World.of(job, lockstep=job.rails > 1 and seed % 2 == 0, gathers=seed % 3 > 0)
    state = begin(world, mode, a_long_step if seed % 4 == 0 else a_step, steps)
    found = {str(rail): switch.held for rail, switch in enumerate(state.switches)}
    own = {str(rail): wiring.ports() for rail, wiring in enumerate(world.wirings)}
    while not state.done and world.steps < LONGEST:
        choice = choose(world, state, rng, faults)
        if choice is None:
            break
        faults -= choice[0] in {"lose", "repeat", "die", "revive", "deny"}
        state = world.follow(state, choice)
    ended = outcome(state)
    # What a dead switch has left undone, or a job that is started again, is no broken promise.
    pardoned = {"never confirmed", "never ended"} if ended != "done" else set()
    violations = [v for v in audit(world.log, found, own) if v.rule not in pardoned]
    return ended, [*map(str, violations), *world.broken]


def every_one(
    job: RailJob, mode: Mode, program: Program, faults: int = 0, most: int = 200_000
) -> tuple[int, Counter[str], list[str]]:
    """All schedules with up to `faults` faults: states, how they ended, what was broken.

    Each connection keeps its order and patience ends only where nothing else can happen: that
    leaves out what `at_random` tries, and makes the rest finite. Ends at the first breach.
    """
    world = World.of(job, in_order=True, gathers=True)
    ends: Counter[str] = Counter()
    ended: set[State] = set()
    todo, seen = [(begin(world, mode, program, retries=1), faults)], set()
    while todo and not world.broken:
        state, left = todo.pop()
        state = settled(state)
        if (state, left) in seen:
            continue
        seen.add((state, left))
        assert len(seen) <= most, "a larger job than can be tried out"
        world.log.clear()
        options = world.choices(state)
        if not options and not state.done and not state.told:
            options = world.timeouts(state)
        if not options and (end := _uncounted(state)) not in ended:
            ended.add(end)
            ends[outcome(state)] += 1
        todo += [(world.follow(state, choice), left) for choice in options]
        if left:
            todo += [(world.follow(state, choice), left - 1) for choice in world.faults(state)]
    return len(seen), ends, world.broken


def _uncounted(state: State) -> State:
    """The state without its counts of changes: two stages change in one command or in two."""
    rails = tuple(replace(rail, version=0) for rail in state.controller.rails)
    orchestrators = tuple(
        replace(
            rail,
            tenants=tuple(
                (name, replace(tenant, latest=(), changes=())) for name, tenant in rail.tenants
            ),
        )
        for rail in state.rails
    )
    controller = replace(state.controller, rails=rails)
    return state._replace(controller=controller, rails=orchestrators)
