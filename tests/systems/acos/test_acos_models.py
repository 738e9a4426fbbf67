"""Control, budgets, costs, availability, expanders and traffic of ACOS."""

import pytest

from lightrig.harness.systems.acos.planning import costs
from lightrig.harness.systems.acos.planning.budgets import (
    TransceiverClass,
    Worst,
    closing_class,
    worst_circuit,
)
from lightrig.harness.systems.acos.planning.exchanges import (
    mesh_edges,
    slowdown,
    torus_edges,
    uniform,
)
from lightrig.harness.systems.acos.planning.expanders import splittable
from lightrig.harness.systems.acos.planning.optics import FabricError, selected
from lightrig.harness.systems.acos.planning.rack import Degrees
from lightrig.harness.systems.acos.planning.rack_plans import configure
from lightrig.harness.systems.acos.planning.selection_control import explore, start_times
from lightrig.suites.claims.acos import availability
from lightrig.suites.claims.acos.claims import rack
from lightrig.suites.claims.acos.expander_hops import diameter_and_mean
from lightrig.suites.claims.acos.performance import (
    MODELS,
    SWITCH,
    FabricTimes,
    iteration_seconds,
    relative_time,
)

ORTHOGONAL = {"H": [(0, 1), (2, 3)], "V": [(0, 2), (1, 3)]}
"""Four servers in two orthogonal pairs of rings."""


@pytest.mark.parametrize("program", [["H", "V", "H"], ["H", "H", "V"], ["V", "V"]])
def test_servers_that_number_collectives_finish_in_every_order(program):
    found = explore(ORTHOGONAL, [program] * 4)
    assert (found.blocked, found.mismatches) == (set(), 0)
    assert found.skew > 0  # no barrier: servers are a collective apart


def test_light_alone_lets_a_server_start_beside_one_that_is_late():
    assert explore(ORTHOGONAL, [["H", "V", "H"]] * 4, numbered=False).mismatches
    # Two changes in a row are needed to come back to a neighbour that has not moved.
    assert not explore(ORTHOGONAL, [["H", "V"]] * 4, numbered=False).mismatches


def test_a_dead_server_blocks_its_collective_and_corrupts_nothing():
    found = explore(ORTHOGONAL, [["H", "V", "H"]] * 4, dead_from={3: 1})
    assert found.blocked == {frozenset(range(4))}
    assert not found.mismatches


def test_a_server_in_the_wrong_order_blocks_and_corrupts_nothing():
    found = explore(ORTHOGONAL, [["H", "V", "H"]] * 3 + [["V", "H", "H"]])
    assert found.blocked
    assert not found.mismatches


def test_a_late_server_delays_its_partners_first():
    starts = start_times(ORTHOGONAL, [["H"]] * 4, [[0], [0], [0], [50]], 8)
    assert starts == [[8], [8], [58], [58]]
    with_barrier = start_times(ORTHOGONAL, [["H"]] * 4, [[0], [0], [0], [50]], 8, barrier=True)
    assert with_barrier == [[58]] * 4


def test_the_darkest_circuit_of_a_resilient_rack_passes_five_switches():
    made = rack("72")
    plan = configure(made, Degrees(8, 4, 2, 16), [3])
    states = selected(made.fabric, plan.states, plan.choice["TP"])
    worst = worst_circuit(made.fabric, [states], metres=0)
    assert worst.depth == 5
    assert worst.loss_db == pytest.approx(2 * 1.55 + 3 * 1.25 + 0.25)
    assert closing_class(worst, 8).name == "ER8"


def test_a_circuit_that_no_transceiver_closes_is_refused():
    with pytest.raises(FabricError, match=r"5 switches loses 7.00 dB, and X closes 6 dB"):
        closing_class(Worst({"1x4": 5}, 5, 7.0), 8, (TransceiverClass("X", 8, 6.0),))
    with pytest.raises(FabricError, match="no class has 4 lanes"):
        closing_class(Worst({"1x4": 5}, 5, 7.0), 4)


@pytest.mark.parametrize(
    ("name", "dollars"),
    [("16", 125.50), ("64", 1495), ("72", 2135.11), ("128", 1495), ("144", 2355.56)],
)
def test_switches_of_a_generated_cluster_cost_what_is_printed(name, dollars):
    assert float(costs.switch_cost(rack(name).fabric)) == pytest.approx(dollars, abs=0.006)


def test_ethernet_tiers_cost_what_the_printed_prices_give():
    found = {n: float(costs.Ethernet(n).cost) for n in (16, 64, 1024, 4096)}
    assert found == {16: 3175, 64: 1768.75, 1024: 4406.25, 4096: 7043.75}


def test_availability_in_closed_form_is_that_of_draws():
    draws = 40_000
    node, _, _ = availability.simulated_failures(0.001, draws, seed=3)
    assert node / draws == pytest.approx(availability.node_fails(0.001), rel=0.25)
    assert availability.pristine(1024, 0.001) == pytest.approx(0.99965, abs=1e-5)
    assert availability.pristine(32_768, 0.001) == pytest.approx(0.98898, abs=1e-5)
    assert availability.group_fails(0.0) == 0


@pytest.mark.parametrize("half", [8, 9])
def test_a_small_expander_splits_into_complete_graphs(half):
    made = splittable(half, seed=4)
    for low in (0, half):
        part = {frozenset(e) for e in made.split if low <= min(e) and max(e) < low + half}
        assert len(part) == half * (half - 1) // 2
    assert diameter_and_mean(2 * half, made.merged)[0] == 2
    assert len({frozenset(e) for e in made.merged}) == len(made.merged)


def test_all_to_all_takes_a_switch_s_time_on_a_mesh_and_more_on_a_torus():
    assert slowdown(range(6), mesh_edges(6), uniform(6)) == pytest.approx(1)
    # A ring of four: each link carries its neighbour's and half of the opposite's traffic.
    assert slowdown(range(4), torus_edges(4), uniform(4)) == pytest.approx(4 / 3)


def test_iteration_times_follow_bandwidth_and_fabric():
    qwen = MODELS["Qwen2-57B"]
    assert relative_time(qwen, SWITCH) == 1
    slow = FabricTimes(1.0, 2.0)
    assert relative_time(qwen, slow, 3.2e12) < relative_time(qwen, slow)
    assert relative_time(MODELS["Llama3-8B"], slow) == 1
    assert iteration_seconds(qwen, FabricTimes(1.0, 1.0, 0.008)) > iteration_seconds(qwen, SWITCH)
