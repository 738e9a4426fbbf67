"""Placement of groups against brute force, against the printed text, and by its invariants."""

import json
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from systems.infinitehbd import infinitehbd_literal as literal

from lightrig.harness.systems.infinitehbd.planning.placement import (
    Placement,
    orchestrate,
    place,
    place_on,
)
from lightrig.harness.systems.infinitehbd.planning.traffic import careless, cross_tor_share, job_of
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    k_hop,
    powers_of_two,
)

FIXTURES = json.loads(
    (
        files("lightrig.suites.claims.infinitehbd") / "data" / "orchestration_fixtures.json"
    ).read_text()
)


def mask(n, faulty):
    found = np.zeros(n, dtype=bool)
    found[list(faulty)] = True
    return found


@st.composite
def rows(draw, most):
    n = draw(st.integers(1, most))
    return mask(n, draw(st.sets(st.integers(0, n - 1))))


@st.composite
def trees(draw):
    """A small fat-tree, its faulty nodes, a group's size that a sub-line holds, and a reach."""
    per_tor, length = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    tree = FatTree(per_tor * length * draw(st.integers(1, 3)), per_tor, per_tor * length)
    faulty = mask(tree.nodes, draw(st.sets(st.integers(0, tree.nodes - 1), max_size=8)))
    return tree, faulty, draw(st.integers(1, length)), draw(st.integers(1, 3))


# -------------------------------------------------------------------------- the line


@settings(max_examples=60, deadline=None)
@given(rows(8), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_no_other_way_makes_more_groups(faulty, size, reach, closed):
    best = literal.most_groups(faulty.size, reach, set(np.flatnonzero(faulty)), size, closed)
    assert len(place(faulty, size, reach, closed=closed)) == best


@given(rows(60), st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_groups_are_healthy_apart_and_joined(faulty, size, reach, closed):
    groups = place(faulty, size, reach, closed=closed)
    assert groups.shape[1] == size
    assert not faulty[groups].any()
    assert np.unique(groups).size == groups.size
    hops = np.diff(groups, axis=1)
    hops = hops % faulty.size if closed else hops
    assert ((hops >= 1) & (hops <= reach)).all()


@given(rows(40), st.integers(1, 5), st.integers(1, 3), st.integers(0, 39))
def test_a_ring_has_no_beginning(faulty, size, reach, turned):
    there = len(place(faulty, size, reach, closed=True))
    assert len(place(np.roll(faulty, turned), size, reach, closed=True)) == there
    assert there >= len(place(faulty, size, reach))


def test_a_run_of_k_faults_parts_the_line_and_a_shorter_one_does_not():
    faulty = mask(10, {3, 4})
    assert place(faulty, 8, 3).tolist() == [[0, 1, 2, 5, 6, 7, 8, 9]]
    assert len(place(faulty, 8, 2)) == 0
    assert place(faulty, 5, 2).tolist() == [[5, 6, 7, 8, 9]]
    assert place(faulty, 7, 2, closed=True).tolist() == [[5, 6, 7, 8, 9, 0, 1]]


# ---------------------------------------------------------------------- the fat-tree


def test_the_order_is_the_text_s_and_not_the_printed_loops():
    tree = FatTree(nodes=16, per_tor=4, per_domain=8)
    order = (tree.order() + 1).tolist()
    assert order[order.index(14) + 1] == 3
    assert order == literal.deployed(16, 4)
    printed = [i + j * 4 + k for i in range(4) for j in range(4) for k in range(4)]
    assert (len(printed), len(set(printed))) == (64, 19)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f"{f['n']}-{len(f['faulty'])}")
def test_other_code_found_as_many_groups_under_every_constraint(fixture):
    tree = FatTree(fixture["n"], fixture["p"], fixture["d"])
    faulty = mask(tree.nodes, np.array(fixture["faulty"]) - 1)
    size, reach = fixture["m"], fixture["K"]
    found = [
        len(place_on(tree, faulty, size, reach, kept).groups)
        for kept in range(tree.constraints + 1)
    ]
    assert found == fixture["groups_by_n_constraints"]
    wanted = -(-fixture["job_gpus"] // (size * fixture["gpus_per_node"]))
    best = orchestrate(tree, faulty, size, reach, wanted)
    assert best.constraints == fixture["best_n_constraints"]


@settings(max_examples=60, deadline=None)
@given(trees(), st.data())
def test_never_below_what_the_printed_search_returns(drawn, data):
    tree, faulty, size, reach = drawn
    bad = {node + 1 for node in np.flatnonzero(faulty).tolist()}
    shape = tree.nodes, tree.per_tor, tree.per_domain, size, reach, bad
    kept = data.draw(st.integers(0, tree.constraints))
    ours = place_on(tree, faulty, size, reach, kept)
    assert {tuple(row) for row in (ours.groups + 1).tolist()} == {*literal.fat_tree(*shape, kept)}
    wanted = data.draw(st.integers(0, tree.nodes // size))
    printed, best = literal.search(*shape, wanted), orchestrate(tree, faulty, size, reach, wanted)
    if printed is not None:
        assert best is not None
        assert best.constraints >= printed[1]
        assert len(best.groups) >= wanted


@settings(max_examples=60, deadline=None)
@given(trees(), st.integers(0, 40))
def test_the_search_finds_what_looking_at_all_finds(drawn, wanted):
    tree, faulty, size, reach = drawn
    counts = [
        len(place_on(tree, faulty, size, reach, kept).groups)
        for kept in range(tree.constraints + 1)
    ]
    assert counts == sorted(counts, reverse=True)
    best = orchestrate(tree, faulty, size, reach, wanted)
    enough = [kept for kept, count in enumerate(counts) if count >= wanted]
    assert (best.constraints if best else None) == (max(enough) if enough else None)


def test_the_printed_search_forgets_what_it_had_found():
    fixture = FIXTURES[0]
    assert fixture["literal_returns_none"]
    shape = (fixture[key] for key in ("n", "p", "d", "m", "K"))
    assert literal.search(*shape, set(fixture["faulty"]), fixture["job_gpus"] // 32) is None


# ------------------------------------------------------------------------ the traffic


@given(trees())
def test_a_placement_within_all_constraints_crosses_no_tor(drawn):
    tree, faulty, size, reach = drawn
    whole = place_on(tree, faulty, size, reach, tree.constraints)
    assert cross_tor_share(tree, job_of(tree, whole, len(whole.groups))) == 0


def test_the_share_that_crosses_by_hand():
    tree = FatTree(nodes=8, per_tor=2, per_domain=8)
    assert cross_tor_share(tree, np.array([[0, 2], [1, 3]])) == 0
    assert cross_tor_share(tree, np.array([[0, 2], [3, 5]])) == 1
    assert cross_tor_share(tree, np.array([[0, 2], [1, 5]])) == 0.5
    assert cross_tor_share(tree, np.array([[0, 2]])) == 0
    # The third group is a set by itself.
    assert cross_tor_share(tree, np.array([[0, 2], [1, 3], [4, 6]])) == 0


def test_a_small_job_leaves_out_what_is_aligned_worst():
    tree = FatTree(nodes=8, per_tor=2, per_domain=8)
    placement = Placement(np.array([[0, 2], [4, 6], [5, 7]]), 0)
    assert job_of(tree, placement, 2).tolist() == [[4, 6], [5, 7]]
    assert cross_tor_share(tree, placement.groups) == 1


def test_care_keeps_traffic_from_crossing():
    random = np.random.default_rng(1)
    tree = FatTree(nodes=512, per_tor=2, per_domain=256)
    faulty = mask(512, random.permutation(512)[:20])
    placement = orchestrate(tree, faulty, 8, 3, 50)
    assert cross_tor_share(tree, job_of(tree, placement, 50)) < 0.05
    assert cross_tor_share(tree, careless(tree, faulty, 8, 3, 50, random)) > 0.9


# ----------------------------------------------------------------------------- wiring


def test_links_of_a_line_and_of_a_ring():
    assert k_hop(4, 2).links().tolist() == [[0, 1], [1, 2], [2, 3], [0, 2], [1, 3]]
    assert len(k_hop(9, 3, closed=True).links()) == 27
    assert powers_of_two(9, 3).hops == (1, 2, 4)
    assert k_hop(5, 2).neighbour(4, 1) is None
    assert k_hop(5, 2, closed=True).neighbour(4, 1) == 0


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda: k_hop(4, 2, closed=True), "found 4 nodes, expected at least 5"),
        (lambda: k_hop(4, 0), "found hops"),
        (lambda: FatTree(100, 3, 10), "found 10 nodes, expected a multiple of 3"),
        (lambda: FatTree(100, 2, 30), "found 100 nodes, expected a multiple of 30"),
        (lambda: place(mask(4, ()), 0, 1), "found groups of 0"),
        (lambda: place_on(FatTree(8, 2, 8), mask(8, ()), 2, 2, 4), "expected 0 to 3"),
        (lambda: place_on(FatTree(8, 2, 8), mask(6, ()), 2, 2, 0), "6 states of 8 nodes"),
        (
            lambda: careless(FatTree(8, 2, 8), mask(8, ()), 2, 2, 9, np.random.default_rng(1)),
            "found 4 groups, expected at least 9",
        ),
    ],
)
def test_an_impossible_placement_is_refused(made, what):
    with pytest.raises(InfiniteHbdError, match=what):
        made()
