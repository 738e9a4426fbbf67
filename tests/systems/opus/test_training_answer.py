"""Shares of a training step, from times that are written down here by hand."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from lightrig.harness.jobs.printed_numbers import Lines, compare, joined
from lightrig.harness.jobs.statistics.means import mean_of
from lightrig.harness.jobs.training import RESULTS
from lightrig.harness.systems.opus.measurements.step_parts import parts_by_step
from lightrig.harness.systems.opus.measurements.training import (
    deviation_of_steps,
)
from lightrig.harness.systems.opus.measurements.training_answer import (
    front_end_uses,
)
from lightrig.harness.systems.opus.planning.operations import Operation
from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    ChangeStamps,
    Confirmed,
    Rewiring,
)
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.systems.opus.runtime.rails import Journal, Wait
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import Done, Wanted
from lightrig.testbeds import Circuit


def done(group: str, index: int, asked: int, began: int, ended: int) -> Done:
    stamps = (Span(at - 1, at) for at in (asked, began, ended))
    return Done(Wanted(group, index, "allreduce", 8), *stamps)


def table(*groups: tuple[str, int]) -> PhaseTable:
    return PhaseTable(tuple(Operation(name, 0, dimension) for name, dimension in groups))


# What each part is, by hand; the words are those of the answer.
NO_CIRCUITS = dict.fromkeys(("queue", "switch", "light", "link"), 0)


def test_a_step_is_divided_among_computing_control_and_moving_data() -> None:
    """Two ranks, two operations a step; the second step alone is counted, from 100 on.

    Rank 0: wants `data` at 130, which rank 1 wants at 150, begins at 163 on both and ends at 170;
    wants `pair` at 180 and has it at once, until 200. Rank 1 ends `data` at 171 and begins `pair`
    at 184, which the other began at 180, until 207. No circuit changes, so none is waited for.
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
    (step,) = parts_by_step(trained, [table(("data", 1), ("pair", 0))] * 2)
    computes = (30 + 10, 50 + 13)  # 100 to 130 and 170 to 180; 100 to 150 and 171 to 184
    ranks = (20 + 4, 0)  # 130 to 150 and 180 to 184
    control = (13, 13)  # 150 to 163 on both
    data = (7 + 16, 8 + 23)
    assert step.parts == {
        "computes": sum(computes) / 2,
        "waits for other ranks": sum(ranks) / 2,
        "uses the front end": 0,
        "control": sum(control) / 2,
        "moves data": sum(data) / 2,
        **NO_CIRCUITS,
    }
    assert sum(step.parts.values()) == (100 + 107) / 2
    assert (step.waits, step.unknown) == (0, 0)


def test_operations_at_once_count_once_and_data_first() -> None:
    """From 100 on, `a` moves data from 110 to 130; `b` waits from 105 to 125, moves until 150."""
    operations = [
        *(done("a", 0, 1, 1, 2), done("b", 0, 3, 3, 100)),
        *(done("a", 1, 110, 110, 130), done("b", 1, 105, 125, 150)),
        *(done("a", 2, 155, 155, 156), done("b", 2, 157, 157, 160)),
    ]
    second, third = parts_by_step(Trained({0: operations}, {}), [table(("a", 1), ("b", 2))])
    assert second.parts == {
        "computes": 5,  # 100 to 105
        "waits for other ranks": 0,
        "uses the front end": 0,
        "control": 5,  # 105 to 110
        "moves data": 40,  # 110 to 150
        **NO_CIRCUITS,
    }
    assert third.parts["computes"] == 5 + 1  # 150 to 155 and 156 to 157


def test_the_front_end_counts_from_when_the_last_rank_wants_it() -> None:
    """Rank 0 wants it at 110 and rank 1 at 130; it ends at 150, 5 after an operation of a rail."""
    rails = [done("a", 0, 1, 1, 100), done("a", 1, 140, 141, 145), done("a", 2, 190, 190, 200)]
    beside = {rank: [done("front end 0,1", 0, at, at, 150)] for rank, at in ((0, 110), (1, 130))}
    run = Trained({0: rails, 1: rails}, {}, front_end=beside)
    (step, _) = parts_by_step(run, [table(("a", 1))] * 2)
    assert step.parts == {
        "computes": (10 + 30) / 2,  # from 100 on
        "waits for other ranks": 20 / 2,
        "uses the front end": 10,  # 130 to 140; to 150 is beyond the step's end
        "control": 1,
        "moves data": 4,
        **NO_CIRCUITS,
    }
    (use,) = front_end_uses(run)
    assert (use.kind, use.count, use.size, use.time) == ("allreduce", 2, 16, 40)


RING = frozenset({Circuit(1, 11)})


def changed(
    agreed: int = 220, wanted: int = 240, stamps: ChangeStamps | None = None, early: int = 0
) -> Trained:
    """A step from 100 to 400, with one operation that all ranks want at 200 and begin at 330.

    The controller has heard of it at 205. The ranks of its stages agree at `agreed`, which it hears
    at 223; no change is
    in the way any more at 230; the switch is wanted at `wanted`, which carries out another command
    until 250, has its own at 255, acknowledges at 285; light is back between 285 and 295 and the
    last carrier at 310. `early`: by so much all of that comes earlier.
    """
    stamps = stamps or ChangeStamps(255 - early, 285 - early, Span(285 - early, 295 - early), 310)
    first = Rewiring(235, "ocs", "rail 1 v1", frozenset(), frozenset({Circuit(2, 12)}))
    change = Rewiring(252 - early, "ocs", "rail 0 v1", frozenset(), RING, wanted=wanted - early,
                      agreed=agreed - early, heard=223 - early, due=230 - early)  # fmt: skip
    events = [first, Confirmed(250 - early, "ocs", "rail 1 v1"), change,
              Confirmed(315, "ocs", "rail 0 v1", stamps),
              Began(330, 0, "data#1", "ocs", RING)]  # fmt: skip
    operations = [done("data", 0, 10, 10, 100), done("data", 1, 200, 330, 400)]
    run = Trained({0: operations}, {})
    journal = Journal(events, [], [Wait(205, 0, "data#1", 125)])
    run.rails = SimpleNamespace(journal=journal)  # type: ignore[assignment]
    return run


def test_the_parts_of_a_wait_end_at_stamps_of_their_sides() -> None:
    """Control: 200 to 205, 220 to 223, 250 to 255 and 310 to 330. Light ends at 285 to 295.

    Other ranks 205 to 220, the queue 223 to 230 and on to 250, the switch 255 to 285.
    """
    (step,) = parts_by_step(changed(), [table(("data", 1))])
    assert step.parts == {
        "computes": 100,
        "waits for other ranks": 15,
        "uses the front end": 0,
        "control": 5 + 3 + 5 + 20,
        "queue": 7 + 20,
        "switch": 30,
        "light": 5,
        "link": 20,
        "moves data": 70,
    }
    assert sum(step.parts.values()) == 400 - 100
    assert (step.waits, step.unknown) == (1, 5)


def test_what_of_a_change_passes_before_an_operation_is_wanted_is_no_wait() -> None:
    """All but the last carrier comes 70 earlier: acknowledged at 215, light between 215 and 225."""
    (step,) = parts_by_step(changed(early=70), [table(("data", 1))])
    waits = {name: step.parts[name] for name in ("control", "queue", "switch", "light", "link")}
    # Heard of at 205; the switch until 215; light until 220; the link until 310.
    assert waits == {"control": 5 + 20, "queue": 0, "switch": 10, "light": 5, "link": 90}


def test_a_change_of_other_circuits_is_not_waited_for() -> None:
    run = changed()
    assert run.rails is not None
    run.rails.journal.events[-1] = Began(330, 0, "data#1", "ocs", frozenset({Circuit(3, 13)}))
    (step,) = parts_by_step(run, [table(("data", 1))])
    assert step.parts["control"] == 330 - 200
    assert {name: step.parts[name] for name in NO_CIRCUITS} == NO_CIRCUITS


def test_a_later_change_of_its_circuits_is_not_waited_for() -> None:
    """As after the operation, for the next one."""
    (alone,) = parts_by_step(changed(), [table(("data", 1))])
    run = changed()
    assert run.rails is not None
    later = Rewiring(345, "ocs", "rail 0 v2", frozenset(), RING, wanted=340, agreed=335, due=335)
    run.rails.journal.events += [later, Confirmed(390, "ocs", "rail 0 v2")]
    assert parts_by_step(run, [table(("data", 1))]) == [alone]


@pytest.mark.parametrize(
    ("values", "steps"),
    [([10, 30], 82), ([0, 0], None), ([100, 101], None)],
)
def test_how_many_steps_would_tell_a_wait_from_nothing(values, steps) -> None:
    """By hand: of 10 and 30 the half interval is 12.706 x 10; (127.06 / 20) ** 2 x 2 = 80.7.

    Student's factor shrinks with more steps, which is left aside: fewer would do.
    """
    mean = mean_of(values)
    assert mean.at_least_zero().lower >= 0
    assert mean.steps_needed == steps


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


def test_attempts_of_one_run_are_joined_where_their_lines_are_equal() -> None:
    """The second begins at a checkpoint before step 1, the third has no lines in common with it."""
    first = trained(["step 0 loss 1.5", "begins", "step 1 loss 1.25"], ["loss 7"])
    second = trained(["step 1 loss 1.25", "step 2 loss 1.0"], [])
    third = trained(["step 3 loss 0.5"], ["loss 6"])
    found = joined(RESULTS, first, second, third)
    assert {rank: [line for _, line in lines] for rank, lines in found.items()} == {
        0: ["step 0 loss 1.5", "step 1 loss 1.25", "step 2 loss 1.0", "step 3 loss 0.5"],
        1: ["loss 7", "loss 6"],
    }
