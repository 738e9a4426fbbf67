"""A fabric that follows the light of its changes, in virtual time."""

from lightrig.harness.bench import bind
from lightrig.harness.systems.opus.measurements.training import LitFabric
from lightrig.testbeds import load

MS = 1_000_000


def test_darkness_is_seen_while_that_is_asked_for() -> None:
    bench = bind(load("testbeds/opus.yaml"), "simulated", seed=1)
    fabric = LitFabric(bench)
    before, after, *_ = fabric.plans.values()
    fabric.apply(before)
    assert fabric.dark == []
    with fabric.lit():
        fabric.apply(after)
    moved = after.circuits["ocs"] - before.circuits["ocs"]
    assert {egress for egress, _ in fabric.dark} == {f"ocs.{one.egress}" for one in moved}
    assert all(10 * MS < since.latest - since.earliest < 300 * MS for _, since in fabric.dark)
    bench.close()
