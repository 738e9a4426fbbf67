"""`lightrig train` with scripts that end before their first step, or change it after a restart."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lightrig.instruments.namespaces import namespaces as kernel

RAILS = "testbeds/rails4.yaml"
LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")

NO_BATCH = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in []:
    model(batch).sum().backward()
    optimizer.step()
print("epoch 1 of 1", dist.get_rank())
dist.barrier()
"""
"""Its data set is empty: DDP's begin alone looks like three steps of equal operations."""

NO_GROUP = "print('nothing to do')\n"

CHANGES = """import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

folder, changed = sys.argv[1:]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.01)
last = f"{folder}-last"
done = int(open(last).read()) if os.path.exists(last) else 0
again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
names = changed.split(",") if again else ["replicas", "shards"]
for step in range(done, 8 if any(names) else 0):
    weight.square().sum().backward()
    for name in names:
        dist.all_reduce(weight.grad, group=mesh.get_group(name))
    print(f"step {step} loss {weight.sum().item()!r}", flush=True)
    optimizer.step()
    optimizer.zero_grad()
    dist.barrier()
    if dist.get_rank() == 0:
        open(last, "w").write(str(step + 1))
    dist.barrier()
"""
"""Goes on from its last step; its operations after a restart are those of an argument."""


ONE_ENDS = """import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(6):
    weight.square().sum().backward()
    if dist.get_rank() == 2 and step == int(sys.argv[1]):
        sys.exit()
    dist.all_reduce(weight.grad)
    optimizer.step()
    dist.barrier()
"""
"""Rank 2 ends earlier than the other ranks, which wait for it."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return tmp_path / "script.py"


def run(script: Path, *options: str, arguments: tuple[str, ...] = ()) -> tuple[int, str]:
    """Return the exit status of the command, and its stderr."""
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--json", *options]
    command += ["--", str(script), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("source", "did"),
    [
        (
            NO_BATCH,
            "1 optimizer of PyTorch, no step of one; 4 operations with other ranks, the last "
            "barrier of front end 0,1,2,3 in line 12; printed last 'epoch 1 of 1 ",
        ),
        (
            NO_GROUP,
            "no optimizers of PyTorch, no step of one; no operation with other ranks; printed last "
            "'nothing to do'",
        ),
    ],
)
def test_a_script_that_ends_before_its_first_step_is_no_run(
    script: Path, source: str, did: str
) -> None:
    """No circuit follows it, and no number of a step is given out."""
    script.write_text(source)
    status, printed = run(script, "--parallel", "dp=4")
    assert status == 3
    assert "script.py ended on the ring of all ranks before its first step\n" in printed
    assert did in printed
    assert "[on circuits" not in printed


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("begun", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_rank_that_ends_before_the_others_is_named(script: Path, begun: int) -> None:
    """Gloo would wait for it for half an hour."""
    script.write_text(ONE_ENDS)
    status, printed = run(script, "--parallel", "dp=4", arguments=(str(begun),))
    assert status == 3
    assert re.search(r"as rank [013] of a training job for rank 2, which has ended\n", printed)
    line = 1 + ONE_ENDS[: ONE_ENDS.index("dist.all_reduce")].count("\n")
    assert re.search(rf"  waits for allreduce {begun + 1} of \S+, in line {line} of", printed)
    assert f"  because   the script of rank 2 has ended after {begun} of them\n" in printed


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("changed", ["shards,replicas", "replicas,replicas,shards", "replicas"])
def test_other_operations_after_a_restart_stop_the_job(script: Path, changed: str) -> None:
    """The first that differs is named with its line, and no further restart is made."""
    script.write_text(CHANGES)
    options = ["--parallel", "dp=2,sdp=2", "--max-restarts", "2", "--fault", "kill:server1,step=3"]
    arguments = (str(script.parent / "{run}"), changed)
    status, printed = run(script, *options, arguments=arguments)
    assert status == 3
    before = "script.py does other operations after restart 1 than on the ring of all ranks"
    assert before in printed
    line = 1 + CHANGES[: CHANGES.index("dist.all_reduce")].count("\n")
    assert f", in line {line} of the script" in printed
    assert "restart 2, rank" not in printed


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_restart_without_the_steps_that_are_left_is_no_run(script: Path) -> None:
    script.write_text(CHANGES)
    options = ["--parallel", "dp=2,sdp=2", "--max-restarts", "1", "--fault", "kill:server1,step=3"]
    status, printed = run(script, *options, arguments=(str(script.parent / "{run}"), ""))
    assert status == 3
    assert "script.py ended after restart 1 before its first step\n" in printed
