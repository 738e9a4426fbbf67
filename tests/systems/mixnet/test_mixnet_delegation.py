"""Twelve ranks on six servers of two GPUs: delegated all-to-alls, with real packets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.measurements.link_bytes import link_bytes
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.suites.claims.mixnet.expert_training import overlaps
from lightrig.testbeds import load

SCRIPT = Path(__file__).parents[3] / "examples" / "train_moe.py"
SERVERS, GPUS, LAYERS, STEPS = 6, 2, 2, 3
RANKS = SERVERS * GPUS
WIDTH, TOKENS = 64, 64
OPTIONS = (
    f"--steps={STEPS}", f"--layers={LAYERS}", f"--width={WIDTH}", f"--tokens={TOKENS}",
    "--length=32", "--batch=16",
)  # fmt: skip

SHARED = 2 * TOKENS * WIDTH + WIDTH + LAYERS * (4 * WIDTH**2 + 3 * WIDTH + RANKS * WIDTH)
"""Parameters of the script that all ranks have: what tokens look like and mean, the last norm, and
of each layer what attention mixes and gives out, two norms, and the gate."""


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "region.yaml"
    path.write_text(render(SERVERS, GPUS, 2, 1, namespaces=True), "utf-8")
    bench = bind(load(path), "simulated", seed=1)
    try:
        fabric = Fabric(bench)
        yield fabric
        fabric.restore()
    finally:
        bench.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_delegated_rows_have_the_losses_of_gloo_and_the_bytes_of_the_plan(fabric: Fabric) -> None:
    """On circuits that stay, each of twelve directed circuits and twelve packet links is compared.

    Packet links also carry the gradients, which Gloo adds up on a ring of the ranks: of each
    server one rank sends to the next server, 2 (n - 1) / n of them a step. And the counts of rows,
    of eight bytes between every two ranks, with two of Gloo's frames.
    """
    source = SCRIPT.read_text("utf-8").replace(
        "import torch\n", "import torch\ntorch.set_num_threads(1)\n", 1
    )
    script = Script(source, SCRIPT.name, OPTIONS)
    training = ExpertTraining(fabric)
    try:
        still = training.train(script, LAYERS, fabric.plans["uniform"], count=True)
        moving = training.train(script, LAYERS, fabric.plans["uniform"], "predict", count=True)
        alone = training.session.run(script, PrintedLines())
    finally:
        training.close()
    expected = TrainedExperts(alone.printed, (), (), ()).losses()
    assert len(expected) == RANKS * STEPS
    assert still.losses() == moving.losses() == expected

    links = link_bytes(fabric.testbed, still.periods)
    circuits = [link for link in links if link.source and link.sink]
    packets = [link for link in links if not (link.source and link.sink)]
    assert (len(circuits), len(packets)) == (2 * SERVERS, 2 * SERVERS)
    for link in circuits:
        assert link.off < 0.01, str(link)
    gradients = STEPS * 4 * SHARED * 2 * (RANKS - 1) / RANKS
    counts = STEPS * LAYERS * GPUS * (RANKS - GPUS) * (8 + 2 * 48)
    (period,) = still.periods
    for link in packets:
        least = link.planned + gradients + counts
        # Queues before the packet switch drop segments, which their sender has counted then.
        again = 1448 * period.again[link.source.owner] if link.source else 0
        assert 0.99 * least < link.counted < 1.01 * (least + again), str(link)

    assert any(change.moved for change in moving.changes)
    assert not overlaps(moving)
    assert len({period.plan.name for period in moving.periods}) > STEPS
    busy = [
        link
        for link in link_bytes(fabric.testbed, moving.periods)
        if link.source and link.sink and link.planned > 100_000
    ]
    assert len(busy) > 4
    for link in busy:
        assert link.off < 0.01, str(link)
