"""Circuit changes while a mixture of experts trains, and the all-to-alls that may run."""

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.calendar import LayerTimes, calendar, exchanges
from lightrig.harness.systems.mixnet.planning.control import CircuitControl, OutOfOrderError
from lightrig.harness.systems.mixnet.planning.demand import Placement

RANKS, LAYERS = 3, 2
APART = Placement.even(RANKS, RANKS)
GIVEN = [[1, 5, 0], [2, 0, 7], [0, 3, 4]]


def rows(phase, given=GIVEN):
    """Return the rows from each rank to each of an all-to-all of a layer."""
    return given if phase in ("dispatch", "combine gradient") else np.transpose(given).tolist()


def run(control, phase, given=GIVEN):
    """Let every rank run an all-to-all; return what they were permitted."""
    for rank, sent in enumerate(rows(phase, given)):
        control.wants(rank, sent)
    found = control.permitted()
    for rank in range(control.ranks):
        control.ended(rank)
    return found


def test_a_dispatch_is_permitted_once_all_have_announced_theirs():
    control = CircuitControl(APART, LAYERS, None)
    for rank in (0, 2):
        control.wants(rank, GIVEN[rank])
        assert control.permitted() == []
    control.wants(1, GIVEN[1])
    found = control.permitted()
    assert [one.rank for one in found] == [0, 1, 2]
    np.testing.assert_array_equal(found[0].traffic, GIVEN)


def test_an_all_to_all_waits_for_its_circuits_and_a_change_for_all_ranks():
    control = CircuitControl(APART, LAYERS, "predict")
    for rank in range(RANKS):
        control.wants(rank, GIVEN[rank])
    assert control.due() is None  # the first all-to-all takes the circuits that are there
    assert [one.rank for one in control.permitted()] == [0, 1, 2]
    control.ended(0)
    control.wants(0, [1, 2, 0])
    control.ended(1)
    assert (control.due(), control.permitted()) == (None, [])
    control.ended(2)
    due = control.due()
    assert (due.layer, due.before, due.knows) == (0, "combine", "gate")
    np.testing.assert_array_equal(due.demand, [[0, 7, 0], [0, 0, 10], [0, 0, 0]])
    assert control.permitted() == []
    control.changed()
    assert [one.rank for one in control.permitted()] == [0]
    assert control.due() is None


# Two, one and three ranks on servers 0, 1 and 2.
SPREAD = Placement((0, 0, 1, 2, 2, 2), 3)
OF_SIX = [
    [9, 1, 2, 0, 3, 4],
    [5, 8, 0, 6, 0, 1],
    [2, 2, 7, 0, 1, 0],
    [0, 3, 4, 6, 9, 9],
    [1, 0, 0, 8, 5, 2],
    [0, 0, 5, 7, 7, 3],
]


def test_demand_is_between_servers_and_permission_by_rank():
    """Server pairs 0-1: 2 + 4; 0-2: 7 + 7 + 3 + 1; 1-2: 1 + 4 + 5 rows, both ways together."""
    control = CircuitControl(SPREAD, LAYERS, "predict")
    for rank in range(6):
        assert control.permitted() == []
        control.wants(rank, OF_SIX[rank])
    assert [one.rank for one in control.permitted()] == list(range(6))
    back = np.transpose(OF_SIX).tolist()
    for rank in range(6):
        assert control.due() is None  # the last rank of server 2 has not ended
        control.ended(rank)
    due = control.due()
    assert (due.layer, due.before, due.knows) == (0, "combine", "gate")
    np.testing.assert_array_equal(due.demand, [[0, 6, 18], [0, 0, 10], [0, 0, 0]])
    control.changed()
    for rank in (5, 1):
        control.wants(rank, back[rank])
    found = control.permitted()
    assert [one.rank for one in found] == [1, 5]
    np.testing.assert_array_equal(found[0].traffic, back)


def test_a_predicted_demand_is_that_of_all_ranks_of_a_server():
    """Copilot's first prediction is the load of the layer before.

    Of 120 rows 31 go to the experts on server 0, 18 to server 1 and 71 to server 2; each rank
    sends 20. So servers 0 and 1 have 20 (2 x 18 + 1 x 31) / 120 in common.
    """
    control = CircuitControl(SPREAD, LAYERS, "predict")
    run(control, "dispatch", OF_SIX)
    control.learn()
    control.changed()
    run(control, "combine", OF_SIX)
    due = control.due()
    assert (due.layer, due.before, due.knows) == (1, "dispatch", "predicted")
    expected = np.array([[0, 36 + 31, 142 + 93], [0, 0, 71 + 54], [0, 0, 0]]) / 6
    np.testing.assert_allclose(due.demand, expected)


def test_the_gradients_go_the_way_back():
    control = CircuitControl(APART, 1, None)
    found = {phase: run(control, phase)[0].traffic for _, phase in exchanges(1)}
    np.testing.assert_array_equal(found["dispatch"], GIVEN)
    np.testing.assert_array_equal(found["combine"], np.transpose(GIVEN))
    np.testing.assert_array_equal(found["combine gradient"], GIVEN)
    np.testing.assert_array_equal(found["dispatch gradient"], np.transpose(GIVEN))


def test_an_all_to_all_out_of_order_is_named():
    control = CircuitControl(APART, LAYERS, "block")
    with pytest.raises(OutOfOrderError, match=r"rank 1 sends .* dispatch of layer 0 of 2.*3 ranks"):
        control.wants(1, [2, 0])
    run(control, "dispatch")
    control.wants(0, [1, 2, 0])
    with pytest.raises(OutOfOrderError) as refused:
        control.wants(1, [2, 0, 7])
    assert "rank 1 sends [2, 0, 7] rows in combine of layer 0 of 2, expected [5, 0, 3]" in str(
        refused.value
    )


@settings(max_examples=20, deadline=None)
@drawn(st.sampled_from(["block", "predict", "reuse", None]), st.integers(1, 3), st.randoms())
def test_changes_are_the_calendars_and_copilot_learns(first, layers, random):
    control, made, given = CircuitControl(APART, layers, first), [], {}
    for _ in range(3):
        for layer, phase in exchanges(layers):
            early = control.due()
            if early is not None and early.knows != "gate":
                made.append((early.step, early.layer, early.before))
                control.changed()
            if phase == "dispatch":
                given[layer] = [[random.randint(1, 9) for _ in range(3)] for _ in range(3)]
            for rank, sent in enumerate(rows(phase, given[layer])):
                control.wants(rank, sent)
            due = control.due()
            if due is not None:
                made.append((due.step, due.layer, due.before))
                control.changed()
            assert len(control.permitted()) == RANKS
            control.learn()
            for rank in range(RANKS):
                control.ended(rank)
    planned = list(calendar(layers, LayerTimes(0, 0, 0, 0), 0, first)) if first else []
    assert made == [(step, one.layer, one.before) for step in range(3) for one in planned]
    assert len(control.predictions) == 3 * (layers - 1)
