"""Switching time of OCSTrx transceivers, and bypass of a failed server in a ring."""

import importlib.util

import pytest

from lightrig.harness.systems.infinitehbd.measurements.bypass import Collective

pytestmark = pytest.mark.of_system("infinitehbd")

SIZE = 1 << 20
"""Size of an all-reduce in bytes."""

MOST_FAILURES = 10

TEMPERATURES_C = (-5, 25, 50, 75)
"""Temperatures of the paper's test of its transceivers (§5.1)."""

GATES = 6
"""Number of gates that gives a median an interval."""


@pytest.mark.of_testbed("infinitehbd")
@pytest.mark.limits("path_change")
@pytest.mark.parametrize("session", ["written", "preloaded"])
def test_switch_time(measure, measure_path_changes, transition, power_meter, samples, session):
    """Between two paths, by a meter's fast log (§5.1), with and without preloading (App. G.1)."""
    plans = transition.before, transition.after
    measure_path_changes(power_meter, plans, session, samples)
    measure.judge("path_change")


@pytest.mark.of_testbed("infinitehbd")
@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, ids="T={}C".format, scope="session")
def test_bits_on_the_crossed_lanes(
    measure,
    hold_temperature,
    bit_error_counter,
    bit_error_tester,
    attenuator,
    climate_chamber,
    temperature_c,
):
    """Bit errors of lanes that the loopback crosses over to the other half."""
    hold_temperature(climate_chamber, temperature_c)
    errors = bit_error_counter(bit_error_tester, attenuator, channel=2)
    errors.count(GATES)
    errors.over_power(attenuator)
    measure.judge("bit_error_ratio")


def fail_and_rejoin(ring, fabric, bring_up, server, collective=None):
    """One server fails and rejoins; afterwards the circuits are as before."""
    bring_up(fabric.plans["whole"])
    switches = fabric.bench.switches
    before = {name: switch.circuits() for name, switch in switches.items()}
    ring.bypass(server, collective)
    ring.rejoin(server, collective)
    assert {name: switch.circuits() for name, switch in switches.items()} == before


@pytest.mark.of_testbed("infinitehbd5")
def test_the_ring_closes_past_a_failed_server(infinitehbd_ring, fabric, measure, bring_up, samples):
    """Its neighbours take their backup links (§4.2); carriers and datagrams say when these run."""
    servers = infinitehbd_ring.servers
    for index in range(min(samples, MOST_FAILURES)):
        fail_and_rejoin(infinitehbd_ring, fabric, bring_up, servers[index % len(servers)])
    measure.judge("bypass")


@pytest.mark.of_testbed("infinitehbd5")
def test_all_reduces_continue_past_a_failed_server(
    request, infinitehbd_ring, fabric, measure, bring_up, samples
):
    """The same under traffic: its rank ends with it, and the remaining ranks restart."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    collectives = request.getfixturevalue("collectives")
    ring, servers = infinitehbd_ring, infinitehbd_ring.servers
    collective = Collective(collectives.traffic, collectives.route, ring.order, SIZE)
    for index in range(min(samples, MOST_FAILURES)):
        fail_and_rejoin(ring, fabric, bring_up, servers[index % len(servers)], collective)
    measure.judge("bypass")
