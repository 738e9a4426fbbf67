"""How many bits are wrong, over how much light, and how warm may it be?"""

import pytest

from harness.measure.bit_errors import NoCountersError

TEMPERATURES_C = (-5, 25, 50, 75)
"""As InfiniteHBD (§5.1) tested its modules."""

GATES = 6
"""As many as give a median an interval."""


def test_as_it_is(measure, bit_error_tester, attenuator):
    """With all the light that there is, does every gate keep the limit?"""
    measure.bit_errors(bit_error_tester, attenuator).count(GATES)
    measure.judge("bit_error_ratio")


def test_until_decided(measure, bit_error_tester, attenuator):
    """The same, counting no longer than it takes to know."""
    measure.bit_errors(bit_error_tester, attenuator).until_decided()
    measure.judge("bit_error_ratio")


def test_over_received_power(measure, bit_error_tester, attenuator):
    """How little light is enough, and is there a floor that no light improves?"""
    measure.bit_errors(bit_error_tester, attenuator).over_power(attenuator)
    measure.judge("sensitivity")


@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, scope="session")
def test_errors_by_temperature(
    measure, bit_error_tester, attenuator, climate_chamber, temperature_c
):
    """Do heat and cold make errors, or take more light?"""
    measure.hold_temperature(climate_chamber, temperature_c)
    errors = measure.bit_errors(bit_error_tester, attenuator)
    errors.count(GATES)
    errors.over_power(attenuator)
    measure.judge("bit_error_ratio")


@pytest.mark.parametrize("fec", ["before", "after"])
def test_of_nic_ports(testbed, measure, nic_ports, fec):
    """Under traffic, what do the ports' own counters count, before FEC and after it?"""
    plan = _fullest(testbed)
    ends = {port for link in testbed.links(plan) for port in (link.a, link.b)}
    measure.bring_up(plan)
    try:
        counted = measure.port_errors([port for port in nic_ports if port in ends], fec)
    except NoCountersError as error:
        pytest.skip(str(error))
    for quantity in counted:
        measure.judge(quantity)


def test_of_nic_ports_by_pattern(testbed, fabric, measure, nic_ports):
    """The same without FEC and without traffic: the NICs send each other a test pattern."""
    plan = _fullest(testbed)
    fabric.apply(plan)
    measure.pattern_errors(
        [link for link in testbed.links(plan) if {link.a, link.b} <= set(nic_ports)]
    )
    measure.judge("nic_error_ratio.pattern")


def _fullest(testbed):
    """The plan with the most links."""
    plan = max(testbed.plans.values(), key=lambda each: len(testbed.links(each)), default=None)
    if plan is None or not testbed.links(plan):
        pytest.skip(f"no plan of testbed {testbed.name} links two NICs")
    return plan
