"""Links that are brought up before a measurement, from any circuits that were there."""

from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import UNNOTICED, LinkObservation
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Plan, load


@pytest.mark.long
def test_a_port_that_receives_the_same_light_as_before_is_not_waited_for() -> None:
    """In the kernel each direction has its carrier; a lost one is waited for up to 10 s."""
    if reason := kernel.available():
        pytest.skip(reason)
    bench = bind(load(Path("testbeds/namespaces.yaml")), "simulated", 1)
    try:
        fabric, links = Fabric(bench), LinkObservation(bench)
        ring = fabric.plans["ring"]
        bring_up(fabric, links, ring)
        # One port becomes dark, and its partner goes on receiving its light.
        circuits = ring.circuits["ocs"]
        fabric.apply(Plan("half", {"ocs": circuits - {min(circuits)}}))
        links.pause()
        began = bench.clock.now()
        bring_up(fabric, links, ring)
        assert bench.clock.now() - began < UNNOTICED // 2
        links.pause()
    finally:
        bench.close()
