"""Restarts of a training job whose attempts fail as is written here."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.jobs.measure.light_faults import FaultError
from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError, LostLink
from lightrig.harness.systems.opus.runtime.restarts import RestartedTraining, TrainingStoppedError
from lightrig.harness.systems.opus.runtime.training import Attempt
from lightrig.harness.systems.opus.runtime.training_faults import (
    FaultMaker,
    TrainingFault,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.testbeds import LightrigError, Port

MS = 1_000_000
LOST = LinkLostError(
    LostLink(Port("s1", "n.p0"), Port("s0", "n.p1"), ("ocs 1>12",), Span(3, 4), 2_150_000_000, MS)
)


def attempt(clock: VirtualClock, *ends: Sequence[int], began: int | None = 0) -> Attempt:
    steps = {rank: [Span(at, at) for at in each] for rank, each in enumerate(ends)}
    listener: Any = SimpleNamespace(began=began, count=len(ends), steps=steps)
    return Attempt(listener, clock.event())


class Job:
    """A job whose attempts end after two steps on rank 0 and three on rank 1."""

    def __init__(self, clock: VirtualClock, *ends: LightrigError | str) -> None:
        self._clock, self._ends = clock, list(ends)
        self.fabric = SimpleNamespace(bench=SimpleNamespace(clock=clock, world=None))
        self.environment: Mapping[str, str] = {"TORCHELASTIC_RUN_ID": "r"}
        self.environments: list[Mapping[str, str]] = []
        self.attempt: Attempt | None = None
        self.done: list[str] = []
        self.dark = False

    def train(self, *given: object) -> Any:
        self._clock.sleep(1000 * MS)
        self.environments.append(self.environment)
        self.attempt = attempt(self._clock, [1, 2], [1, 2, 3])
        end = self._ends.pop(0)
        if isinstance(end, str):
            return end
        self.attempt.failed = self._clock.now()
        self.attempt.unfinished = {0: "data#4", 1: "pair#7"}
        self._clock.sleep(300 * MS)
        raise end

    def reform(self) -> None:
        self._clock.sleep(70 * MS)
        if self.dark:
            raise LightrigError("no carrier within 30 s: s1.n.p0")
        self.done.append("ring")

    def renew(self) -> None:
        self._clock.sleep(2000 * MS)
        self.done.append("programs")


def training(
    job: Any, restarts: int, *faults: TrainingFault
) -> tuple[RestartedTraining, list[Any]]:
    seen: list[Any] = []
    made = RestartedTraining(job, restarts, faults, lambda *given: seen.append(given))
    return made, seen


def run(of: RestartedTraining) -> Any:
    script: Any = "script"
    return of.run(script, (), "default")


def test_a_job_is_started_again_on_the_ring_with_new_programs(clock: VirtualClock) -> None:
    other = LightrigError("s0 lost rank 0\n  because")
    job = Job(clock, LOST, other, "trained")
    restarted, seen = training(job, 2)
    assert run(restarted) == "trained"
    assert job.done == ["ring", "programs"] * 2
    assert seen == [(LOST, 1), (other, 2)]
    assert [
        [each[f"TORCHELASTIC_{name}"] for name in ("RUN_ID", "RESTART_COUNT", "MAX_RESTARTS")]
        for each in job.environments
    ] == [["r", "0", "2"], ["r", "1", "2"], ["r", "2", "2"]]
    first, second = restarted.failures
    assert second.cause == "s0 lost rank 0"
    moments = (first.attempt.failed, first.ended, first.circuits, first.programs)
    assert [each and each // MS for each in moments] == [1000, 1300, 1370, 3370]


def test_the_last_failure_is_described(clock: VirtualClock) -> None:
    restarted, _ = training(Job(clock, LOST, LOST), 1)
    with pytest.raises(TrainingStoppedError) as caught:
        run(restarted)
    lines = str(caught.value).splitlines()
    assert lines[0] == "s1.n.p0 has no carrier: its link with s0.n.p1 is lost"
    assert lines[1:] == [
        "  circuits  ocs 1>12",
        "  carrier   away for 2.150 s; changes of circuits took at most 0.001 s",
        "  step      3 after restart 1",
        "  noticed   4.370 s after the first operation",
        "  waiting   rank 0 for data#4, rank 1 for pair#7",
        "  restarts  1 of 1 were made",
    ]


def test_a_link_that_stays_dark_permits_no_restart(clock: VirtualClock) -> None:
    job = Job(clock, LOST)
    job.dark = True
    restarted, _ = training(job, 3)
    with pytest.raises(TrainingStoppedError, match=r"restart   impossible.*30 s: s1\.n\.p0"):
        run(restarted)
    assert job.done == []


def test_errors_before_ranks_run_are_not_answered_by_a_restart(clock: VirtualClock) -> None:
    job = Job(clock)

    def refuse(*given: object) -> None:
        raise LightrigError("ocs refused")

    job.train = refuse  # type: ignore[method-assign]
    restarted, seen = training(job, 3)
    with pytest.raises(LightrigError, match=r"^ocs refused$"):
        run(restarted)
    assert seen == []


def test_faults_are_made_once_all_ranks_are_in_their_step(clock: VirtualClock) -> None:
    """Steps of earlier attempts count: 4, then the second of this one, which rank 1 begins last."""
    killed: list[tuple[int, int]] = []
    job = Job(clock)
    ranks = [
        SimpleNamespace(
            name=f"s{number}", kill=lambda number=number: killed.append((number, clock.now() // MS))
        )
        for number in (0, 0, 1)
    ]
    job.ranks = ranks  # type: ignore[attr-defined]
    given: Any = job
    maker = FaultMaker(given, [TrainingFault("kill", 6, "s0")], lambda: 4)
    running = attempt(clock, [100], [])
    clock.schedule(300 * MS, "rank 1", lambda: running.listener.steps[1].append(Span(300, 300)))
    clock.schedule(900 * MS, "end", running.over.set)
    (task,) = maker.beside(running)
    task()
    assert [number for number, _ in killed] == [0, 0]
    assert {at for _, at in killed} <= {300, 310}
    assert running.fault == pytest.approx(300 * MS, abs=10 * MS)
    assert maker.beside(running) == []
    (made,) = maker.made
    assert made.startswith("all ranks on s0 are killed, as --fault wants, 0.3")


def test_a_fault_in_a_step_that_never_came_is_an_error(clock: VirtualClock) -> None:
    restarted, _ = training(Job(clock, "trained"), 0, TrainingFault("kill", 9, "s0"))
    with pytest.raises(FaultError, match="all ranks on s0 are killed in step 9: none"):
        run(restarted)
