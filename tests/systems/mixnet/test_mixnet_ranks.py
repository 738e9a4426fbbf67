"""Servers of several ranks: a mixture of experts on circuits has the losses of torchrun."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig import testbeds
from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.suites.claims.mixnet.expert_training import overlaps
from lightrig.testbeds import load

ROOT = Path(__file__).parents[3]
MIXNET6 = Path(testbeds.__file__).parent / "mixnet6.yaml"
SCRIPT = "examples/train_moe.py"
GPUS = (2, 1, 2, 1)
LAYERS, STEPS = 2, 3
SMALL = ("--width=16", "--length=16", "--batch=4", "--tokens=64")
OPTIONS = (f"--steps={STEPS}", f"--layers={LAYERS}", *SMALL)
SHORTER = {
    "server[0-5]": "server[0-3]",
    "server[1-5,0]": "server[1-3,0]",
    "eps.[1-6]": "eps.[1-4]",
    "eps.[7-18]": "eps.[5-12]",
}
"""Changes of the file that leave four servers of six."""


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    """Four servers like those of mixnet6, with two, one, two and one GPUs."""
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")
    text = MIXNET6.read_text("utf-8")
    (server,) = re.findall(r"^  server\[0-5\]:\n(?:    .*\n)+", text, re.MULTILINE)
    servers = "".join(
        server.replace("server[0-5]:", f"server{number}:\n    gpus: {{count: {count}}}")
        for number, count in enumerate(GPUS)
    )
    text = text.replace(server, servers)
    for longer, shorter in SHORTER.items():
        text = text.replace(longer, shorter)
    path = tmp_path / "mixnet4.yaml"
    path.write_text(text, "utf-8")
    bench = bind(load(path), "simulated", seed=1)
    try:
        fabric = Fabric(bench)
        yield fabric
        fabric.restore()
    finally:
        bench.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_losses_of_several_ranks_a_server_equal_those_under_torchrun(
    fabric: Fabric, tmp_path: Path
) -> None:
    """Gates choose circuits between four servers, whose six ranks have an expert each."""
    ranks = sum(GPUS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    logs = ["--log-dir", str(tmp_path / "logs"), "--redirects", "3"]
    command = [*torchrun, *logs, SCRIPT, *OPTIONS]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    expected = sorted(
        (int(log.parent.name), line)
        for log in (tmp_path / "logs").glob("*/attempt_0/*/stdout.log")
        for line in log.read_text().splitlines()
    )
    assert [line.split()[1] for _, line in expected] == [*map(str, range(STEPS))] * ranks

    script = Script((ROOT / SCRIPT).read_text("utf-8"), SCRIPT, OPTIONS)
    training = ExpertTraining(fabric)
    try:
        trained = training.train(script, LAYERS, fabric.plans["uniform"], "predict")
    finally:
        training.close()
    assert trained.losses() == expected
    assert any(change.moved for change in trained.changes)
    assert not overlaps(trained)
    # Four all-to-alls a layer and step, each of the rows of all six ranks.
    assert len(trained.exchanges) == 4 * LAYERS * STEPS
    assert {each.traffic.shape for each in trained.exchanges} == {(ranks, ranks)}
