"""All-to-all by binary exchange: every item arrives, and only over links that are there."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, powers_of_two
from lightrig.suites.claims.infinitehbd.exchange import (
    Round,
    exchange,
    exchange_ns,
    largest_parallelism,
    rounds,
)

RANKS = st.integers(0, 5).map(lambda power: 1 << power)


def claim(*names):
    return pytest.mark.claim(*(f"infinitehbd:{name}" for name in names))


@claim("exchange-complete")
@given(RANKS)
def test_every_node_receives_all_its_shares(ranks):
    data = np.arange(ranks * ranks).reshape(ranks, ranks)
    assert (exchange(data) == data.T).all()


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_with_the_printed_mask_data_goes_missing(ranks, monkeypatch):
    printed = [Round(r.distance, r.partner, r.partner & r.distance) for r in rounds(ranks)]
    monkeypatch.setattr("lightrig.suites.claims.infinitehbd.exchange.rounds", lambda _: printed)
    data = np.arange(ranks * ranks).reshape(ranks, ranks)
    assert (exchange(data) != data.T).any()


@claim("exchange-partners")
def test_the_first_of_eight_meets_nodes_one_two_and_four_away():
    assert sorted(int(turn.partner[0]) for turn in rounds(8)) == [1, 2, 4]


@claim("exchange-pairs")
def test_the_pairs_of_four_nodes_by_hand():
    met = [{frozenset((i, int(j))) for i, j in enumerate(turn.partner)} for turn in rounds(4)]
    by_hand = [[{0, 2}, {1, 3}], [{0, 1}, {2, 3}]]
    assert met == [{frozenset(pair) for pair in pairs} for pairs in by_hand]


@claim("exchange-rounds", "exchange-bytes")
@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
def test_rounds_are_the_logarithm_and_each_hands_over_half_of_the_items(ranks):
    """A rank keeps the items of its own half in each round, and sends the others on."""
    turns = rounds(ranks)
    assert 2 ** len(turns) == ranks
    for turn in turns:
        assert 2 * turn.distance <= ranks
        blocks = [set(range(s, s + turn.distance)) for s in turn.sent.tolist()]
        assert {len(block) * ranks // (2 * turn.distance) for block in blocks} == {ranks // 2}


@given(RANKS)
def test_partners_are_a_power_of_two_apart_and_mutual(ranks):
    hops = powers_of_two(2 * ranks, max(1, int(math.log2(ranks)))).hops
    for turn in rounds(ranks):
        rank = np.arange(ranks)
        assert turn.distance in hops
        assert (abs(turn.partner - rank) == turn.distance).all()
        assert (turn.partner[turn.partner] == rank).all()
        # What is handed over is for the half that the partner is in.
        assert ((turn.sent <= turn.partner) & (turn.partner < turn.sent + turn.distance)).all()


def test_its_time_is_the_formula_s():
    ours = exchange_ns(16, 1 << 20, 800e9, 70_000)
    assert ours == pytest.approx(math.log2(16) * (70_000 + 8e9 * (8 << 20) / 800e9))
    assert exchange_ns(1, 1, 1, 1) == 0


def test_the_reach_of_a_node_s_bundles():
    assert (largest_parallelism(4), largest_parallelism(8)) == (64, 2048)


def test_only_a_power_of_two_can_exchange():
    for ranks in (0, 3, 12):
        with pytest.raises(InfiniteHbdError, match=f"found {ranks} ranks"):
            rounds(ranks)
