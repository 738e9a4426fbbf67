"""Topology selection by low-radix switches, without a controller (ACOS)."""

import itertools

import pytest

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
