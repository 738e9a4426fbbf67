"""The flit simulator on cases whose answer is known, and its engines against each other."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import hyperx
from lightrig.suites.claims.railx.compared_networks import (
    COMPARED,
    dependencies,
    hamming_mesh,
    torus_network,
    uniform_bound,
)
from lightrig.suites.claims.railx.deadlock import free_of_deadlock
from lightrig.suites.claims.railx.flit_network import (
    FlitNetwork,
    adaptive_network,
    railx_network,
    ring_network,
)
from lightrig.suites.claims.railx.flits import Load, run, saturation
from lightrig.suites.claims.railx.minimal_routing import minimal_routes, throughput_bound


def two_chips(delay=1):
    """Two chips with a link each way: each is a single server of its queue."""
    shape = np.ones((2, 1), dtype=np.int64)
    return FlitNetwork(
        peers=np.array([[1], [0]]),
        lanes=shape,
        periods=4 * shape,
        delays=delay * shape,
        port=np.array([[-1, 0], [0, -1]], dtype=np.int8),
        channel=np.zeros((2, 2), dtype=np.int8),
        channels=1,
    )


@cache
def small_hyperx(multiple):
    routes = minimal_routes(hyperx(RailFabric(2, 1, 3, 3, 6)))
    bound = throughput_bound(routes.graph, routes.walk().loads, multiple)
    return railx_network(routes, multiple), bound


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_the_wait_for_one_link_is_that_of_a_geometric_queue(rate):
    outcome = run(two_chips(), Load(rate=rate, warm_up=100, cycles=3_000), "numpy")
    # Geo/D/1 with a service of 4 cycles; then a cycle of delay and four flits.
    wait = rate * 3 / (2 * (1 - rate))
    assert outcome.latency == pytest.approx(1 + 4 + wait, rel=0.05)
    assert outcome.throughput == pytest.approx(outcome.offered, rel=0.03)
    assert outcome.lower < rate < outcome.upper


@pytest.mark.parametrize(
    ("buffer", "delay", "credit_delay", "expected"),
    [
        # A packet's round trip: delay, its flits, and the delay of the credit.
        (4, 10, True, 4 / 24),
        (16, 10, True, 16 / 24),
        (16, 10, False, 1.0),
        (4, 10, False, 4 / 14),
        (16, 1, True, 1.0),
    ],
)
def test_credits_limit_a_saturated_link_to_the_buffer_over_the_round_trip(
    buffer, delay, credit_delay, expected
):
    load = Load(4.0, warm_up=120, cycles=480, buffer=buffer, credit_delay=credit_delay)
    outcome = run(two_chips(delay), load, "numpy")
    assert outcome.throughput == pytest.approx(expected, abs=0.005)
    assert outcome.refused > 0.5


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_no_packet_is_lost_or_made_up(rate):
    network, _ = small_hyperx(2)
    outcome = run(network, Load(rate, warm_up=0, cycles=300), "numpy")
    generated = round(outcome.offered * 300 * network.chips / 4)
    accepted = generated - round(outcome.refused * generated)
    assert outcome.packets + outcome.in_flight == accepted
    assert outcome.in_flight > 0


def test_a_saturated_ring_deadlocks_without_a_bubble():
    load = Load(4.0, warm_up=0, cycles=600, credit_delay=False)
    assert run(ring_network(8), load, "numpy").stalled > 300


def test_a_saturated_ring_moves_on_with_a_bubble():
    load = Load(4.0, warm_up=300, cycles=300, credit_delay=False, bubble=True)
    outcome = run(ring_network(8), load, "numpy")
    assert outcome.stalled < 10
    # Four hops on average on links of one flit a cycle.
    assert 0.1 < outcome.throughput <= 1 / 4 + 0.02


@pytest.mark.parametrize("multiple", [1, 2, 4])
def test_a_light_load_arrives_in_full(multiple):
    network, _ = small_hyperx(multiple)
    outcome = run(network, Load(rate=0.1, warm_up=100, cycles=500), "numpy")
    assert outcome.lower <= 0.1 <= outcome.upper
    assert outcome.throughput == pytest.approx(outcome.offered, rel=0.1)
    assert outcome.refused == 0


def test_no_load_exceeds_the_bound_of_the_most_loaded_link():
    network, bound = small_hyperx(2)
    load = Load(0, warm_up=150, cycles=300, credit_delay=False)
    curve = saturation(network, [0.5, 3.0], load, "numpy")
    throughputs = [outcome.throughput for outcome in curve]
    assert throughputs[0] < throughputs[1] <= bound * 1.05
    assert throughputs[1] > 0.6 * bound


@pytest.mark.parametrize("bubble", [False, True])
def test_both_engines_give_the_same_result_to_the_last_packet(bubble):
    network = ring_network(5) if bubble else small_hyperx(2)[0]
    load = Load(rate=1.5, warm_up=30, cycles=90, batches=3, bubble=bubble)
    assert run(network, load, "numpy") == run(network, load, "loops")


@pytest.mark.parametrize("longest", [2, 3, 4])
def test_both_engines_choose_the_same_detours(longest):
    """Chips of a node share one link for all that they send to the next row and column."""
    network = adaptive_network(minimal_routes(hyperx(RailFabric(2, 1, 3, 3, 6))), 2, longest)
    load = Load(rate=2.5, warm_up=30, cycles=90, batches=3, seed=7)
    to = (np.arange(36) + 13) % 36
    found = run(network, load, "numpy", to)
    assert found == run(network, load, "loops", to)
    generated = round(found.offered * 90 * 36 / 4)
    assert 0 < found.packets < generated


def test_a_light_load_takes_no_detour():
    """Where no packet waits, adaptive routes are as long as those of Algorithm 1."""
    fabric = RailFabric(2, 1, 3, 3, 6)
    routes, load = minimal_routes(hyperx(fabric)), Load(0.02, warm_up=0, cycles=1_000)
    table, adaptive = (
        run(network, load, "numpy")
        for network in (railx_network(routes, 4), adaptive_network(routes, 4, 4))
    )
    assert adaptive.packets == table.packets
    assert adaptive.latency == pytest.approx(table.latency, rel=0.03)


def test_fewer_hops_than_the_minimal_route_are_refused():
    with pytest.raises(RailxError, match="at least 2"):
        adaptive_network(minimal_routes(hyperx(RailFabric(2, 1, 3, 3, 6))), 2, 1)


@pytest.mark.parametrize(
    ("network", "bound"),
    [
        # A ring of 2 k chips is crossed k / 2 times the way that has l links a chip.
        (torus_network((8, 8), (2, 2)), 8 * 2 / 8 * 63 / 64),
        (torus_network((8, 4, 4), (2, 1, 1)), 8 * 2 / 8 * 127 / 128),
        # Of each two chips of a row 2/3 leave their board, over two ends.
        (hamming_mesh(2, 3, 2), 2 * 2 / (2 * 24 / 35)),
    ],
)
def test_tori_and_hamming_meshes_carry_what_their_links_allow(network, bound):
    assert uniform_bound(network) == pytest.approx(bound)
    assert free_of_deadlock(dependencies(network))
    joined = Counter(zip(*_ends(network), strict=True))
    assert joined == Counter({(b, a): n for (a, b), n in joined.items()})
    load = Load(bound / 2, warm_up=100, cycles=200, credit_delay=False)
    half, full = (run(network, replace(load, rate=rate), "numpy") for rate in (bound / 2, bound))
    assert half.throughput == pytest.approx(half.offered, rel=0.1)
    assert 0.4 * bound < full.throughput < bound
    assert full.stalled < 10


def _ends(network):
    chip, port = np.nonzero(network.peers >= 0)
    return chip.tolist(), network.peers[chip, port].tolist()


def test_compared_networks_are_of_1296_chips_with_eight_ports():
    for network in (make() for make in COMPARED.values()):
        ports = np.where(network.peers >= 0, network.lanes, 0).sum(axis=1)
        assert (network.senders, {*ports[: network.senders].tolist()}) == (1296, {8})


def test_one_seed_gives_one_result():
    network, _ = small_hyperx(1)
    load = Load(rate=0.7, warm_up=50, cycles=200)
    assert run(network, load, "numpy") == run(network, load, "numpy")


def test_a_packet_that_k_does_not_divide_is_refused():
    routes = minimal_routes(hyperx(RailFabric(2, 1, 3, 3, 6)))
    with pytest.raises(RailxError, match="divisor of 4"):
        railx_network(routes, 3)


def test_loads_that_make_no_sense_are_refused():
    with pytest.raises(RailxError, match="rate"):
        run(two_chips(), Load(rate=5), "numpy")
    with pytest.raises(RailxError, match="too small"):
        run(two_chips(), Load(rate=1, buffer=2), "numpy")
    with pytest.raises(RailxError, match="names its rings"):
        run(two_chips(), Load(rate=1, bubble=True), "numpy")
