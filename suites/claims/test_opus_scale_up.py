"""Tensor, data and pipeline parallelism on two photonic rails: the same losses as on a mesh.

Eight ranks of PyTorch in four namespaces, two on each as on servers of two GPUs. Tensor parallelism
stays within a server, on its scale-up network, and asks for no circuit (Opus Alg. 1). The script is
plain PyTorch, built as TorchTitan builds it (examples/train_llama_3d.py).
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric
from lightrig.harness.record import Row
from lightrig.harness.systems.opus.measurements.training import losses, rows
from lightrig.harness.systems.opus.runtime.on_fabric import fitting_job
from lightrig.harness.systems.opus.runtime.training import TrainingJob
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.suites.claims.opus import rewiring as opus
from lightrig.suites.claims.opus.auditor import audit

pytestmark = [pytest.mark.of_system("opus"), pytest.mark.of_testbed("rails4x2")]

SCRIPT = Path(__file__).parents[2] / "examples" / "train_llama_3d.py"
STEPS = 4
MODES = ("default", "provisioning")


@pytest.fixture(scope="module")
def job(bench, links) -> Iterator[TrainingJob]:
    """The ranks, with PyTorch loaded."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    links.pause()
    fabric = Fabric(bench)
    made = TrainingJob(fabric, fitting_job(bench.testbed, "llama"))
    yield made
    made.close()
    fabric.restore()


@pytest.fixture(scope="module")
def script() -> Script:
    return Script(SCRIPT.read_text("utf-8"), SCRIPT.name, ("--steps", str(STEPS)))


@pytest.fixture(scope="module")
def tables(job, script):
    """Every rank's phase table, by profiling on the giant rings."""
    return job.profile(script)[0]


@pytest.fixture(scope="module")
def native(job, script):
    """The same script on a mesh, without the control plane."""
    return job.on_plan(script, job.fabric.plans["mesh"])


def lines(trained):
    """Lines that each rank has printed: losses and gradient norms, in full."""
    return {rank: [line for _, line in printed] for rank, printed in trained.printed.items()}


@pytest.mark.parametrize("mode", MODES)
def test_losses_are_those_of_a_mesh(job, script, tables, native, mode, measure):
    """Losses and gradient norms equal those of the mesh to the last bit: all sums are of two."""
    trained = job.train(script, tables, mode)
    about = {"network": "rails", "mode": mode, "parallelism": "TP 2 x DP 2 x PP 2"}
    measure.record([*rows(trained, about), *opus.rows(trained.rails.journal)])
    measure.record(
        Row(
            f"rank {here.rank}",
            "training.loss_off_mesh",
            *(3 * (abs(here.value - there.value),)),
            "1",
            here.at.earliest,
            about,
        )
        for here, there in zip(losses(trained), losses(native), strict=True)
    )
    assert lines(trained) == lines(native)
    assert len(losses(trained)) == STEPS * 4  # the last stage: two replicas of two tensor ranks
    events = trained.rails.journal.events
    assert not list(map(str, audit(events, trained.found, job.on_fabric.cabled_ports())))
    assert not trained.rails.journal.incidents


def test_tensor_parallelism_asks_for_no_circuit(job, script, tables):
    """No operation of the phase tables is of a tensor-parallel group, and the rails are alike."""
    groups = job.job.groups
    within = [set(group.ranks) for group in groups.values() if not group.name.startswith("r")]
    assert not within
    for first, second in zip(tables[::2], tables[1::2], strict=True):
        shapes = [[one.dimension for one in table.operations] for table in (first, second)]
        assert shapes[0] == shapes[1]
        for table in (first, second):
            for operation in table.operations:
                servers = {rank // job.job.rails for rank in groups[operation.group].ranks}
                assert len(servers) > 1
