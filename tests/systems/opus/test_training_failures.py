"""Failures of a training job: numbers of its attempts, what each costs, and faults as text."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.jobs.measure.light_faults import FaultError
from lightrig.harness.jobs.printed_numbers import Lines, compare
from lightrig.harness.jobs.statistics.means import MeanEstimate
from lightrig.harness.jobs.training import RESULTS
from lightrig.harness.systems.opus.measurements.training_failures import (
    FailureCost,
    failure_costs,
)
from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError, LostLink
from lightrig.harness.systems.opus.runtime.restarts import Failure
from lightrig.harness.systems.opus.runtime.training import Attempt
from lightrig.harness.systems.opus.runtime.training_faults import (
    TrainingFault,
    parse_training_fault,
)
from lightrig.instruments.clock import Span
from lightrig.testbeds import LightrigError, Port, load

# ------------------------------------------------------------------------ printed numbers


def lines(*of_rank: Sequence[str]) -> Lines:
    return {rank: [(Span(0, 0), line) for line in each] for rank, each in enumerate(of_rank)}


def steps(first: int, *values: float) -> list[str]:
    return [f"step {first + place} loss {value}" for place, value in enumerate(values)]


def test_attempts_together_print_what_one_run_does() -> None:
    """By hand: 5 and 4 numbers, then from the second step, then from the fourth: 3 + 2 + 1 + 1."""
    ring = lines(steps(0, 5.5, 4.25, 4.25, 3, 2, 1), steps(0, 9, 8, 7, 6, 5, 4))
    attempts = (
        lines(steps(0, 5.5, 4.25, 4.25, 3, 2), steps(0, 9, 8, 7, 6)),
        lines(steps(2, 4.25, 3, 2), steps(2, 7, 6)),
        lines(steps(4, 2, 1), steps(4, 5, 4)),
    )
    found = compare(RESULTS, ring, *attempts)
    assert (found.count, found.different, found.again) == (12, (), 3 + 1 + 2 + 0)
    assert found.begins == pytest.approx((0, 2 / 6, 4 / 6))


def test_numbers_of_repeated_steps_must_be_equal_both_times() -> None:
    ring = lines(steps(0, 5, 4, 3, 2))
    found = compare(RESULTS, ring, lines(steps(0, 5, 4, 3)), lines(steps(1, 4, 3.5, 2)))
    assert found.different == ((0, "3", "3.5"),)
    found = compare(RESULTS, ring, lines(steps(0, 5, 4.5, 3)), lines(steps(1, 4, 3, 2)))
    assert found.different == ((0, "4", "4.5"),)


def test_numbers_that_no_attempt_has_printed_are_missing() -> None:
    """The restart goes on after a step whose number was lost with its rank."""
    ring = lines(steps(0, 5, 4, 3, 2, 1))
    found = compare(RESULTS, ring, lines(steps(0, 5, 4)), lines(steps(3, 2, 1)))
    assert found.different == ((0, "3", ""),)
    found = compare(RESULTS, ring, lines(steps(0, 5, 4)), lines(steps(1, 4, 3)))
    assert [each[1:] for each in found.different] == [("2", ""), ("1", "")]


def test_places_are_found_where_lines_have_no_step() -> None:
    ring = lines([f"loss {value}" for value in (7, 7, 5, 5, 3)])
    found = compare(
        RESULTS, ring, lines(["loss 7", "loss 7", "loss 5"]), lines(["loss 5", "loss 5", "loss 3"])
    )
    assert (found.different, found.again, found.begins) == ((), 1, (0, 2 / 5))


def test_an_attempt_begins_no_later_than_the_one_before_has_come() -> None:
    """Equal numbers leave its place open: the last one that leaves out none is taken."""
    ring = lines(["loss 7"] * 6)
    found = compare(RESULTS, ring, *(lines(["loss 7"] * count) for count in (3, 2, 2)))
    assert (found.different, found.again) == ((), 1)
    assert found.begins == pytest.approx((0, 3 / 6, 4 / 6))


# -------------------------------------------------------------------------------- costs


def attempt(began: int, ends: Mapping[int, Sequence[tuple[int, int]]], **more: Any) -> Attempt:
    listener: Any = SimpleNamespace(
        began=began,
        count=len(ends),
        steps={rank: [Span(*at) for at in each] for rank, each in ends.items()},
    )
    over: Any = None
    return Attempt(listener, over, **more)


def test_the_parts_of_a_failure_add_up() -> None:
    """Rank 1 has ended two steps, rank 0 three: step 3 was under way. Step 2 is done again.

    It begins at 1000 + 30, when rank 0 had ended the second step; the restart, from the first
    checkpoint after one step, has done it again on both ranks at 9207.
    """
    lost = LostLink(Port("s0", "a"), Port("s1", "a"), (), Span(1040, 1042), 2000, 50)
    first = attempt(
        1000,
        {0: [(1010, 1011), (1030, 1031), (1050, 1050)], 1: [(1012, 1013), (1020, 1025)]},
        failed=3100,
    )
    last = attempt(
        9100,
        {
            0: [(9200, 9203), (9300, 9300), (9400, 9400)],
            1: [(9204, 9207), (9290, 9290), (9410, 9410)],
        },
    )
    failure = Failure(LinkLostError(lost), first, ended=3500, circuits=4200, programs=8000)
    (cost,) = failure_costs([failure], last, 4, (0.0, 0.25))
    assert (cost.step, cost.again) == (3, 1)
    assert list(cost.parts.values()) == [
        (1040 - 1031, 1042 - 1030),
        (3100 - 1042, 3100 - 1040),
        (400, 400),
        (700, 700),
        (3800, 3800),
        (1100, 1100),
        (9204 - 9100, 9207 - 9100),
    ]
    least, most = cost.cost
    assert least <= 9204 - 1031
    assert most >= 9207 - 1030
    assert most - least == (9207 - 9204) + (1031 - 1030) + 2 * (1042 - 1040)
    assert (
        next(cost.lines()) == "failure   in step 3: s0.a has no carrier: its link with s1.a is lost"
    )


def test_a_fault_that_was_made_counts_from_its_moment_and_no_step_need_be_repeated() -> None:
    first = attempt(10, {0: [(20, 20)]}, failed=70, fault=33)
    failure = Failure(LightrigError("s0 lost rank 0\n  because"), first, 71, 80, 90)
    last = attempt(100, {0: [(130, 130), (150, 150)]})
    (cost,) = failure_costs([failure], last, 3, ())
    assert (cost.step, cost.again, cost.cause) == (None, None, "s0 lost rank 0")
    (cost,) = failure_costs([failure], last, 3, (0.0, 1 / 3))
    assert (cost.step, cost.again) == (2, 0)
    assert [part.latest for part in cost.parts.values()] == [13, 37, 1, 9, 10, 10, 0]


def test_the_steps_of_the_last_attempt_say_where_it_began() -> None:
    """Of a script that prints each second step, numbers point at another step."""
    first = attempt(10, {0: [(20, 20), (30, 30)]}, failed=70, fault=33)
    failure = Failure(LightrigError("lost"), first, 71, 80, 90)
    last = attempt(100, {0: [(130, 130), (150, 150)]})
    (cost,) = failure_costs([failure], last, 4, (0.0, 0.25))
    assert (cost.step, cost.again) == (3, 0)


def test_of_two_failures_the_second_begins_where_the_first_was_caught_up() -> None:
    """The second attempt fails in the first step that it does again: its time is the second's."""
    first = attempt(0, {0: [(10, 10), (20, 20)]}, failed=25, fault=22)
    second = attempt(100, {0: []}, failed=140, fault=130)
    last = attempt(300, {0: [(310, 310), (320, 320), (330, 330)]})
    failures = [
        Failure(LightrigError("one"), first, 30, 40, 50),
        Failure(LightrigError("two"), second, 150, 160, 170),
    ]
    one, two = failure_costs(failures, last, 3, (0.0, 0.0, 0.0))
    assert (one.step, one.again, two.step, two.again) == (3, 2, 1, 0)
    assert one.cost == Span(100 - 20, 100 - 20)
    assert two.cost == Span(300 - 100, 300 - 100)


# ------------------------------------------------------------------------ faults as text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cut:5s,step=4", TrainingFault("cut", 4, "server0.nic0.p0", 5_000_000_000)),
        (
            "cut:250ms,step=12,port=server3.nic0.p1",
            TrainingFault("cut", 12, "server3.nic0.p1", 250_000_000),
        ),
        ("kill:server2,step=1", TrainingFault("kill", 1, "server2")),
        ("cut:1s,step=2,port=server1.nic0", TrainingFault("cut", 2, "server1.nic0.p0", 10**9)),
    ],
)
def test_faults_are_read(text: str, fault: TrainingFault) -> None:
    assert parse_training_fault(text, load("testbeds/rails4.yaml")) == fault


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flap:1s,step=4", "found 'flap', expected one of cut, kill"),
        ("cut:1s", "step=N is missing"),
        ("cut:1s,step=0", "step=N is missing"),
        ("cut:soon,step=1", "'soon'"),
        ("cut:1s,step=1,port=server9.nic0.p0", "expected a port: server0.nic0.p0, "),
        ("kill:server7,step=1", "expected a server: server0, "),
        ("kill:server1,step=1,port=server1.nic0.p0", "a kill has no setting 'port'"),
    ],
)
def test_texts_that_are_no_fault_are_refused(text: str, says: str) -> None:
    with pytest.raises(FaultError, match=says):
        parse_training_fault(text, load("testbeds/rails4.yaml"))


def test_a_rail_that_was_left_and_what_a_step_takes_since_are_said() -> None:
    before, since = MeanEstimate(2e8, 1.8e8, 2.2e8, 3), MeanEstimate(4e8, 3.5e8, 4.5e8, 7)
    parts = {"until it is noticed": Span(2, 3)}
    cost = FailureCost("lost", "the fault", 5, 0, parts, None, ((0, 1),), before, since)
    *_, rerouted, steps = cost.lines()
    assert "the traffic of rail 0 moved to the links of rail 1, a ring" in rerouted
    assert steps.split() == f"a step took {before} before, {since} since".split()
    *_, last = FailureCost("lost", "the fault", 5, 0, parts).lines()
    assert "step took" not in last
