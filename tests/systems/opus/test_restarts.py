"""Restarts of a training job whose attempts fail as is written here."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.jobs.measure.light_faults import FaultError
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError, LostLink
from lightrig.harness.systems.opus.runtime.on_fabric import check_spare, fitting_job
from lightrig.harness.systems.opus.runtime.restarts import (
    Reformed,
    RestartedTraining,
    TrainingStoppedError,
    form_again,
)
from lightrig.harness.systems.opus.runtime.training import Attempt
from lightrig.harness.systems.opus.runtime.training_faults import (
    FaultMaker,
    TrainingFault,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.jobs.traffic.training import RankLostError
from lightrig.testbeds import LightrigError, Port, load

MS = 1_000_000
LOST = LinkLostError(
    LostLink(Port("s1", "n.p0"), Port("s0", "n.p1"), ("ocs 1>12",), Span(3, 4), 2_150_000_000, MS)
)


def attempt(clock: VirtualClock, *ends: Sequence[int], began: int | None = 0) -> Attempt:
    steps = {rank: [Span(at, at) for at in each] for rank, each in enumerate(ends)}
    listener: Any = SimpleNamespace(began=began, count=len(ends), steps=steps, unprofiled=None)
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
        self.placement, self.spares = ["s0", "s1"], list[str]()
        self.job, self.without = SimpleNamespace(rails=1), frozenset[int]()

    def dark_servers(self) -> list[str]:
        """Nobody knows."""
        return []

    def dark_rails(self) -> list[int]:
        """The only one."""
        return [0]

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
    script: Any = SimpleNamespace(name="script.py")
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


# ------------------------------------------------------------------------- spare servers


class Placed(Job):
    """A job on s0, s1 and s2 whose ring stays dark while a broken server is in it."""

    def __init__(self, clock: VirtualClock, broken: str, *spares: str) -> None:
        super().__init__(clock, LOST, "trained")
        self.placement, self.spares = ["s0", "s1", "s2"], [*spares]
        self._broken = broken

    def move_ranks(self, server: str, spare: str) -> None:
        self.placement[self.placement.index(server)] = spare

    def dark_servers(self) -> list[str]:
        """A link has two ends: both are dark, whichever is broken."""
        return ["s0", "s1"]

    def reform(self) -> None:
        self.dark = self._broken in self.placement
        super().reform()


@pytest.mark.parametrize(
    ("broken", "moved", "placement"),
    [
        ("", None, ["s0", "s1", "s2"]),  # the light is back: nothing moves
        ("s1", ("s1", "s4"), ["s0", "s4", "s2"]),  # the end that lost its carrier first
        ("s0", ("s0", "s4"), ["s4", "s1", "s2"]),  # the other one, after the first is back
    ],
)
def test_the_end_of_a_dark_link_moves_to_a_spare(
    clock: VirtualClock, broken: str, moved: object, placement: object
) -> None:
    job = Placed(clock, broken, "s4")
    restarted, _ = training(job, 1)
    assert run(restarted) == "trained"
    (failure,) = restarted.failures
    assert (failure.moved, job.placement) == (moved, placement)
    assert job.spares == ([] if moved else ["s4"])


def test_no_spare_helps_where_both_ends_stay_dark(clock: VirtualClock) -> None:
    job = Placed(clock, "s2", "s4")
    restarted, _ = training(job, 1)
    with pytest.raises(TrainingStoppedError, match="restart   impossible"):
        run(restarted)
    assert (job.placement, job.spares) == (["s0", "s1", "s2"], ["s4"])


def test_ranks_of_a_server_whose_program_has_ended_move_at_once(clock: VirtualClock) -> None:
    job = Placed(clock, "", "s4", "s5")
    error: Any = RankLostError("s2", "lost rank 2 of a training job: its program has ended")
    given: Any = job
    assert form_again(given, error) == Reformed(("s2", "s4"))
    assert (job.placement, job.spares, job.done) == (["s0", "s1", "s4"], ["s5"], ["ring"])


class TwoRails(Job):
    """A job on two rails, with links that stay dark on some of them."""

    def __init__(self, clock: VirtualClock, broken: set[int]) -> None:
        super().__init__(clock, LOST, "trained")
        self.job, self._broken = SimpleNamespace(rails=2), broken
        self.on_fabric = SimpleNamespace(carrying=lambda rail: 1 - rail)

    def dark_servers(self) -> list[str]:
        """Both ends of the link."""
        return ["s0", "s1"]

    def dark_rails(self) -> list[int]:
        """Those that are not left yet."""
        return sorted(self._broken - self.without)

    def leave_rails(self, rails: Sequence[int]) -> None:
        self.without |= {*rails}

    def reform(self) -> None:
        self.dark = bool(self.dark_rails())
        super().reform()


def test_traffic_of_a_rail_with_a_dark_link_moves_to_another(clock: VirtualClock) -> None:
    job = TwoRails(clock, {0})
    restarted, _ = training(job, 1)
    assert run(restarted) == "trained"
    (failure,) = restarted.failures
    assert (failure.moved, failure.rerouted, job.without) == (None, ((0, 1),), {0})


def test_no_rail_is_left_where_all_have_a_dark_link(clock: VirtualClock) -> None:
    job = TwoRails(clock, {0, 1})
    restarted, _ = training(job, 1)
    with pytest.raises(TrainingStoppedError, match="restart   impossible"):
        run(restarted)
    assert job.without == set()


RAILS4 = Path(__file__).parents[3] / "testbeds" / "rails4.yaml"


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """The four servers of rails4, and a fifth one, whose third port no fiber reaches."""
    before, _, after = RAILS4.read_text().partition("plans:\n")
    text = before + after[after.index("simulation:") :]
    text = text.replace("server[0-3]", "server[0-4]").replace("size: 12x12", "size: 15x15")
    path = tmp_path / "rails5.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("spare", "says"),
    [
        ("server1", "server1 is in the job, with rank 1; a spare is a server beyond its first 4"),
        ("server9", "rails4 has no server 'server9'; not in the job are: server4"),
    ],
)
def test_a_spare_is_a_known_server_beyond_the_job(five: Path, spare: str, says: str) -> None:
    testbed = load(five)
    job = fitting_job(testbed, "job", 2, [2], 4)
    check_spare(testbed, job, "server4")
    with pytest.raises(OpusError, match=re.escape(says)):
        check_spare(testbed, job, spare)


def test_a_spare_has_as_many_ports_on_each_rail(five: Path) -> None:
    text = five.read_text()
    five.write_text(
        text.replace("server[0-4].nic0.p[0-2] <-> ocs", "server[0-3].nic0.p[0-2] <-> ocs")
    )
    testbed = load(five)
    job = fitting_job(testbed, "job", 2, [2], 4)
    with pytest.raises(OpusError, match=r"server4 is not on rail 0 .*server4\.nic0\.p0 is on no"):
        check_spare(testbed, job, "server4")
