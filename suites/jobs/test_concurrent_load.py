"""All links of a plan at once and both ways: which lose rate by others, and what they share."""

import pytest


@pytest.fixture
def widest_plan(fabric):
    """Return the plan with the most links, the first of the file among equals."""
    plan = max(fabric.plans.values(), key=lambda one: len(fabric.links(one)), default=None)
    if plan is None or not fabric.links(plan):
        pytest.skip("no plan of the testbed has links")
    return plan


def _fail_where_limits_are_shared(found):
    """Fail where links lose; each finding has their rates."""
    if found.sets:
        sets = "; ".join(", ".join(map(str, one.flows)) for one in found.sets)
        pytest.fail(f"these lose rate at once: {sets}", pytrace=False)
    if found.alike:
        pytest.fail("all links lose rate at once: all of them, or the bench", pytrace=False)


def test_datagrams(bring_up, measure, measure_concurrent_datagrams, widest_plan):
    """Datagrams in each direction alone and in all at once."""
    bring_up(widest_plan, partly=True)
    _fail_where_limits_are_shared(measure_concurrent_datagrams(widest_plan))
    measure.judge("datagrams")


def test_rdma(bring_up, measure, measure_concurrent_rdma, widest_plan):
    """RDMA in each direction alone and in all at once."""
    bring_up(widest_plan, partly=True)
    _fail_where_limits_are_shared(measure_concurrent_rdma(widest_plan))
    measure.judge("rdma.concurrent_share")
