"""Two regions, each with a controller, under tensor, pipeline, data and expert parallelism."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.jobs.training import RESULTS, TrainingRequest
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.measurements.train_script import train
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import load

SCRIPT = Path(__file__).parents[3] / "examples" / "train_moe_3d.py"
STEPS, LAYERS, EVALUATIONS = 3, 2, 2
OPTIONS = (
    "--tp=2", "--pp=2", "--ep=3", f"--steps={STEPS}", f"--layers={LAYERS}", "--evaluate=2",
    "--recompute", "--tokens=512", "--width=64", "--seed=4",
)  # fmt: skip
DEGREES = {"tp": 2, "pp": 2, "ep": 3}


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    """Two switches with three servers of two GPUs each: 12 ranks on six servers."""
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "regions.yaml"
    path.write_text(render(3, 2, 1, 1, 2, namespaces=True), "utf-8")
    bench = bind(load(path), "simulated", seed=1)
    try:
        fabric = Fabric(bench)
        yield fabric
        fabric.restore()
    finally:
        bench.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_expert_parallelism_alone_moves_circuits(fabric: Fabric) -> None:
    """Of three servers with a port each one pair has a circuit at a time, which its gates choose.

    A pass has two all-to-alls a layer, its gradients two more, and layers run again as many. Each
    rank of a stage has the replicas of its part of the tensors for what data parallelism adds up.
    """
    source = SCRIPT.read_text("utf-8").replace(
        "import torch\n", "import torch\ntorch.set_num_threads(1)\n", 1
    )
    request = TrainingRequest(source, SCRIPT.name, OPTIONS, DEGREES, "default", RESULTS)
    found = train(fabric, request, lambda part, rank, line: None)
    # A loss on each rank of the last stage, in each step.
    assert (found.comparison.count, found.comparison.different) == (6 * STEPS, ())
    assert [region.switch for region in found.regions] == ["ocs0", "ocs1"]
    for region in found.regions:
        assert (region.ranks, region.groups, region.layers) == (6, 2, LAYERS)
        assert region.exchanges == 2 * LAYERS * (3 * STEPS + EVALUATIONS)
        assert region.again == 2 * LAYERS * STEPS
    assert any(region.changes for region in found.regions)
    kinds = {(each.kind, each.members): each.groups for each in found.packets}
    assert kinds[("allreduce", 3)] == 4
    assert kinds[("send", 2)] == kinds[("recv", 2)] == 6
    # A circuit may carry some bytes of TCP before its first all-to-all.
    circuits = [link for link in found.links if link.source and link.sink]
    busy = [link for link in circuits if link.planned > 100_000]
    assert len(busy) >= 4
    for link in busy:
        assert link.off < 0.01, str(link)
    assert all(link.counted < 1000 for link in circuits if not link.planned)
