"""From tokens to what servers exchange."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.demand import (
    DemandError,
    Placement,
    dispatched,
    pair_demand,
    server_demand,
    server_traffic,
)
from lightrig.suites.claims.mixnet.gating import Gating


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_no_token_between_servers_is_lost_and_none_within_one_counts(
    servers, each, experts, random
):
    placement = Placement.even(servers * each, servers, experts)
    ranks = servers * each
    tokens = np.array(
        [[random.randint(0, 9) for _ in range(ranks * experts)] for _ in range(ranks)]
    )
    demand = server_demand(tokens, placement)
    between = sum(
        tokens[rank, expert]
        for rank in range(ranks)
        for expert in range(ranks * experts)
        if placement.server_of[rank] != placement.server_of[expert // experts]
    )
    assert demand.sum() == between
    assert not np.tril(demand).any()


def test_both_directions_of_a_pair_are_added():
    demand = server_demand([[5, 2, 0], [3, 7, 1], [0, 4, 9]], Placement.even(3, 3))
    assert demand.tolist() == [[0, 5, 0], [0, 0, 5], [0, 0, 0]]


def test_the_transpose_asks_for_the_same_circuits():
    tokens = next(Gating(experts=6, layers=1).exchanges(ranks=6, count=1, seed=3))
    placement = Placement.even(6, 3)
    assert np.array_equal(server_demand(tokens, placement), server_demand(tokens.T, placement))


def test_ranks_that_choose_alike_send_alike():
    assert dispatched(10, [0.5, 0.3, 0.2], 2).tolist() == [[5, 3, 2], [5, 3, 2]]


def test_a_backup_takes_over_what_its_rank_sent_and_received():
    placement = Placement.even(3, 3).moved(1, 2)
    assert server_demand([[0, 5, 1], [2, 0, 8], [4, 8, 0]], placement)[0, 2] == 12
    assert server_demand([[0, 5, 1], [2, 0, 8], [4, 8, 0]], placement)[:, 1].sum() == 0


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([[1, 2]], "shape"),
        ([[1, -2], [0, 0]], "below zero"),
        ([[1, np.nan], [0, 0]], "not finite"),
    ],
)
def test_tokens_that_make_no_sense_are_refused(tokens, said):
    with pytest.raises(DemandError, match=said):
        server_traffic(tokens, Placement.even(2, 2))


def test_placements_that_make_no_sense_are_refused():
    with pytest.raises(DemandError, match="rank 1 is on no server"):
        Placement((0, 2), 2)
    with pytest.raises(DemandError, match="evenly"):
        Placement.even(5, 2)
    with pytest.raises(DemandError, match="servers x servers"):
        pair_demand([[1, 2, 3]])
