"""A training job on four namespaces: its ranks find their circuits, with a stand-in for PyTorch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.opus.measurements.training import (
    changes,
    computed_by_step,
    control,
    losses,
    reconfigurations,
    rows,
    shifts,
    step_times,
    waits_by_step,
)
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.run_events import Rewiring
from lightrig.harness.systems.opus.runtime.on_fabric import fitting_job
from lightrig.harness.systems.opus.runtime.training import TrainingJob
from lightrig.instruments.jobs.traffic.training import Script, TrainingFailedError
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.suites.claims.opus.auditor import audit
from lightrig.testbeds import load

STAND_IN = Path(__file__).parents[2] / "servers" / "stand_in_training"
STEP = """
import os
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
group = dist.new_group([0, 1]) or dist.new_group([2, 3])
pair = dist.new_group([0, 2]) or dist.new_group([1, 3])
ten = [torch.Tensor([1.0] * 10)]
for step in range(int(sys.argv[1])):
    group.allreduce(ten, None).wait()
    if rank == int(sys.argv[2]) and step == 1:
        group.allreduce(ten, None).wait()
    (pair.send if rank < 2 else pair.recv)(ten, 1 if rank < 2 else 0, 0).wait()
    if rank > 1:
        print("step", step, "loss", 1.0 / (step + 1))
dist.destroy_process_group()
"""
NO_LISTENER = "-1"
OVERLAPPED = """
import os
import pathlib
import sys
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
group = dist.new_group([0, 1]) or dist.new_group([2, 3])
pair = dist.new_group([0, 2]) or dist.new_group([1, 3])
ten = [torch.Tensor([1.0] * 10)]
changed, number = pathlib.Path(sys.argv[2]), 0


def compute():
    # Until the circuits have changed behind it: what a window of any length hides.
    global number
    number += 1
    for _ in range(2000 if sys.argv[2] else 0):
        if changed.exists() and int(changed.read_text() or 0) >= number:
            return
        time.sleep(0.005)
    if sys.argv[2]:
        raise SystemExit(f"change {number} did not come while there was something to compute")


for step in range(int(sys.argv[1])):
    group.allreduce(ten, None).wait()
    compute()
    (pair.send if rank < 2 else pair.recv)(ten, 1 if rank < 2 else 0, 0).wait()
    if step < int(sys.argv[1]) - 1:
        compute()
"""


@pytest.fixture(scope="module")
def job() -> Iterator[TrainingJob]:
    """Ranks for the tests below, of which the last one ends them."""
    if reason := kernel.available():
        pytest.skip(reason)
    bench = bind(load("testbeds/rails4.yaml"), "simulated", 1)
    fabric = Fabric(bench)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(STAND_IN))
        made = TrainingJob(fabric, fitting_job(bench.testbed, "llama"))
    yield made
    made.close()
    fabric.restore()
    bench.close()


def script(steps: int, odd: str = NO_LISTENER) -> Script:
    return Script(STEP, "step.py", (str(steps), odd))


@pytest.mark.long
def test_circuits_follow_a_script_that_knows_nothing_of_them(job: TrainingJob) -> None:
    tables, seen = job.profile(script(2))
    assert [len(table.operations) for table in tables] == [2] * 4
    assert {table.shifts for table in tables} == {2}
    assert [loss.value for loss in losses(seen)] == [1.0, 1.0, 0.5, 0.5]
    trained = job.train(script(3), tables, "default")
    assert trained.rails is not None
    # To whom server0 is joined, in one topology or the other, there is a hop of one link.
    server = job.fabric.bench.servers["server0"]
    assert isinstance(server, LinuxServer)
    shown = server.commands.run(["ip", "route"]).stdout.splitlines()
    ways = {line.split()[0]: line for line in shown if line.startswith("198.18")}
    assert sorted(ways) == ["198.18.0.2", "198.18.0.3"]
    assert not any("via" in way for way in ways.values())
    own = job.on_fabric.cabled_ports()
    assert not audit(trained.rails.journal.events, trained.found, own)
    assert not trained.rails.journal.incidents
    assert [loss.step for loss in losses(trained)] == [0, 0, 1, 1, 2, 2]
    # From data to the pipeline in every step, and back in all but the first.
    assert reconfigurations(trained, tables) == {0: [1, 2, 2], 1: [1, 2, 2]}
    # Both stages leave the pipeline in one command or in two, as they happen to be ready: all
    # commands together make the eight circuits of a topology anew at each of the five shifts.
    made = [event.add for event in trained.rails.journal.events if isinstance(event, Rewiring)]
    assert sum(map(len, made)) == 5 * 8
    assert len(changes(trained)) == len(made)
    assert len(step_times(trained)) == 2
    assert len(list(rows(trained, {}))) == 6 + 2
    found = shifts(trained, tables)
    assert [shift.dimension for shift in found] == [0, 1, 0, 1, 0]
    assert all(shift.waited > 0 and shift.exposed(10**9) > 0 for shift in found)
    waited = [shift.waited for shift in found]
    assert waits_by_step(trained, tables) == [sum(waited[1:3]), sum(waited[3:5])]
    # A replay with the same changes is the run; nothing is requested before it is wanted.
    same = computed_by_step(trained, tables, 0)
    assert same == [(wait, 0) for wait in waits_by_step(trained, tables)]


@pytest.mark.long
def test_circuits_are_provisioned_while_ranks_compute(
    job: TrainingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks compute until the circuits of their next phase are there, and then want them."""
    tables, _ = job.profile(Script(OVERLAPPED, "overlapped.py", ("2", "")))
    stages, changed = [0, 0], tmp_path / "changed"
    apply = job.circuits.apply

    def counted(rewires: Sequence[Rewire]) -> None:
        apply(rewires)
        wirings, stage_of = job.on_fabric.wirings, job.job.stage_of
        for rewire in rewires:
            made = {
                stage_of[rank]
                for name, circuits in wirings[rewire.rail].of_group.items()
                if circuits <= rewire.add
                for rank in job.job.groups[name].ranks
            }
            for stage in made:
                stages[stage] += 1
        draft = changed.with_suffix(".draft")
        draft.write_text(str(min(stages)))
        draft.replace(changed)

    monkeypatch.setattr(job.circuits, "apply", counted)
    script = Script(OVERLAPPED, "overlapped.py", ("3", str(changed)))
    trained = job.train(script, tables, "provisioning")
    assert trained.rails is not None
    assert not audit(trained.rails.journal.events, trained.found, job.on_fabric.cabled_ports())
    assert min(stages) >= 5  # and once more ahead of a step that does not come


def test_logical_switches_move_nothing(job: TrainingJob) -> None:
    mesh = job.fabric.plans["mesh"]
    tables, _ = job.profile(script(2))
    trained = job.emulate(script(2), tables, "provisioning", mesh)
    assert len(losses(trained)) == 4
    took = control(trained, tables)
    assert len(took) == 2
    assert min(took) > 0
    present = job.fabric.bench.switches["ocs"].circuits()
    assert present == mesh.circuits["ocs"]


def test_a_rank_that_does_something_else_ends_the_job(job: TrainingJob) -> None:
    tables, _ = job.profile(script(2))
    with pytest.raises(TrainingFailedError, match="server2 failed as rank 2") as failed:
        job.train(script(3, odd="2"), tables, "default")
    assert "rank 2 issued r0.d1.s1.0#2, expected r0.pp0-1.0#1" in str(failed.value)
