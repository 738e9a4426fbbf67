"""Whatever a person can think of doing to Opus, one thing after the other; failures are shrunk."""

import os
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from systems.opus.opus_schedules import LONGEST, a_step, begin, outcome
from systems.opus.opus_world import Choice, World

from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.shim import Mode
from lightrig.suites.claims.opus.auditor import audit

EXAMPLES = max(8, int(os.environ.get("LIGHTRIG_SCHEDULES", "0")) // 100)
JOBS = (
    RailJob.grid("pairs", 2, [2]),
    RailJob.grid("pipeline", 3, [1]),
    RailJob.grid("rails", 2, [1], rails=2),
)
PICK = st.integers(0, 10_000)


class Meddling(RuleBasedStateMachine):
    """Events are picked by number, so that a failure shrinks to few and early ones."""

    @initialize(job=st.sampled_from(JOBS), mode=st.sampled_from(["default", "provisioning"]))
    def train(self, job: RailJob, mode: Mode) -> None:
        self.world = World.of(job)
        self.state = begin(self.world, mode, a_step)
        self.found = {str(rail): one.held for rail, one in enumerate(self.state.switches)}

    @rule(pick=PICK, often=st.integers(1, 8))
    def goes_on(self, pick: int, often: int) -> None:
        for _ in range(often):
            self._follow(self.world.choices(self.state), pick)

    @rule(pick=PICK)
    def goes_wrong(self, pick: int) -> None:
        self._follow(self.world.faults(self.state), pick)

    @precondition(lambda self: self.world.timeouts(self.state))
    @rule(pick=PICK)
    def loses_patience(self, pick: int) -> None:
        self._follow(self.world.timeouts(self.state), pick)

    @invariant()
    def promises_are_kept(self) -> None:
        if hasattr(self, "world"):
            assert not self.world.broken

    def teardown(self) -> None:
        """Left alone, with switches that answer, it comes to an end."""
        if not hasattr(self, "world"):
            return
        for rail, switch in enumerate(self.state.switches):
            if switch.dead:
                self.state = self.world.follow(self.state, ("revive", rail))
        fair = random.Random(1)
        while not self.state.done:
            options = self.world.choices(self.state) or self.world.timeouts(self.state)
            if not options:
                break
            # By chance, since with turns two could keep a third from ever having its own.
            self.state = self.world.follow(self.state, fair.choice(options))
            assert self.world.steps < LONGEST
        ended = outcome(self.state)
        assert ended != "stuck"
        pardoned = {"never ended", "never confirmed"} if ended != "done" else set()
        kept = audit(self.world.log, self.found)
        assert [v for v in kept if v.rule not in pardoned] == []

    def _follow(self, options: list[Choice], pick: int) -> None:
        if options:
            self.state = self.world.follow(self.state, options[pick % len(options)])


@pytest.mark.hypothesis
def test_opus_is_meddled_with() -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Meddling,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            suppress_health_check=slow,
            deadline=None,
        ),
    )
