"""ACOS on groups of unequal sizes, rings in unlike orders, and graphs of unequal degrees."""

import numpy as np
import pytest
from uneven import TREE

from lightrig.harness.systems.acos.planning.expanders import Pair, Splittable, pair_up
from lightrig.harness.systems.acos.planning.optics import FabricError
from lightrig.harness.systems.acos.planning.rings import shifted
from lightrig.harness.systems.acos.planning.selection_control import start_times
from lightrig.harness.systems.acos.planning.server_rings import server_rings

ORDERS = {"A": (0, 1, 2, 3, 4), "B": (0, 2, 4, 1, 3)}


def neighbours(rings, topology, failed=None):
    """Return where the light of both lanes of each server arrives; -1 where nowhere."""
    return rings.fabric.trace(rings.states(topology, failed)).gpus.tolist()


def test_rings_of_five_servers_in_unlike_orders():
    rings = server_rings(ORDERS)
    assert neighbours(rings, "A") == [[1, 4], [2, 0], [3, 1], [4, 2], [0, 3]]
    # Along 0 2 4 1 3: after 0 comes 2, before it 3.
    assert neighbours(rings, "B") == [[2, 3], [3, 4], [4, 0], [0, 1], [1, 2]]


def test_rings_past_a_failed_server_skip_it_in_each_order():
    rings = server_rings(ORDERS)
    past_4 = neighbours(rings, "B", failed=4)
    assert [past_4[n] for n in (0, 1, 2, 3)] == [[2, 3], [3, 2], [1, 0], [0, 1]]
    first = neighbours(rings, "A", failed=0)
    assert [first[n] for n in (1, 2, 3, 4)] == [[2, 4], [3, 1], [4, 2], [1, 3]]
    with pytest.raises(FabricError, match="found ring C without server None"):
        rings.states("C")
    with pytest.raises(FabricError, match="servers 0 to 4"):
        rings.states("A", 5)
    with pytest.raises(FabricError, match="each of 0 to 3 once"):
        server_rings({"A": (0, 1, 2, 3), "B": (0, 1, 2, 2)})
    with pytest.raises(FabricError, match="four servers at least"):
        server_rings({"A": (0, 1, 2)})


def test_collectives_start_with_the_latest_of_their_group_alone():
    """Groups of 3 and 2, then of 1 and 4; the second server changes once more often."""
    groups = {"X": ((0, 1, 2), (3, 4)), "Y": ((0,), (1, 2, 3, 4))}
    programs = [["X", "Y"], ["X", "Y"], ["X", "Y"], ["X", "Y"], ["X", "Y"]]
    compute = [[5, 1], [9, 2], [4, 40], [3, 6], [7, 30]]
    starts = start_times(groups, programs, compute, delay_ns=100)
    # X: 109 and 107. Y: server 0 at 109 + 101; the others with the third, at 109 + 140.
    assert starts == [[109, 210], [109, 249], [109, 249], [107, 249], [107, 249]]
    barrier = start_times(groups, programs, compute, delay_ns=100, barrier=True)
    assert barrier == [[109, 249]] * 5
    same = start_times(groups, [["X", "X"]] * 5, compute, delay_ns=100)
    assert same == [[109, 149], [109, 149], [109, 149], [107, 137], [107, 137]]


def test_ranks_shift_by_one_node_towards_the_backup():
    assert shifted(8, 2) == (0, 1, 3, 4, 5, 6, 7, 8)
    assert shifted(8, 2, left=True) == (8, 0, 1, 3, 4, 5, 6, 7)
    assert shifted(8, 0) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert shifted(8, 0, left=True) == (8, 1, 2, 3, 4, 5, 6, 7)
    # TP 4: nodes 0 to 3 shift left, 4 to 7 right, whatever is asked for.
    assert shifted(4, 1, left=True) == (8, 0, 2, 3, 4, 5, 6, 7)
    assert shifted(4, 6) == (0, 1, 2, 3, 4, 5, 7, 8)
    assert shifted(4, 8) == tuple(range(8))


def test_pairs_of_a_tree_keep_the_degree_of_each_node():
    """Four links of a tree on 0 to 4 with degrees 1, 3, 1, 2, 1, and four of another on 5 to 9."""
    other = [(9, 5), (9, 6), (9, 7), (9, 8)]
    pairs = pair_up(TREE, other, np.random.default_rng(5))
    assert [(pair.a, pair.c) for pair in pairs] == list(TREE)
    assert {frozenset((pair.b, pair.d)) for pair in pairs} == set(map(frozenset, other))
    whole = Splittable(10, ((0, 4),), pairs)
    assert len(set(map(frozenset, whole.merged))) == 9
    for links in (whole.merged, whole.split):
        degrees = [sum(node in link for link in links) for node in range(10)]
        assert degrees == [2, 3, 1, 2, 2, 1, 1, 1, 1, 4]
    assert all((a < 5) != (b < 5) for a, b in whole.merged[1:])
    assert all((a < 5) == (b < 5) for a, b in whole.split)
    assert Splittable(4, (), (Pair(0, 1, 2, 3),)).merged == ((0, 2), (1, 3))


def test_links_that_would_be_double_are_refused():
    """Three times one link on either side: only two pairs of it differ."""
    with pytest.raises(FabricError, match="no pairing of 3 links"):
        pair_up([(0, 1)] * 3, [(2, 3)] * 3, np.random.default_rng(1))
