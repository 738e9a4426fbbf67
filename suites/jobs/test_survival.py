"""Effect of a cut of the light on a TCP stream over one link."""

import pytest

from lightrig.harness.jobs.bench.streams import without_streams

pytestmark = pytest.mark.needs(whole_plans=True)

MS = 1_000_000
MOST_EVENTS = 1
"""Cuts of a test: each takes seconds, since the kernel asks for a neighbour once a second."""


def lacks_streams(testbed):
    """Return why no TCP runs over links of the testbed; empty where it does."""
    linked = any(testbed.links(plan) for plan in testbed.plans.values())
    return without_streams(testbed) or ("" if linked else "no plan has a link")


def lacks_longest_cut(testbed):
    """Return why the longest cut is not looked for, which takes minutes; empty where it is."""
    asked = "survival.longest_cut" in testbed.limits
    return lacks_streams(testbed) or ("" if asked else "no limit on survival.longest_cut")


@pytest.mark.needs(lacks=lacks_streams)
@pytest.mark.parametrize("cut", [300 * MS, 1_000 * MS], ids=["300ms", "1s"])
def test_tcp_under_a_cut(fabric, measure, bring_up, measure_survival, samples, cut):
    """A link is cut for a time: the stream on it goes on by itself, with right results."""
    plan = next(each for each in fabric.plans.values() if fabric.links(each))
    links = sorted(fabric.links(plan))
    for number in range(min(samples, MOST_EVENTS)):
        bring_up(plan)
        measure_survival(plan, links[number % len(links)], cut=cut)
    measure.judge("survival")


@pytest.mark.needs(lacks=lacks_longest_cut)
def test_longest_cut(fabric, measure, measure_longest_cut):
    """The longest cut that half of the trials survive, of an all-reduce over plain TCP."""
    measure_longest_cut(next(each for each in fabric.plans.values() if fabric.links(each)))
    measure.judge("survival.longest_cut")
