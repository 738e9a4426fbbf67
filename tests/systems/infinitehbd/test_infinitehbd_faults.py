"""The fault trace, what is made of it, and what architectures keep of their GPUs under it."""

import hashlib
import json
import math
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.infinitehbd.planning.placement import place
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError
from lightrig.suites.claims.infinitehbd.architectures import (
    ARCHITECTURES,
    BigSwitch,
    Cubes,
    Islands,
    KHop,
    StaticRings,
    waste,
)
from lightrig.suites.claims.infinitehbd.replay import (
    GPUS,
    cluster,
    clusters,
    largest_job,
    mean_waste,
    waiting,
)
from lightrig.suites.claims.infinitehbd.trace import (
    DAY,
    HALF_FAILS,
    States,
    Trace,
    gpu_fault_share,
    halved,
    independent,
    node_fault_share,
    production_trace,
    read_trace,
    states,
    subset,
    synthetic,
    with_fixed_repair,
)

DATA = files("lightrig.suites.claims.infinitehbd") / "data"

masks = st.integers(1, 40).flatmap(
    lambda nodes: st.lists(
        st.lists(st.booleans(), min_size=nodes, max_size=nodes), min_size=1, max_size=4
    ).map(np.array)
)


@st.composite
def traces(draw):
    nodes = draw(st.integers(1, 5))
    faults = draw(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, 90), st.integers(0, 30)))
    )
    node, since, lasts = np.array(faults, dtype=np.int64).reshape(-1, 3).T
    return Trace(nodes, 0, 100, node, since, since + lasts)


# -------------------------------------------------------------------------- the trace


def test_the_data_are_those_of_their_source():
    name = hashlib.sha256((DATA / "fault_trace.json").read_bytes()).hexdigest()
    assert name in (DATA / "SOURCES.md").read_text()


def test_the_production_trace_is_as_described():
    trace, found = production_trace(), states(production_trace())
    assert (trace.nodes, trace.node.size, np.unique(trace.node).size) == (400, 584, 231)
    assert (trace.begin / DAY, trace.end / DAY) == (pytest.approx(3.8955), pytest.approx(348.9798))
    assert trace.mean_repair / DAY == pytest.approx(5.535, abs=0.0005)
    share = found.faulty.mean(axis=1)
    assert found.mean(share) == pytest.approx(0.02341, abs=0.000005)
    assert found.quantile(share, 0.99) == 31 / 400
    assert share.max() == 35 / 400


@given(traces(), st.integers(0, 99))
def test_states_name_the_faulty_nodes_at_every_moment(trace, moment):
    found = states(trace)
    assert found.durations.sum() == 100
    assert (found.durations > 0).all()
    row = np.searchsorted(np.cumsum(found.durations), moment, side="right")
    down = (trace.since <= moment) & (moment < trace.until)
    assert set(np.flatnonzero(found.faulty[row])) == set(trace.node[down])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1), st.floats(0.01, 1))
@example([(7, 0), (93, 1)], 0.07)  # 0.07 * 100 is a little more than 7
def test_a_quantile_over_time_is_that_of_its_moments(pieces, q):
    durations, values = np.array(pieces).T
    found = States(durations, np.empty((durations.size, 0), dtype=bool))
    moments = np.sort(np.repeat(values, durations))
    assert found.quantile(values, q) == moments[max(math.ceil(q * moments.size - 1e-9), 1) - 1]
    assert found.mean(values) == pytest.approx(moments.mean())


@given(traces(), st.integers(0, 2**32))
def test_a_subset_is_the_same_faults_under_other_numbers(trace, seed):
    drawn = subset(trace, trace.nodes, np.random.default_rng(seed))
    assert sorted(np.bincount(drawn.node, minlength=trace.nodes)) == sorted(
        np.bincount(trace.node, minlength=trace.nodes)
    )
    few = subset(trace, 1, np.random.default_rng(seed))
    assert set(few.node) <= {0}


def test_a_half_takes_half_of_the_faults_and_both_a_quarter():
    trace = production_trace()
    random = np.random.default_rng(1)
    counts = np.array([(halved(trace, random).node.size / trace.node.size) for _ in range(200)])
    assert counts.mean() == pytest.approx(2 * HALF_FAILS, abs=0.01)
    drawn = halved(trace, random, share=1.0)
    assert drawn.nodes == 800
    assert (np.sort(drawn.node // 2) == np.sort(np.repeat(trace.node, 2))).all()


def test_repairs_can_all_take_as_long():
    trace = production_trace()
    fixed = with_fixed_repair(trace)
    assert (fixed.until - fixed.since == round(trace.mean_repair)).all()
    assert (with_fixed_repair(trace, DAY).until == trace.since + DAY).all()


def test_a_trace_made_up_is_as_faulty_as_its_model():
    like = production_trace()
    shares = []
    for seed in range(10):
        found = states(synthetic(like, 400, np.random.default_rng(seed), days=1000))
        shares.append(found.mean(found.faulty.mean(axis=1)))
    # Those of one node that overlap count once; and it begins with nobody faulty.
    assert np.mean(shares) == pytest.approx(0.0234, rel=0.05)


@given(st.floats(0, 0.5), st.integers(1, 16))
def test_faults_of_nodes_and_of_gpus_are_inverses(share, gpus):
    assert gpu_fault_share(node_fault_share(share, gpus), gpus) == pytest.approx(share, abs=1e-9)
    assert node_fault_share(share, gpus) == pytest.approx(1 - (1 - share) ** gpus)


def test_more_nodes_than_the_trace_has_are_refused():
    with pytest.raises(InfiniteHbdError, match="found 401 nodes, expected 1 to the trace's 400"):
        subset(production_trace(), 401, np.random.default_rng(1))


def events(*stated: tuple[object, object, object]) -> str:
    names = ("node_id", "event_time", "event_type")
    return json.dumps([dict(zip(names, each, strict=True)) for each in stated])


FAULTS = (("b", 0.5, "fault_start"), ("a", 1.0, "fault_start"), ("b", 1.0, "fault_end"))


def test_a_trace_is_read_by_hand():
    trace = read_trace(events(*FAULTS, ("a", 3.25, "fault_end")), 3)
    assert (trace.nodes, trace.begin, trace.end) == (3, DAY // 2, 13 * DAY // 4)
    assert [*zip(trace.node, trace.since, trace.until, strict=True)] == [
        (1, DAY // 2, DAY),
        (0, DAY, 13 * DAY // 4),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (events(*FAULTS, ("a", 3.25, "fault_end"), ("c", 4, "fault_start")), "has 3 nodes, .* 2"),
        ("[]", "has 0 nodes"),
        (events(*FAULTS), "a fault of a has no end"),
        (events(*FAULTS, ("b", 2.0, "fault_end")), "event 3: a fault of b ends that did not"),
        (events(*FAULTS, ("a", 0.75, "fault_end")), "event 3: it is before"),
        (events(*FAULTS, ("a", 2.0, "repaired")), "event 3.event_type: "),
        (events(*FAULTS, ("a", "2.0", "fault_end")), "event 3.event_time: "),
        (events(*FAULTS, ("a", -2.0, "fault_end")), "event 3.event_time: "),
        (events(*FAULTS, ("a", 1e999, "fault_end")), "cut or damaged: .*Infinity"),
        (events(*FAULTS, ("", 2.0, "fault_end")), "event 3.node_id: "),
        (events(*FAULTS, (None, 2.0, "fault_end")), "event 3.node_id: "),
        ('[{"node_id": "a", "node_id": "b"}]', "cut or damaged: .*'node_id' twice"),
        (events(*FAULTS)[:-20], "cut or damaged"),
        ("{}", "valid list"),
        ('[{"node_id": "a"}]', "event 0.event_time: Field required"),
    ],
)  # fmt: skip
def test_a_trace_of_no_cluster_is_refused(text, message):
    with pytest.raises(InfiniteHbdError, match=message):
        read_trace(text, 2)


# ---------------------------------------------------------------------- architectures


@given(masks, st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_a_line_uses_what_the_placement_places(faulty, size, reach, closed):
    usable = KHop(reach, closed).usable(faulty, 4, 4 * size)
    assert usable.tolist() == [
        4 * size * len(place(row, size, reach, closed=closed)) for row in faulty
    ]


@given(st.integers(0, 2**32), st.sampled_from([8, 16, 32, 64]), st.floats(0, 0.5))
@settings(max_examples=30, deadline=None)
def test_nothing_beats_one_switch_and_more_hops_lose_nothing(seed, group, share):
    faulty = independent(144, share, 3, np.random.default_rng(seed))
    best = BigSwitch().usable(faulty, 4, group)
    healthy = 4 * (~faulty).sum(axis=1)
    for architecture in ARCHITECTURES:
        usable = architecture.usable(faulty, 4, group)
        assert (usable <= best).all()
        assert (usable % group == 0).all()
        assert (waste(architecture, faulty, 4, group) >= 0).all()
    assert (best <= healthy).all()
    hops = [KHop(reach).usable(faulty, 4, group) for reach in range(1, 5)]
    assert all((a <= b).all() for a, b in pairwise(hops))
    assert (Cubes(whole=True).usable(faulty, 4, group) <= Cubes().usable(faulty, 4, group)).all()


@given(st.integers(0, 2**32), st.floats(0, 0.5))
@settings(max_examples=20, deadline=None)
def test_islands_rings_and_cubes_counted_one_by_one(seed, share):
    faulty = independent(144, share, 2, np.random.default_rng(seed))
    for row, gpus in zip(faulty, np.repeat(~faulty, 4, axis=1), strict=True):
        one = row[None]
        islands = [gpus[at : at + 72].sum() // 32 * 32 for at in range(0, 576, 72)]
        assert Islands(72).usable(one, 4, 32) == sum(islands)
        rings = [32 * gpus[at : at + 32].all() for at in range(0, 576, 32)]
        assert StaticRings().usable(one, 4, 32) == sum(rings)
        assert Cubes().usable(one, 4, 32) == sum(rings)
        cubes = [64 * gpus[at : at + 64].all() for at in range(0, 576, 64)]
        assert Cubes(whole=True).usable(one, 4, 32) == sum(cubes)
        assert Cubes().usable(one, 4, 128) == sum(cubes) // 128 * 128


def test_the_paper_s_own_examples():
    none = np.zeros((1, 9), dtype=bool)
    assert waste(Islands(36), none, 4, 16)[0] == pytest.approx(4 / 36)
    # Two domains of 32 GPUs with a faulty one each, TP 16: 30 wasted apart, 14 together (§1).
    faulty = np.zeros((1, 64), dtype=bool)
    faulty[0, [0, 40]] = True
    assert 64 * waste(Islands(32), faulty, 1, 16)[0] == 30
    assert 64 * waste(BigSwitch(), faulty, 1, 16)[0] == 14


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(InfiniteHbdError, match="found 36 GPUs, expected a multiple of 8"):
        Islands(36).usable(np.zeros((1, 9), dtype=bool), 8, 16)
    with pytest.raises(InfiniteHbdError, match="found 6 GPUs, expected a multiple of 4"):
        KHop(2).usable(np.zeros((1, 9), dtype=bool), 4, 6)


# ----------------------------------------------------------------------------- replay


def test_a_cluster_is_the_same_for_the_same_seed():
    first, again = (cluster(np.random.default_rng(3)) for _ in range(2))
    assert first.faulty.shape[1] * 4 == GPUS
    assert (first.faulty == again.faulty).all()
    assert cluster(np.random.default_rng(3), gpus=8).faulty.shape[1] * 8 == GPUS


def test_waste_is_as_published_where_the_halves_of_a_node_stand_apart():
    """0.53 % and 10.04 % at TP 32 (§6.2); 7.56 % where a fault costs the part of a cube."""
    ours = {
        architecture.name: np.mean([mean_waste(found, architecture, 4, 32) for found in drawn])
        for drawn in [list(clusters(8))]
        for architecture in (KHop(3, closed=False), KHop(2, closed=False), Islands(72), Cubes())
    }
    assert ours["InfiniteHBD (K=3)"] == pytest.approx(0.0053, abs=0.0006)
    assert ours["InfiniteHBD (K=2)"] < 0.0075
    assert ours["NVL-72"] == pytest.approx(0.1004, abs=0.003)
    assert ours["TPUv4"] == pytest.approx(0.0756, abs=0.01)
    together = cluster(np.random.default_rng(0), apart=False)
    assert mean_waste(together, KHop(2, closed=False), 4, 32) > 0.01


def test_no_node_ever_has_to_use_its_farthest_links_on_both_sides():
    """Clusters that three hops cannot join: see `planning.bundles`."""
    for found in clusters(5):
        for row in found.faulty:
            gaps = np.diff(np.flatnonzero(~row))
            assert not ((gaps[1:] == 3) & (gaps[:-1] == 3)).any()


def test_the_largest_job_never_waits_and_a_larger_one_does():
    found = cluster(np.random.default_rng(0), fixed=True)
    for architecture in ARCHITECTURES:
        largest = largest_job(found, architecture, 4, 32)
        never, sometimes = waiting(found, architecture, 4, 32, [largest, largest + 1])
        assert (never, sometimes > 0) == (0, True)
        often = largest_job(found, architecture, 4, 32, share=0.9)
        assert often >= largest
        assert waiting(found, architecture, 4, 32, [often])[0] <= 0.1
