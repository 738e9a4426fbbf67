"""Topology selection by low-radix switches, without a controller (ACOS)."""

import itertools
from pathlib import Path

import pytest

from lightrig.instruments.jobs.traffic.training import Script
from lightrig.suites.claims.acos.ring_training import change_rows, losses
from lightrig.testbeds import Circuit, Plan

pytestmark = pytest.mark.of_system("acos")

SAMPLES_OF_PARTS = {
    "part-1x2": ({Circuit(1, 2)}, {Circuit(1, 3)}),
    "part-2x2": ({Circuit(1, 3), Circuit(2, 4)}, {Circuit(1, 4), Circuit(2, 3)}),
}
"""The two states of a switch of each kind, on the bench of `testbeds/acos.yaml`."""

LOG_PERIOD_NS = 10_000
"""A thousand times coarser than 8 ms is fine enough, and a log is 100 ms long."""

MOST_FAILURES = 5

SCRIPT = Path(__file__).parents[2] / "examples" / "train_llama.py"
STEPS = 6
CHANGES_A_STEP = 4
"""Parameters, activations, parameters again, gradients of activations; those of parameters are
reduced on the topology of the next step's first operation."""


@pytest.mark.of_testbed("acos")
@pytest.mark.limits("path_change")
@pytest.mark.parametrize("part", SAMPLES_OF_PARTS)
def test_switching_time(measure, measure_path_changes, power_meter, samples, part):
    """In the fast log of a meter, between both states of one switch of each kind (§2.3, §6)."""
    plans = [
        Plan(f"{part}-{name}", {part: frozenset(circuits)})
        for name, circuits in zip(("first", "second"), SAMPLES_OF_PARTS[part], strict=True)
    ]
    measure_path_changes(power_meter, tuple(plans), "written", samples, period=LOG_PERIOD_NS)
    measure.judge("path_change")


@pytest.mark.of_testbed("acos")
def test_loss_from_transceiver_to_transceiver(fabric, measure, measure_path_losses):
    """Every circuit of every plan, through all its switches; each is lit (§2.1, §3)."""
    for plan in fabric.plans.values():
        found = measure_path_losses(plan)
        assert not found.dark, f"no light: {', '.join(map(str, found.dark))}"
        assert len(found.losses) == len(fabric.testbed.nic_ports)
    measure.judge("path_loss")


@pytest.mark.of_testbed("acos-rings")
def test_servers_select_the_ring_of_each_collective(acos_rings, measure, samples):
    """All-reduces on two rings without a common link, in turn; no barrier, no controller (§4.4)."""
    turns = itertools.cycle(("inner", "outer"))
    program = list(itertools.islice(turns, min(samples, 20)))
    passed = acos_rings.run(program)
    for boundaries in passed.values():
        assert [boundary.topology for boundary in boundaries] == program
        assert all(boundary.switched is not None for boundary in boundaries)
    measure.judge("selection")


@pytest.mark.of_testbed("acos-rings")
def test_a_failed_server_is_bypassed_in_both_rings(acos_rings, measure, testbed, samples):
    """Its neighbours join over skip links, set centrally; the others select as before (§4.3)."""
    for server in itertools.islice(testbed.servers, min(samples, MOST_FAILURES)):
        acos_rings.run(["inner", "outer"])
        passed = acos_rings.fail(server, ["outer", "inner"])
        assert set(passed) == testbed.servers.keys() - {server}
        acos_rings.restore_power()
    measure.judge("selection")


@pytest.mark.of_testbed("acos-train4")
def test_servers_select_the_topology_of_each_operation_of_a_training_script(
    ring_training, measure, testbed
):
    """Losses equal those over a fabric that is never switched, to the last bit (§4.4).

    Servers move their switches where the topology changes, and not for each operation.
    """
    script = Script(SCRIPT.read_text("utf-8"), SCRIPT.name, ("--steps", str(STEPS)))
    native = ring_training.on_one_plan(script)
    found = ring_training.selecting(script)
    measure.record(list(change_rows(found.changes)))
    assert len(losses(found)) == 2 * STEPS
    assert losses(found) == losses(native)
    for rank, server in enumerate(testbed.servers):
        selected = [each.topology for each in found.changes if each.server == server]
        assert selected == ["data", "pipeline"] * (CHANGES_A_STEP // 2 * STEPS) + ["data"]
        assert len(found.operations[rank]) > len(selected)
    measure.judge("selection")
