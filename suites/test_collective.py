"""What do collectives get from the circuits, and how soon do they run again when these change?"""

import pytest

from harness.fabrics.rings import BrokenRingError
from harness.measure.collectives import CollectiveCall, doubling


def ring_of(collectives, plan):
    try:
        return collectives.ranks(plan)
    except BrokenRingError as error:
        pytest.skip(f"plan {plan.name}: {error}")


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_bandwidth(collectives, fabric, measure, plan, collective, samples):
    """How much of the line rate is used, by size, where ranks follow the ring of the plan?"""
    ranks = ring_of(collectives, plan)
    if obstacle := collectives.obstacle(collective, plan):
        pytest.skip(f"plan {plan.name}: {obstacle}")
    measure.bring_up(plan)
    collectives.route(plan)
    sizes = tuple(doubling(1 << 16, collectives.largest, factor=4))
    call = CollectiveCall(collective, ranks, sizes, warm_up=1, iterations=min(samples, 20))
    measure.collective(collectives.runner, call, plan)
    measure.judge("collective")


def test_under_reconfiguration(collectives, measure, transition, samples):
    """Does traffic survive a change of circuits, and when has it its bandwidth again?"""
    traffic = collectives.traffic
    if traffic is None:
        pytest.skip("what runs collectives here cannot keep one going")
    plans = transition.before, transition.after
    rings = {plan: ring_of(collectives, plan) for plan in plans}
    measure.bring_up(plans[0])
    collectives.route(plans[0])
    for index in range(min(samples, 5)):
        before, after = plans if index % 2 == 0 else plans[::-1]
        measure.recovery(traffic, rings[before], (before, after), collectives.route, size=1 << 20)
    measure.judge("recovery")
