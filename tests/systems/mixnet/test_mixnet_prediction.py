"""Predicting loads, and the generated gates that it is tried on."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.copilot import Copilot, estimate_transition
from lightrig.harness.systems.mixnet.planning.demand import DemandError
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.suites.claims.mixnet.prediction import mean_top_k, top_k_accuracy


def records(experts, count, seed):
    loads = np.array(list(Gating(experts=experts, layers=2).iterations(count, seed)))
    return loads[:, 0], loads[:, 1]


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(1, 20), st.integers(0, 999), st.floats(0.5, 1.0))
def test_a_transition_is_a_matrix_of_chances(experts, count, seed, decay):
    found = estimate_transition(*records(experts, count, seed), decay=decay).matrix
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-12
    assert found.sum(axis=0) == pytest.approx(np.ones(experts))


@pytest.mark.parametrize("seed", range(3))
def test_the_error_is_as_small_as_the_solver_of_the_paper_gets_it(seed):
    before, after = records(3, 30, seed)
    weights = 0.9 ** np.arange(30)[::-1]

    def error(flat):
        return float(weights @ ((after - before @ flat.reshape(3, 3).T) ** 2).sum(axis=1))

    columns = [
        {"type": "eq", "fun": lambda flat, j=j: flat.reshape(3, 3)[:, j].sum() - 1}
        for j in range(3)
    ]
    theirs = scipy.optimize.minimize(
        error,
        np.full(9, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 9,
        constraints=columns,
        options={"ftol": 1e-14, "maxiter": 300},
    )
    ours = estimate_transition(before, after, decay=0.9)
    assert ours.error == pytest.approx(error(ours.matrix.ravel()), rel=1e-6)
    assert ours.error == pytest.approx(theirs.fun, rel=1e-4)


def test_a_transition_that_is_there_is_found():
    random = np.random.default_rng(4)
    true = random.dirichlet([0.5] * 5, size=5).T
    before = random.dirichlet([1.0] * 5, size=60)
    found = estimate_transition(before, before @ true.T, decay=1.0)
    assert np.abs(found.matrix - true).max() < 1e-3


def test_old_records_fade():
    before = np.tile(np.eye(2), (20, 1))
    swapped = before[:, ::-1]
    after = np.concatenate([before[:20], swapped[20:]])
    assert estimate_transition(before, after, decay=0.5).matrix[0, 0] < 0.01
    assert estimate_transition(before, after, decay=1.0).matrix[0, 0] == pytest.approx(0.5)


def test_prediction_beats_no_change_and_chance():
    predictor, predicted, unchanged, actual = Copilot(), [], [], []
    for number, (load, following) in enumerate(Gating(experts=8, layers=2).iterations(120, 7)):
        if number >= 60:
            predicted.append(predictor.predict(load))
            unchanged.append(load)
            actual.append(following)
        predictor.record(load, following)
    ours = mean_top_k(predicted, actual, 2)
    assert ours > 0.7 > mean_top_k(unchanged, actual, 2)
    assert ours > 2 / 8


def test_with_nothing_known_nothing_changes():
    assert Copilot().predict([0.2, 0.8]).tolist() == [0.2, 0.8]


def test_only_the_window_counts():
    predictor = Copilot(window=2, decay=1.0)
    predictor.record([1, 0], [1, 0])
    for _ in range(2):
        predictor.record([1, 0], [0, 1])
    assert predictor.predict([1, 0]) == pytest.approx([0, 1])


def test_top_k_counts_what_is_found():
    assert top_k_accuracy([0.5, 0.3, 0.2, 0.0], [0.4, 0.1, 0.3, 0.2], 2) == 0.5
    assert top_k_accuracy([1, 2, 3], [1, 2, 3], 3) == 1


def test_gates_are_shares_and_follow_from_their_seed():
    gate = Gating(experts=5, layers=3)
    first, again = (np.array(list(gate.iterations(4, 1))) for _ in range(2))
    assert np.array_equal(first, again)
    assert first.shape == (4, 3, 5)
    assert first.sum(axis=2) == pytest.approx(np.ones((4, 3)))
    assert not np.array_equal(first, np.array(list(gate.iterations(4, 2))))
    sent = next(gate.exchanges(ranks=2, count=1, seed=1))
    assert sent.sum(axis=1).tolist() == [gate.tokens] * 2


def test_records_that_do_not_match_are_refused():
    with pytest.raises(DemandError, match="two alike"):
        estimate_transition([[1, 0]], [[1, 0], [0, 1]])
