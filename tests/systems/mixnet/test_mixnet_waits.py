"""Waits of all-to-alls for their circuits, divided among causes by hand-made moments."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightrig.harness.systems.mixnet.measurements.circuit_waits import (
    CAUSES,
    step_waits,
    wait_by_cause,
)
from lightrig.harness.systems.mixnet.runtime.trained import (
    CircuitChange,
    TrainedExperts,
    TrainingExchange,
)
from lightrig.suites.claims.mixnet.expert_training import training_rows
from lightrig.testbeds import Plan

CHANGE = CircuitChange(3, 1, "combine", "gate", 4, 110, 117, 148, 263, 271, 330)


def exchange(
    wanted: int, permitted: int, began: int, phase: Any = "combine", step: int = 3
) -> TrainingExchange:
    plan = Plan("some", {})
    moments = {"wanted": wanted, "permitted": permitted, "began": began, "ended": began + 1000}
    return TrainingExchange(
        step,
        1,
        phase,
        np.zeros((2, 2)),
        plan=plan,
        optical=0.5,
        predicted=7.0,
        carried={},
        **moments,
    )


def caused(found: Mapping[Any, int]) -> dict[str, int]:
    return {cause: wait for cause, wait in found.items() if wait}


def test_a_wait_is_divided_by_the_moments_of_its_change() -> None:
    """Wanted before the change began: all of it counts."""
    found = wait_by_cause(exchange(97, 341, 364), CHANGE)
    assert tuple(found) == CAUSES
    assert found == {
        "control": 110 - 97 + 341 - 330,
        "planning": 117 - 110,
        "routes off circuits": 148 - 117,
        "switch": 263 - 148,
        "carriers": 271 - 263,
        "routes onto circuits": 330 - 271,
        "ranks": 364 - 341,
    }
    assert sum(found.values()) == 364 - 97


def test_what_passes_before_the_last_rank_wants_the_all_to_all_is_hidden() -> None:
    assert caused(wait_by_cause(exchange(251, 334, 352), CHANGE)) == {
        "switch": 263 - 251, "carriers": 8, "routes onto circuits": 59, "control": 4, "ranks": 18,
    }  # fmt: skip
    assert caused(wait_by_cause(exchange(400, 403, 421), CHANGE)) == {"control": 3, "ranks": 18}


def test_an_all_to_all_without_a_change_waits_for_control_and_ranks() -> None:
    assert caused(wait_by_cause(exchange(400, 403, 421), None)) == {"control": 3, "ranks": 18}


def test_the_causes_of_a_step_sum_to_its_wait() -> None:
    """Step 3 has the change before combine; the first step is left out."""
    trained = TrainedExperts(
        {},
        [
            exchange(1, 2, 3, step=0),
            exchange(40, 45, 52, "dispatch"),
            exchange(251, 334, 352),
            exchange(500, 506, 519, step=4),
        ],
        [CHANGE],
        (),
    )
    third, fourth = step_waits(trained)
    assert caused(third) == {
        "switch": 12, "carriers": 8, "routes onto circuits": 59, "control": 5 + 4, "ranks": 7 + 18,
    }  # fmt: skip
    assert caused(fourth) == {"control": 6, "ranks": 13}
    rows = list(training_rows(trained, 9, {"network": "following"}))
    waits = [row.value for row in rows if row.quantity == "experts.waited"]
    assert waits == [52 - 40 + 352 - 251, 519 - 500]
    by_cause = [row for row in rows if row.quantity == "experts.waited_by_cause"]
    assert [
        sum(float(row.value) for row in by_cause if row.conditions["step"] == step)
        for step in (1, 2)
    ] == waits
    assert {(row.conditions["cause"], row.value) for row in by_cause} >= {
        ("routes onto circuits", 59), ("ranks", 13),
    }  # fmt: skip
