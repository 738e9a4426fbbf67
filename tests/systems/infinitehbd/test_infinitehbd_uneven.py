"""InfiniteHBD on a fat-tree of ToRs of 3 nodes and domains of 5 ToRs, with uneven failures."""

import numpy as np
import pytest
from uneven import COLUMNS, LINES

from lightrig.harness.systems.infinitehbd.planning.placement import orchestrate, place, place_on
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    RowWiring,
    k_hop,
)
from lightrig.testbeds import Circuit

TREE = FatTree(nodes=2 * LINES * COLUMNS, per_tor=LINES, per_domain=LINES * COLUMNS)


def faulty(nodes, *failed):
    mask = np.zeros(nodes, dtype=bool)
    mask[list(failed)] = True
    return mask


def test_sizes_and_order_of_an_oblong_tree():
    assert (TREE.domains, TREE.sublines, TREE.subline_length, TREE.constraints) == (2, 6, 5, 8)
    assert TREE.order().tolist() == [first + 3 * tor for first in range(3) for tor in range(10)]
    assert TREE.tor(np.array([2, 3, 29])).tolist() == [0, 1, 9]
    for wrong in ((30, 4, 15), (30, 3, 20), (0, 3, 15), (30, 0, 15)):
        with pytest.raises(InfiniteHbdError, match="expected a multiple of"):
            FatTree(*wrong)


def test_groups_of_sublines_and_of_domains():
    """Groups of 2 of a line of 30, of which the eighth position, node 3 * 7, has failed.

    Parted after 5, 10 and 15: 5 + 4 + 5 + 15 nodes make 2 + 2 + 2 + 7 groups.
    """
    mask = faulty(30, 21)
    rows = [place_on(TREE, mask, 2, 2, kept) for kept in range(9)]
    assert [len(row.groups) for row in rows] == [14, 14, 14, 13, 13, 12, 12, 12, 12]
    assert [row.constraints for row in rows] == list(range(9))
    # Without constraints the line is walked in pairs, past the failed position.
    assert rows[0].groups[:4].tolist() == [[0, 3], [6, 9], [12, 15], [18, 24]]
    # One sub-line of five leaves its last node out; a second one begins at position 5.
    assert rows[1].groups[:4].tolist() == [[0, 3], [6, 9], [15, 18], [24, 27]]
    assert rows[8].groups[:4].tolist() == [[0, 3], [6, 9], [15, 18], [24, 27]]
    with pytest.raises(InfiniteHbdError, match="expected 0 to 8"):
        place_on(TREE, mask, 2, 2, 9)
    with pytest.raises(InfiniteHbdError, match="29 states of 30 nodes"):
        place_on(TREE, mask[1:], 2, 2, 0)


def test_the_most_constraints_for_a_number_of_groups():
    mask = faulty(30, 21)
    kept = {wanted: orchestrate(TREE, mask, 2, 2, wanted) for wanted in (12, 13, 14, 15)}
    assert {wanted: found and found.constraints for wanted, found in kept.items()} == {
        12: 8,
        13: 4,
        14: 2,
        15: None,
    }
    assert len(kept[13].groups) == 13


def test_an_aligned_domain_gives_up_its_tors_with_a_failure():
    """Node 4 is the second of ToR 1: with all constraints ToR 1 is given up, here in domain 0."""
    mask = faulty(30, 4)
    aligned = place_on(TREE, mask, 4, 1, 7)
    used = set(aligned.groups.ravel().tolist())
    assert not used & {3, 4, 5}
    # Of domain 0 ToRs 2, 3 and 4 are left, three in a row: no group of four.
    assert used == {first + 3 * tor for first in range(3) for tor in range(5, 9)}
    free = place_on(TREE, mask, 4, 1, 0)
    assert [0, 3, 6, 9] in free.groups.tolist()
    assert len(free.groups) == 11 // 4 + 18 // 4  # position 11 parts the line
    assert len(place_on(TREE, mask, 4, 2, 0).groups) == 29 // 4


def test_a_ring_with_unlike_parts_begins_after_a_break():
    """Of 11 nodes 2, 3 and 7 have failed: parts of 3 and of 5, the second across the end."""
    mask = faulty(11, 2, 3, 7)
    assert place(mask, 3, 1, closed=True).tolist() == [[4, 5, 6], [8, 9, 10]]
    assert place(mask, 5, 1, closed=True).tolist() == [[8, 9, 10, 0, 1]]
    assert place(mask, 3, 1).tolist() == [[4, 5, 6], [8, 9, 10]]
    assert place(mask, 2, 1, closed=True).tolist() == [[4, 5], [8, 9], [10, 0]]
    assert place(mask, 2, 2, closed=True).tolist() == [[4, 5], [6, 8], [9, 10], [0, 1]]
    assert place(faulty(3, 0, 1, 2), 2, 1).shape == (0, 2)
    for size, reach in ((0, 1), (1, 0)):
        with pytest.raises(InfiniteHbdError, match="expected 1 or more"):
            place(mask, size, reach)


def test_paths_of_a_group_with_unlike_hops():
    """Hops of 1 and 2 on five nodes in a line: 0 to 1 by the main link, 1 to 3 by the backup."""
    wiring = k_hop(5, 2)
    assert bundles(wiring) == ((1, 2), (-1, -2))
    taken, joined = paths(wiring, np.array([[0, 1, 3]]))
    assert joined.tolist() == [True]
    loop, main, backup = Path.LOOPBACK, Path.EXTERNAL_1, Path.EXTERNAL_2
    assert taken.tolist() == [
        [main, loop],
        [backup, main],
        [loop, loop],
        [loop, backup],
        [loop, loop],
    ]
    assert bundles(RowWiring(9, (1, 3, 4), closed=True)) == ((1, 3), (-1, -3), (4, -4))
    assert circuits(Path.EXTERNAL_1, 3) == {Circuit(1, 4), Circuit(2, 7), Circuit(3, 10)}


def test_links_of_a_line_and_of_a_ring_of_unlike_hops():
    line, ring = RowWiring(5, (1, 3)), RowWiring(7, (1, 3), closed=True)
    inside = {(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (1, 4)}
    assert set(map(tuple, line.links().tolist())) == inside
    assert [line.neighbour(node, 3) for node in range(5)] == [3, 4, None, None, None]
    assert [line.neighbour(node, -1) for node in range(3)] == [None, 0, 1]
    assert (len(ring.links()), ring.neighbour(1, -3), ring.reach) == (14, 5, 3)
    for wrong in ((6, (1, 3), True), (0, (1,), False), (9, (2, 3), False), (9, (1, 3, 2), False)):
        with pytest.raises(InfiniteHbdError, match="expected"):
            RowWiring(*wrong)
