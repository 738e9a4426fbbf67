"""Jobs on a row of nodes: what failures take, and what is placed again."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.infinitehbd.planning.cluster import Cluster
from lightrig.harness.systems.infinitehbd.planning.rings import Path
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, k_hop

RING = Cluster(k_hop(7, 2, closed=True))


def groups(cluster: Cluster, name: str) -> tuple[tuple[int, ...], ...]:
    return next(job.groups for job in cluster.jobs if job.name == name)


def test_jobs_of_several_sizes_share_the_row() -> None:
    both = RING.submitted("pairs", 2, 2).submitted("three", 3)
    assert groups(both, "pairs") == ((0, 1), (2, 3))
    assert groups(both, "three") == ((4, 5, 6),)


def test_a_failure_moves_only_the_groups_of_failed_nodes() -> None:
    cluster = RING.submitted("pairs", 2, 2).failed([2])
    assert groups(cluster, "pairs") == ((0, 1), (3, 4))
    assert 2 not in cluster.paths()


def test_a_job_waits_for_nodes_that_are_repaired_or_given_back() -> None:
    full = RING.submitted("three", 3).submitted("pairs", 2, 2)
    short = full.failed([6])
    assert [job.missing for job in short.jobs] == [0, 1]
    assert [job.missing for job in short.repaired([6]).jobs] == [0, 0]
    assert [job.missing for job in short.withdrawn("three").jobs] == [0]


def test_a_ring_of_all_closes_past_a_failed_node_and_takes_it_in_again() -> None:
    whole = RING.submitted("ring", 0)
    assert groups(whole, "ring") == (tuple(range(7)),)
    past = whole.failed([3])
    assert groups(past, "ring") == ((0, 1, 2, 4, 5, 6),)
    # Nodes 2 and 4 reach each other by their backup links, path 2 of the bundles between them.
    assert past.paths()[2][0] == past.paths()[4][1] == Path.EXTERNAL_2
    assert past.repaired([3]) == whole


def test_a_ring_that_no_link_closes_waits() -> None:
    apart = RING.submitted("ring", 0).failed([2, 3])
    assert groups(apart, "ring") == ()
    assert {path for paths in apart.paths().values() for path in paths} == {Path.LOOPBACK}
    assert groups(apart.repaired([2]), "ring") == ((0, 1, 2, 4, 5, 6),)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: RING.submitted("a", 8), "8 nodes, of 7"),
        (lambda: RING.submitted("a", 2, 0), "wants 0 groups"),
        (lambda: RING.submitted("a", 2).submitted("a", 3), "runs with 1 groups of 2"),
        (lambda: RING.submitted("a", 2).submitted("b", 0), "no room"),
        (lambda: RING.withdrawn("a"), "jobs are none"),
        (lambda: RING.failed([7]), "node 7, expected 0 to 6"),
        (lambda: Cluster(k_hop(7, 2)).submitted("a", 0), "is a line"),
        (lambda: Cluster.of_document({"nodes": 7}), "no state of a cluster"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(asked, message) -> None:
    with pytest.raises(InfiniteHbdError, match=message):
        asked()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("failed"), st.integers(0, 10)),
        st.tuples(st.just("repaired"), st.integers(0, 10)),
        st.tuples(st.just("submitted"), st.integers(1, 4)),
        st.tuples(st.just("withdrawn"), st.integers(1, 4)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(2, 3))
def test_any_events_leave_healthy_disjoint_groups_that_a_restart_knows(events, hops) -> None:
    cluster = Cluster(k_hop(11, hops, closed=True))
    for kind, number in events:
        before = cluster
        if kind in {"failed", "repaired"}:
            cluster = getattr(cluster, kind)([number])
        elif kind == "submitted":
            cluster = cluster.submitted(f"job{number}", number, 2)
        elif any(job.name == f"job{number}" for job in cluster.jobs):
            cluster = cluster.withdrawn(f"job{number}")
        kept = {group for job in before.jobs for group in job.groups}
        whole = {group for group in kept if cluster.faulty.isdisjoint(group)}
        if kind != "withdrawn":
            assert whole <= {group for job in cluster.jobs for group in job.groups}
    taken = [node for job in cluster.jobs for group in job.groups for node in group]
    assert len(taken) == len({*taken})
    assert cluster.faulty.isdisjoint(taken)
    assert all(len(group) == job.size for job in cluster.jobs for group in job.groups)
    assert cluster.paths().keys() == {*range(11)} - cluster.faulty
    assert Cluster.of_document(json.loads(json.dumps(cluster.document()))) == cluster
