"""Fair sharing beside the traffic model's own, and collectives beside their closed forms."""

import random

import numpy as np
import pytest

from lightrig.harness.workloads.collectives import Timing, ring_nanoseconds, steps
from lightrig.harness.workloads.graph import Pattern, WorkloadError
from lightrig.harness.workloads.shared_links import max_min
from lightrig.instruments.jobs.flows import sharing


@pytest.mark.parametrize("seed", range(30))
def test_max_min_is_that_of_the_traffic_model(seed):
    draw = random.Random(seed)
    links = draw.randint(1, 8)
    capacities = {link: draw.uniform(0.5, 10) for link in range(links)}
    flows = [
        {link: draw.randint(1, 3) for link in draw.sample(range(links), draw.randint(1, links))}
        for _ in range(draw.randint(1, 12))
    ]
    crossings = [
        (number, link, load) for number, loads in enumerate(flows) for link, load in loads.items()
    ]
    found = sharing.max_min(
        np.array([capacities[link] for link in range(links)]),
        sharing.Crossings(*(np.array(column) for column in zip(*crossings, strict=True))),
        np.ones(len(flows), dtype=bool),
    )
    assert max_min(capacities, flows) == pytest.approx(found.tolist())


def sent(found):
    """Bytes that members send in all."""
    return sum(step.times * amount for step in found for _, _, amount in step.messages)


@pytest.mark.parametrize("members", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("pattern", "algorithm", "shares"),
    [
        (Pattern.ALL_REDUCE, "ring", 2),
        (Pattern.ALL_REDUCE, "halving-doubling", 2),
        (Pattern.ALL_REDUCE, "direct", 2),
        (Pattern.REDUCE_SCATTER, "ring", 1),
        (Pattern.REDUCE_SCATTER, "halving-doubling", 1),
        (Pattern.ALL_TO_ALL, "direct", 1),
    ],
)
def test_members_send_what_the_collective_needs(members, pattern, algorithm, shares):
    """Each (n - 1) / n of what it puts in, for an all-reduce twice: Thakur et al. 2005."""
    amount = 1 << 20
    assert sent(steps(pattern, algorithm, members, amount)) == shares * (members - 1) * amount


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "direct"])
def test_all_gather_sends_each_part_to_all_others(algorithm):
    assert sent(steps(Pattern.ALL_GATHER, algorithm, 8, 1000)) == 8 * 7 * 1000


def test_a_tree_goes_in_and_out():
    """Binomial: seven messages of the whole inwards, seven outwards, in three steps each."""
    found = steps(Pattern.ALL_REDUCE, "tree", 8, 1000)
    assert [len(step.messages) for step in found] == [4, 2, 1, 1, 2, 4]
    assert [step.reduces for step in found] == [True] * 3 + [False] * 3


def test_hierarchical_sends_an_eighth_out_of_a_server():
    """16 members in two servers: rings of 8 inside, of 2 across with an eighth of the bytes."""
    found = steps(Pattern.ALL_REDUCE, "hierarchical", 16, 8000, server=8)
    across = [
        amount * step.times
        for step in found
        for source, target, amount in step.messages
        if source // 8 != target // 8
    ]
    assert sum(across) == 16 * 2 * 500
    assert sent(found) - sum(across) == 2 * 16 * 7 * 1000


def test_an_all_to_all_of_unequal_parts_sends_those():
    amounts = [[0, 5, 0], [1, 0, 2], [0, 0, 0]]
    (step,) = steps(Pattern.ALL_TO_ALL, "direct", 3, 0, amounts=amounts)
    assert set(step.messages) == {(0, 1, 5), (1, 0, 1), (1, 2, 2)}


def test_what_an_algorithm_cannot_do_is_refused():
    with pytest.raises(WorkloadError, match="halving-doubling makes no all-reduce of 6 members"):
        steps(Pattern.ALL_REDUCE, "halving-doubling", 6, 600)


@pytest.mark.parametrize(
    ("pattern", "amount", "cycles"),
    [
        (Pattern.REDUCE_SCATTER, 1 << 20, 22_240),
        (Pattern.ALL_GATHER, 1 << 20, 64_744),
        (Pattern.ALL_REDUCE, 1 << 20, 43_000),
    ],
)
def test_a_ring_takes_what_astra_sim_prints(pattern, amount, cycles):
    """astra-sim at c459ab61: ring of 4, 1 MB, 50 GB/s, 500 ns, 4 chunks; memory 1,600 GB/s.

    It rounds what a chunk costs at an endpoint, so that a step is up to half a nanosecond apart.
    """
    timing = Timing(500.0, 12.5, 1600.0, splits=4)
    found = ring_nanoseconds(pattern, 4, amount, 50 * 2**30 / 1e9, timing)
    assert found == pytest.approx(cycles, rel=0.01)
