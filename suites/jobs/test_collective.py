"""Bandwidth of collectives over circuits, and recovery when circuits change."""

import pytest

from lightrig.harness.jobs.bench.collectives import without_collective, without_traffic
from lightrig.harness.jobs.measure.collectives.sweep import doubling
from lightrig.instruments.jobs.core.collectives import CollectiveCall

pytestmark = pytest.mark.needs(whole_plans=True)

MS = 1_000_000

TRAFFIC_BEFORE, TRAFFIC_AFTER = 400 * MS, 1_000 * MS
"""Duration of all-reduces before and after a change of circuits; one more always follows."""

MOST_EVENTS = 6
"""Number of events, or of repetitions, that gives a median an interval."""


def lacks_links(testbed, collective, plan):
    """Return why a collective cannot run over the links of a plan; empty where it can."""
    return without_collective(testbed, collective, plan)


def lacks_traffic(testbed, transition):
    """Return why no all-reduces run through a change of plans; empty where they do."""
    return (
        without_traffic(testbed)
        or without_collective(testbed, "all_reduce", transition.before)
        or without_collective(testbed, "all_reduce", transition.after)
    )


@pytest.mark.needs(lacks=lacks_links)
@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_bandwidth(
    collectives, fabric, measure, bring_up, measure_collective, plan, collective, samples
):
    """Share of the line rate by message size, where ranks follow the ring of the plan."""
    ranks = collectives.ranks(plan)
    bring_up(plan)
    collectives.route(plan)
    sizes = tuple(doubling(1 << 16, collectives.largest, factor=4))
    call = CollectiveCall(collective, ranks, sizes, warm_up=1, iterations=min(samples, MOST_EVENTS))
    measure_collective(collectives.runner, call, plan)
    measure.judge("collective")


@pytest.mark.needs(lacks=lacks_traffic)
def test_under_reconfiguration(
    collectives, measure, bring_up, measure_recovery, transition, samples
):
    """Survival of traffic under a change of circuits, and recovery of its bandwidth."""
    plans = transition.before, transition.after
    rings = {plan: collectives.ranks(plan) for plan in plans}
    bring_up(plans[0])
    collectives.route(plans[0])
    for index in range(min(samples, MOST_EVENTS)):
        before, after = plans if index % 2 == 0 else plans[::-1]
        measure_recovery(
            collectives.traffic,
            rings[before],
            (before, after),
            collectives.route,
            size=1 << 18,
            before=TRAFFIC_BEFORE,
            after=TRAFFIC_AFTER,
        )
    measure.judge("recovery")
