"""Bit errors are counted on NICs of every maker, before and after each reconfiguration."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bit_errors.setup import measure_errors_around, measure_port_errors
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import Port

HOME = Path(__file__).parents[2] / "testbeds"


class Lab:
    """A simulated bench, and what is recorded of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.fabric = Fabric(bench)
        self.links = LinkObservation(bench)
        self.rows: list[Row] = []
        self.recording = Recording(self.rows.extend, bench.testbed.limits)


@pytest.fixture
def lab(simulated: Callable[..., Bench], tmp_path: Path) -> Callable[[str], Lab]:
    def build(driver: str) -> Lab:
        text = (HOME / "opus.yaml").read_text()
        shutil.copytree(HOME / "opus", tmp_path / "opus")
        assert text.count("\n  nic:\n") == 1
        bench = simulated(text.replace("\n  nic:\n", f"\n  nic:\n    driver: {driver}\n"), 0)
        return Lab(bench)

    return build


@pytest.mark.parametrize(
    ("driver", "before", "after"),
    [
        ("mlx5_core", "before_fec", "symbols_after_fec"),
        ("bnxt_en", "before_fec", "codewords_after_fec"),
        ("ice", "codewords_before_fec", "codewords_after_fec"),
        ("ionic", "codewords_before_fec", "codewords_after_fec"),
    ],
)
def test_every_driver_counts_errors_before_and_after_fec(lab, driver, before, after):
    rig = lab(driver)
    port = Port("server0", "nic0.p0")
    bring_up(rig.fabric, rig.links, rig.bench.testbed.plans["east-west"])
    for side, quantity in (("before", before), ("after", after)):
        counted = measure_port_errors(rig.bench, rig.recording, [port], side)
        assert counted == [f"nic_error_ratio.{quantity}"]
    (ratio,) = (row for row in rig.rows if row.quantity == f"nic_error_ratio.{before}")
    assert 0 < ratio.lower < ratio.value < ratio.upper
    assert ratio.conditions["bits"] > 0


def test_errors_are_recorded_before_and_after_each_reconfiguration(lab):
    rig = lab("bnxt_en")
    testbed = rig.bench.testbed
    first, second = list(testbed.plans.values())[:2]
    ends = [
        {port for link in testbed.links(plan) for port in (link.a, link.b)}
        for plan in (first, second)
    ]
    port = min(ends[0] & ends[1])
    bring_up(rig.fabric, rig.links, first)
    for plan in (second, first):
        measure_errors_around(rig.fabric, rig.links, rig.recording, plan, [port])
    ratios = [row for row in rig.rows if row.quantity == "nic_error_ratio.before_fec"]
    assert [row.conditions["moment"] for row in ratios] == [
        "before the reconfiguration",
        "after the reconfiguration",
    ] * 2
    assert len({row.conditions["event"] for row in ratios}) == 4
    assert "moment" not in rig.recording.conditions
    assert any(row.quantity == "reconfiguration.acknowledged" for row in rig.rows)
