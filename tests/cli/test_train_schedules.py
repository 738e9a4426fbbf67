"""`lightrig train` with each schedule of PyTorch's pipelines: the losses are those of torchrun."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from lightrig.instruments.namespaces import namespaces as kernel

SCRIPT = "examples/train_pipeline.py"
LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4")
STEPS = 4


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """PyTorch, on a machine that makes namespaces."""
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replicas", [2, 1], ids="{}-replicas".format)
@pytest.mark.parametrize(
    "schedule",
    ["GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"],
)
def test_losses_of_a_schedule_equal_those_under_torchrun(
    tmp_path: Path, schedule: str, replicas: int
) -> None:
    """On two ranks with two replicas, whose circuits change, and on the ring of four ranks."""
    script = [SCRIPT, "--schedule", schedule, "--replicas", str(replicas), "--steps", str(STEPS)]
    logs = ["--log-dir", str(tmp_path), "--redirects", "3"]
    subprocess.run([*TORCHRUN, *logs, *script], check=True, capture_output=True, text=True)
    expected = {
        int(log.parent.name): lines
        for log in tmp_path.glob("*/attempt_0/*/stdout.log")
        if (lines := log.read_text().splitlines())
    }

    stages = 4 // replicas
    command = [*LIGHTRIG, "train", "testbeds/rails4.yaml", "--instruments", "simulated", "--json"]
    command += ["--parallel", f"pp={stages},dp={replicas}", "--", *script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = defaultdict(list)
    for rank, line in re.findall(r"^\[on circuits, rank (\d)\] (.*)$", done.stderr, re.MULTILINE):
        printed[int(rank)].append(line)
    assert printed == expected
    # Each replica has one rank with the last stage: the first one's where stages form a V.
    first = 0 if schedule in {"ZBVZeroBubble", "DualPipeV"} else 4 - replicas
    assert {*expected} == {*range(first, first + replicas)}
    assert [line.split()[1] for line in expected[first]] == [*map(str, range(STEPS))]
    # To the gradients of replicas and back.
    assert json.loads(done.stdout)["phases"] == (2 if replicas > 1 else 0)
