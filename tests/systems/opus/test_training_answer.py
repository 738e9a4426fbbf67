"""Shares of a training step, from times that are written down here by hand."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from lightrig.harness.jobs.training import RESULTS
from lightrig.harness.systems.opus.measurements.printed_numbers import Lines, compare
from lightrig.harness.systems.opus.measurements.training import (
    deviation_of_steps,
)
from lightrig.harness.systems.opus.measurements.training_answer import (
    front_end_uses,
    shares_by_step,
)
from lightrig.harness.systems.opus.planning.operations import Operation
from lightrig.harness.systems.opus.planning.run_events import Confirmed, Rewiring
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.systems.opus.runtime.rails import Journal
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import Done, Wanted


def done(group: str, index: int, asked: int, began: int, ended: int) -> Done:
    stamps = (Span(at - 1, at) for at in (asked, began, ended))
    return Done(Wanted(group, index, "allreduce", 8), *stamps)


def table(*groups: tuple[str, int]) -> PhaseTable:
    return PhaseTable(tuple(Operation(name, 0, dimension) for name, dimension in groups))


def test_a_step_is_divided_among_computing_waiting_and_moving_data() -> None:
    """Two ranks, two operations a step; the second step alone is counted, from 100 on.

    Rank 0: wants `data` at 130, which rank 1 wants at 150, begins at 163 on both and ends at 170;
    wants `pair` at 180 and has it at once, until 200. Rank 1 ends `data` at 171 and begins `pair`
    at 184, which the other began at 180, until 207.
    """
    trained = Trained(
        {
            0: [
                *(done("data", 0, 10, 10, 20), done("pair", 0, 90, 90, 100)),
                *(done("data", 1, 130, 163, 170), done("pair", 1, 180, 180, 200)),
            ],
            1: [
                *(done("data", 0, 10, 10, 20), done("pair", 0, 90, 90, 100)),
                *(done("data", 1, 150, 163, 171), done("pair", 1, 184, 184, 207)),
            ],
        },
        {},
    )
    (step,) = shares_by_step(trained, [table(("data", 1), ("pair", 0))] * 2)
    computes = (30 + 10, 50 + 13)  # 100 to 130 and 170 to 180; 100 to 150 and 171 to 184
    ranks = (20 + 4, 0)  # 130 to 150 and 180 to 184
    circuits = (13, 13)  # 150 to 163 on both
    data = (7 + 16, 8 + 23)
    assert step == {
        "computes": sum(computes) / 2,
        "waits for other ranks": sum(ranks) / 2,
        "uses the front end": 0,
        "waits for circuits": sum(circuits) / 2,
        "moves data": sum(data) / 2,
    }
    assert sum(step.values()) == (100 + 107) / 2


def test_operations_at_once_count_once_and_data_first() -> None:
    """From 100 on, `a` moves data from 110 to 130; `b` waits from 105 to 125, moves until 150."""
    operations = [
        *(done("a", 0, 1, 1, 2), done("b", 0, 3, 3, 100)),
        *(done("a", 1, 110, 110, 130), done("b", 1, 105, 125, 150)),
        *(done("a", 2, 155, 155, 156), done("b", 2, 157, 157, 160)),
    ]
    second, third = shares_by_step(Trained({0: operations}, {}), [table(("a", 1), ("b", 2))])
    assert second == {
        "computes": 5,  # 100 to 105
        "waits for other ranks": 0,
        "uses the front end": 0,
        "waits for circuits": 5,  # 105 to 110
        "moves data": 40,  # 110 to 150
    }
    assert third["computes"] == 5 + 1  # 150 to 155 and 156 to 157


def test_the_front_end_counts_from_when_the_last_rank_wants_it() -> None:
    """Rank 0 wants it at 110 and rank 1 at 130; it ends at 150, 5 after an operation of a rail."""
    rails = [done("a", 0, 1, 1, 100), done("a", 1, 140, 141, 145), done("a", 2, 190, 190, 200)]
    beside = {rank: [done("front end 0,1", 0, at, at, 150)] for rank, at in ((0, 110), (1, 130))}
    run = Trained({0: rails, 1: rails}, {}, front_end=beside)
    (step, _) = shares_by_step(run, [table(("a", 1))] * 2)
    assert step == {
        "computes": (10 + 30) / 2,  # from 100 on
        "waits for other ranks": 20 / 2,
        "uses the front end": 10 + 0,  # 130 to 140; to 150 is beyond the step's end
        "waits for circuits": 1,
        "moves data": 4,
    }
    (use,) = front_end_uses(run)
    assert (use.kind, use.count, use.size, use.time) == ("allreduce", 2, 16, 40)


def test_deviations_are_those_of_changes_with_equal_numbers_of_commands() -> None:
    """By hand: 10 and 14, of one command, 2 from their mean; 20, 30, 40 of two; two steps."""
    events = [
        event
        for at, (took, commands) in enumerate([(10, 1), (20, 2), (14, 1), (30, 2), (40, 2)])
        for event in (
            Rewiring(at, "ocs", str(at), frozenset(), frozenset(), commands=commands),
            Confirmed(at + took, "ocs", str(at)),
        )
    ]
    run = Trained({0: [done("a", each, 1, 2, 3) for each in range(2)]}, {})
    run.rails = SimpleNamespace(journal=Journal(events))  # type: ignore[assignment]
    deviation = math.sqrt((4 + 4 + 100 + 100) / (5 - 2))
    assert deviation_of_steps(run, [table(("a", 1))]) == pytest.approx(deviation * 5 / 2)


def trained(*lines: Sequence[str]) -> Lines:
    at = Span(0, 0)
    return {rank: [(at, line) for line in each] for rank, each in enumerate(lines)}


@pytest.mark.parametrize(
    ("ring", "circuits", "count", "different"),
    [
        ((["step 0 loss 0.125"], []), (["step 0 loss 0.125"], []), 1, ()),
        (
            (["loss 1.5", "loss: 2.25"], ["loss=3e-2"]),
            (["loss 1.5", "loss: 2.26"], ["loss=3e-2"]),
            3,
            ((0, "2.25", "2.26"),),
        ),
        ((["loss 1.5"], ["loss 7"]), (["loss 1.5"], []), 2, ((1, "7", ""),)),
        ((["loss 1.5"],), (["loss 1.5", "loss 1.4"],), 1, ((0, "", "1.4"),)),
        ((["loss nan"],), (["loss 3.5"],), 1, ((0, "nan", "3.5"),)),
        ((["nan loss -.5"],), (["inf loss -.6"],), 1, ((0, "-.5", "-.6"),)),
        ((["Step 3 of 9: 12 samples"],), (["Step 3 of 9: 11 samples"],), 0, ()),
        ((["lossless 3"],), (["lossless 4"],), 0, ()),
    ],
)
def test_numbers_are_compared_to_the_last_digit(ring, circuits, count, different) -> None:
    found = compare(RESULTS, trained(*ring), trained(*circuits))
    assert (found.count, found.different) == (count, different)


def test_a_pattern_may_be_another() -> None:
    first, then = trained(["epoch 2: 17 right"]), trained(["epoch 2: 18 right"])
    assert compare(r"(\d+) right", first, then).different == ((0, "17", "18"),)
    assert compare(r"epoch \d", first, then).different == ()
