"""RailX's hierarchical all-reduce with real packets: 3 x 3 nodes of 2 x 2 chips, each a namespace.

A reduce-scatter on each node's mesh, two-dimensional rings of the chips of equal place over the
rails, and an all-gather on the mesh (§4.2, Fig. 11). Results are compared value by value, and what
the ports have sent with what the algorithm sends.
"""

import pytest

from lightrig.harness.systems.railx.runtime.chips import all_reduce_rows

pytestmark = [pytest.mark.of_system("railx"), pytest.mark.of_testbed("railx36")]

SIZE = 144_000
"""Bytes of each chip: every part of it is of whole values."""

ITERATIONS = 3

FRAMES = 1.35
"""Most that headers, acknowledgements and packets sent again may add to the payload."""


@pytest.mark.parametrize("name", ["hyperx", "torus"])
def test_hierarchical_all_reduce_over_mesh_and_rails(chips, fabric, measure, links, name):
    """All sums are right, and rails carry 2/9 of the data of each chip, however it forwards."""
    plan = fabric.plans[name]
    links.pause()
    chips.apply(fabric, plan)
    before = chips.sent()
    found = chips.all_reduce(SIZE, ITERATIONS)
    after = chips.sent()
    measure.record(all_reduce_rows(plan, found))
    assert found.wrong == 0
    sent = {lane: after[lane] - before[lane] for lane in after}
    # A quarter is left after the mesh; of each half 2/3 go there and back in the first dimension,
    # and of the third that is left in the second. Each crosses one rail.
    rails = len(chips.chips) * ITERATIONS * SIZE / 4 / 2 * 2 * (2 / 3 + 2 / 3 / 3)
    for lane in ("x", "y"):
        assert rails <= sent[lane] <= FRAMES * rails, sent
    # On the mesh 3/4 there and back, and each pass of a rail leads over one mesh link beside it.
    inner = len(chips.chips) * ITERATIONS * SIZE * 2 * 3 / 4
    assert inner + 2 * rails <= sent["mesh"] <= FRAMES * (inner + 2 * rails), sent
