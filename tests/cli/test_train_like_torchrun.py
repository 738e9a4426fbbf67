"""`lightrig train` of what scripts ordinarily do: each rank prints the losses of torchrun."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.namespaces import namespaces as kernel

PIPELINE = "examples/train_pipeline.py"
LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4")
STEPS = 4


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """PyTorch, on a machine that makes namespaces."""
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")


def under_torchrun(script: Sequence[str], folder: Path) -> Mapping[int, list[str]]:
    """Return the lines that each of four ranks prints, without those that print none."""
    logs = ["--log-dir", str(folder), "--redirects", "3"]
    subprocess.run([*TORCHRUN, *logs, *script], check=True, capture_output=True, text=True)
    return {
        int(log.parent.name): lines
        for log in folder.glob("*/attempt_0/*/stdout.log")
        if (lines := log.read_text().splitlines())
    }


def on_circuits(
    script: Sequence[str], parallel: str
) -> tuple[Mapping[int, list[str]], Mapping[str, Any]]:
    """Return the lines that each rank prints while circuits follow it, and the answer."""
    command = [*LIGHTRIG, "train", "testbeds/rails4.yaml", "--instruments", "simulated", "--json"]
    command += ["--parallel", parallel, "--", *script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = defaultdict(list)
    for rank, line in re.findall(r"^\[on circuits, rank (\d)\] (.*)$", done.stderr, re.MULTILINE):
        printed[int(rank)].append(line)
    return printed, json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replicas", [2, 1], ids="{}-replicas".format)
@pytest.mark.parametrize(
    "schedule",
    ["GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"],
)
def test_schedules_of_pipelines(tmp_path: Path, schedule: str, replicas: int) -> None:
    """On two ranks with two replicas, whose circuits change, and on the ring of four ranks."""
    options = ["--schedule", schedule, "--replicas", str(replicas), "--steps", str(STEPS)]
    expected = under_torchrun([PIPELINE, *options], tmp_path)
    # Each replica has one rank with the last stage: the first one's where stages form a V.
    first = 0 if schedule in {"ZBVZeroBubble", "DualPipeV"} else 4 - replicas
    assert {*expected} == {*range(first, first + replicas)}
    assert [line.split()[1] for line in expected[first]] == [*map(str, range(STEPS))]

    parallel = f"pp={4 // replicas},dp={replicas}"
    printed, found = on_circuits([PIPELINE, *options], parallel)
    assert printed == expected
    # To the gradients of replicas and back.
    assert found["phases"] == (2 if replicas > 1 else 0)


FEATURES = """
import contextlib
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

sharded, backend = sys.argv[1] == "hsdp", sys.argv[2]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 33), nn.GELU(), nn.Linear(33, 20))

    def forward(self, x):
        return x + checkpoint(self.layers, x, use_reentrant=False)

dist.init_process_group("gloo")
torch.manual_seed(3)
model = nn.Sequential(*(Block() for _ in range(3)))
if sharded:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
else:
    model = DistributedDataParallel(model)
run = torch.compile(model, backend=backend) if backend else model
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for step in range(5):
    for part in range(3):
        last = part == 2
        if sharded:
            model.set_requires_gradient_sync(last)
        with contextlib.nullcontext() if last or sharded else model.no_sync():
            loss = run(torch.randn(5, 20)).square().mean() / 3
            loss.backward()
        print(f"loss {loss.item()!r}")
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    whole = norm.full_tensor() if sharded else norm
    print(f"norm loss {whole.item()!r}")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["", "aot_eager"], ids=["eager", "compiled"])
@pytest.mark.parametrize(("kind", "parallel"), [("hsdp", "dp=2,sdp=2"), ("ddp", "dp=4")])
def test_accumulated_and_clipped_gradients_of_recomputed_activations(
    tmp_path: Path, kind: str, parallel: str, backend: str
) -> None:
    """Sums of four replicas may be added in another order than Gloo's, so they are near only."""
    script = tmp_path / "features.py"
    script.write_text(FEATURES)
    expected = under_torchrun([str(script), kind, backend], tmp_path / "logs")
    printed, found = on_circuits([str(script), kind, backend], parallel)
    assert {rank: len(lines) for rank, lines in printed.items()} == dict.fromkeys(range(4), 5 * 4)
    if kind == "hsdp":
        assert printed == expected
    values = [[float(line.split()[-1]) for rank in range(4) for line in each[rank]]
              for each in (printed, expected)]  # fmt: skip
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert (found["phases"] > 0) == (kind == "hsdp")
