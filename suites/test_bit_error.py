"""Bit error ratios by received power and temperature."""

import pytest

from lightrig.harness.measure.bit_errors.setup import NoCountersError
from lightrig.harness.measure.signal_quality import NoDiagnosticsError

TEMPERATURES_C = (-5, 25, 50, 75)
"""Temperatures of InfiniteHBD's test of its transceivers (§5.1)."""

CHANGES = 4
"""Number of reconfigurations around which errors are counted, for a minute each."""

GATES = 6
"""Number of gates that gives a median an interval."""


CMIS_BPS = 200e9
"""Rate from which on NIC ports take transceivers of the form factors that CMIS is for."""


def lacks_cmis(testbed):
    """The reason for which no NIC port can have a CMIS transceiver, or nothing."""
    rates = [nic.rate_bps for server in testbed.servers.values() for nic in server.nics.values()]
    return "" if max(rates, default=0) >= CMIS_BPS else "no NIC of 200 Gb/s or more"


def lacks_test_mode(testbed):
    """The reason for which a NIC port cannot be set to send a test pattern, or nothing."""
    without = [str(spec.port) for spec in testbed.nic_ports if spec.rdma is None]
    return f"no `rdma:` device of {', '.join(without)}" if without else ""


def test_as_it_is(measure, bit_error_counter, bit_error_tester, attenuator):
    """Bit error ratio of every gate, without attenuation."""
    bit_error_counter(bit_error_tester, attenuator).count(GATES)
    measure.judge("bit_error_ratio")


def test_until_decided(measure, bit_error_counter, bit_error_tester, attenuator):
    """The same, counting until the verdict is decided."""
    bit_error_counter(bit_error_tester, attenuator).until_decided()
    measure.judge("bit_error_ratio")


def test_over_received_power(measure, bit_error_counter, bit_error_tester, attenuator):
    """Sensitivity, and the error floor that more power does not improve."""
    bit_error_counter(bit_error_tester, attenuator).over_power(attenuator)
    measure.judge("sensitivity")


@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, ids="T={}C".format, scope="session")
def test_errors_by_temperature(
    measure,
    hold_temperature,
    bit_error_counter,
    bit_error_tester,
    attenuator,
    climate_chamber,
    temperature_c,
):
    """Bit error ratio and sensitivity by temperature."""
    hold_temperature(climate_chamber, temperature_c)
    errors = bit_error_counter(bit_error_tester, attenuator)
    errors.count(GATES)
    errors.over_power(attenuator)
    measure.judge("bit_error_ratio")


@pytest.mark.parametrize("fec", ["before", "after"])
def test_of_nic_ports(testbed, measure, bring_up, measure_port_errors, nic_ports, fec):
    """Error counters of NIC ports under traffic, before and after FEC."""
    plan = _fullest(testbed)
    ends = {port for link in bring_up(plan, partly=True) for port in (link.a, link.b)}
    try:
        counted = measure_port_errors([port for port in nic_ports if port in ends], fec)
    except NoCountersError as error:
        pytest.skip(str(error))
    for quantity in counted:
        measure.judge(quantity)


def test_frame_loss_of_nic_ports(testbed, measure, bring_up, measure_frame_loss, nic_ports):
    """Frame loss ratio, extrapolated from the symbol errors of code words that FEC corrected."""
    plan = _fullest(testbed)
    ends = {port for link in bring_up(plan, partly=True) for port in (link.a, link.b)}
    try:
        measure_frame_loss([port for port in nic_ports if port in ends])
    except NoCountersError as error:
        pytest.skip(str(error))
    measure.judge("frame_loss_ratio")


@pytest.mark.needs(lacks=lacks_cmis)
def test_signal_quality_of_transceivers(
    testbed, measure, bring_up, measure_signal_quality, transition, samples, nic_ports
):
    """Signal-to-noise ratio and pre-FEC BER of each lane, by the modules, on every new link."""
    for index in range(min(samples, CHANGES)):
        plan = transition.before if index % 2 else transition.after
        ends = {port for link in bring_up(plan, partly=True) for port in (link.a, link.b)}
        try:
            measure_signal_quality([port for port in nic_ports if port in ends])
        except NoDiagnosticsError as error:
            pytest.skip(str(error))
    measure.judge("module_signal")


def test_of_nic_ports_around_reconfigurations(
    testbed, fabric, measure, bring_up, measure_errors_around, transition, samples, nic_ports
):
    """Pre-FEC error ratio of each port before and after every change of its circuits."""
    plans = (transition.before, transition.after)
    bring_up(transition.before, partly=True)
    ends = [{port for link in fabric.links(p) for port in (link.a, link.b)} for p in plans]
    ports = [port for port in nic_ports if all(port in each for each in ends)]
    if not ports:
        pytest.skip(f"no NIC port of testbed {testbed.name} has a link in both plans")
    try:
        for index in range(min(samples, CHANGES)):
            counted = measure_errors_around(plans[(index + 1) % 2], ports)
    except NoCountersError as error:
        pytest.skip(str(error))
    for quantity in counted:
        measure.judge(quantity)


@pytest.mark.needs(lacks=lacks_test_mode)
def test_of_nic_ports_by_pattern(testbed, fabric, measure, measure_pattern_errors, nic_ports):
    """The same without FEC and traffic: NICs send each other a test pattern."""
    plan = _fullest(testbed)
    fabric.apply(plan)
    measure_pattern_errors(
        [link for link in testbed.links(plan) if {link.a, link.b} <= set(nic_ports)]
    )
    measure.judge("nic_error_ratio.pattern")


def _fullest(testbed):
    """The plan with the most links."""
    plan = max(testbed.plans.values(), key=lambda each: len(testbed.links(each)), default=None)
    if plan is None or not testbed.links(plan):
        pytest.skip(f"no plan of testbed {testbed.name} links two NICs")
    return plan
