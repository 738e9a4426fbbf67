"""A mixture of experts whose circuits change between its layers, behind computation.

Real ranks of PyTorch, one in each namespace of `testbeds/mixnet6.yaml`; their all-to-alls cross
circuits of a simulated switch, or Ethernet. examples/train_moe.py is plain PyTorch. Whether
circuits pay depends on the gate, so ratios are recorded and no test requires one.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.harness.systems.mixnet.planning.calendar import LayerTimes, calendar
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script
from lightrig.suites.claims.mixnet.expert_training import (
    loss_rows,
    median_ratio,
    overlaps,
    ratio_row,
    step_figures,
    training_rows,
)

pytestmark = [pytest.mark.of_system("mixnet"), pytest.mark.of_testbed("mixnet6")]

SCRIPT = Path(__file__).parents[2] / "examples" / "train_moe.py"
LAYERS, STEPS = 2, 7
NETWORKS = {"packet": "packet", "uniform": "uniform", "following": "uniform"}
"""The plan with which a run on each network begins."""


@pytest.fixture(scope="module")
def experts(bench, links) -> Iterator[ExpertTraining]:
    """One rank on each server, with PyTorch loaded."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    links.pause()
    fabric = Fabric(bench)
    training = ExpertTraining(fabric)
    yield training
    training.close()
    fabric.restore()


@pytest.mark.parametrize("gate", range(1, 9), ids="gate-{}".format)
def test_circuits_follow_the_layers(experts, bench, measure, gate):
    """Losses equal those under Gloo alone to the last bit, and no circuit moves under traffic.

    Changes are those of the calendar, twice a layer and less for the first and the last (B.2).
    """
    arguments = ("--steps", str(STEPS), "--layers", str(LAYERS), "--seed", str(gate))
    script = Script(SCRIPT.read_text("utf-8"), SCRIPT.name, arguments)
    found = {
        name: experts.train(
            script, LAYERS, bench.testbed.plans[plan], "predict" if name == "following" else None
        )
        for name, plan in NETWORKS.items()
    }
    at = bench.clock.now()
    for name, trained in found.items():
        measure.record(training_rows(trained, at, {"network": name}))
    following = step_figures(found["following"])
    for name in ("packet", "uniform"):
        compared = step_figures(found[name])
        for quantity, over, under in (
            ("experts.exchange_speedup", compared.exchanges, following.exchanges),
            ("experts.step_speedup", compared.steps, following.steps),
        ):
            ratio = median_ratio(over, under)
            assert not isinstance(ratio, NotEnough)
            measure.record([ratio_row(quantity, ratio, at, {"against": name})])
    alone = experts.session.run(script, PrintedLines())
    printed = TrainedExperts(alone.printed, (), (), ()).losses()
    measure.record(loss_rows(found["following"], found["packet"], at))
    assert len(printed) == STEPS * len(bench.testbed.servers)
    for trained in found.values():
        assert trained.losses() == printed
    changes = found["following"].changes
    planned = list(calendar(LAYERS, LayerTimes(0, 0, 0, 0), 0, "predict"))
    assert [(one.step, one.layer, one.before) for one in changes] == [
        (step, one.layer, one.before) for step in range(STEPS) for one in planned
    ]
    assert any(one.moved for one in changes)
    assert not overlaps(found["following"])
    measure.judge("experts")
