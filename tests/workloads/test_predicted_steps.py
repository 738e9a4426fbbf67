"""Steps predicted from a recorded run: lines, simulated runs and intervals by hand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lightrig.harness.jobs.predicted_steps import (
    Line,
    fitted_line,
    fitted_lines,
    predicted_step,
    same_amounts,
    simulated_steps,
)
from lightrig.harness.jobs.recorded_steps import RecordedOperation
from lightrig.harness.jobs.statistics.means import MeanEstimate
from lightrig.harness.systems.opus.measurements.predicted_run import predicted
from lightrig.harness.systems.opus.planning.gathering import GATHERING
from lightrig.harness.systems.opus.planning.operations import Operation, RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.workloads.graph import FRONT_END, WorkloadError
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import Done, Wanted

MS = 1_000_000


def test_a_line_goes_through_times_of_sizes() -> None:
    """300 ns and 2 ns a byte, by three sizes of which one comes twice."""
    found = fitted_line([100, 1000, 100, 400], [500, 2300, 500, 1100], 0.5)
    assert found == pytest.approx(Line(300, 2))


def test_one_size_takes_the_rate_of_the_link() -> None:
    assert fitted_line([100, 100], [700, 900], 0.5) == Line(750, 0.5)


def test_no_byte_takes_less_than_the_link_needs() -> None:
    """Times that fall with the size: 0.5 ns a byte, and what is left of the mean of 800."""
    assert fitted_line([100, 300], [900, 700], 0.5) == Line(700, 0.5)


def test_no_line_begins_below_zero() -> None:
    """Least squares through (100, 50) and (300, 550) begin at -200: 1.5 ns a byte from 0 on."""
    found = fitted_line([100, 300], [50, 550], 0.5)
    assert found == Line(0, 1.5)
    assert found.byte * (100 + 300) == 50 + 550


def reduction(asked, ended, amount=1000, members=(0, 1), link="dp"):
    return RecordedOperation("allreduce", members, amount, asked, ended, link=link)


def test_data_move_from_when_the_last_rank_wants_them() -> None:
    """Of 1,000 bytes 500 twice: 90 from 310 on, 70 from 500; of 3,000 bytes 3,000: 330 from 770.

    The first of rank 0 still runs when it wants the second, which moves data afterwards alone.
    """
    ranks = [
        [reduction(100, 400), reduction(390, 570), reduction(600, 1100, 3000)],
        [reduction(310, 400), reduction(500, 570), reduction(770, 1100, 3000)],
    ]
    (line,) = fitted_lines(ranks, 8e9).values()
    # Means: 5,000 bytes in 490 ns; the slope of least squares is 250 / 2,000 < 1 ns of the link.
    assert line == Line(0, 490 / 5000)


def test_operations_at_once_move_data_one_after_the_other() -> None:
    """Both are wanted at 0 by both; the second has its data 60 after the first one."""
    each = [reduction(0, 100, 0), reduction(0, 160, 0)]
    (line,) = fitted_lines([each, each], 8e9).values()
    assert line == Line(80, 1)


def test_a_message_moves_once_its_receive_is_wanted() -> None:
    """600 bytes of rank 0, which wants to send at 100 what rank 1 wants at 500 and has at 560."""
    ranks = [
        [RecordedOperation("send", (0, 1), 600, 100, 555, "s")],
        [RecordedOperation("recv", (0, 1), 600, 500, 560, "r")],
    ]
    assert fitted_lines(ranks, 80e9) == {("pp", "message", 2): Line(0, pytest.approx(0.1))}


def steps_of(compute, count=4, took=5):
    """Ranks that compute so long before each of `count` all-reduces, each of which takes `took`."""
    ranks = [[] for _ in compute]
    at = 0
    for _ in range(count):
        asked = [at + each for each in compute]
        at = max(asked) + took
        for rank, wanted in enumerate(asked):
            ranks[rank].append(reduction(wanted, at, members=tuple(range(len(compute)))))
    return ranks


def test_a_step_is_its_slowest_rank_and_its_data() -> None:
    """Three ranks compute 20, 70 and 30; 4 / 3 of 1,000 bytes at 0.003 ns, and 6 ns."""
    ranks = steps_of((20, 70, 30))
    lines = {("dp", "allreduce", 3): Line(6, 0.003)}
    found = simulated_steps(ranks, [[(0, 1), (1, 2), (2, 3)]] * 3, [0] * 3, lines)
    assert found == [70 + 10] * 3


def test_a_sender_waits_for_its_receive() -> None:
    """Rank 0 computes 10 and sends, rank 1 computes 100 and receives: 5 later both have it.

    Each then computes 20: were the send to end without its receive, rank 0 would be ahead.
    """
    ranks = [
        [RecordedOperation("send", (0, 1), 0, at + 10, at + 105, "s") for at in (0, 105, 210)],
        [RecordedOperation("recv", (0, 1), 0, at + 100, at + 105, "r") for at in (0, 105, 210)],
    ]
    lines = {("pp", "message", 2): Line(5, 1)}
    found = simulated_steps(ranks, [[(0, 1), (1, 2)]] * 2, [0, 1], lines)
    assert found == [105] * 2


def test_what_no_rail_carries_is_waited_for() -> None:
    """Rank 1 comes to the front end 40 after rank 0, and both leave it 7 later."""
    ranks = [
        [reduction(0, 1), reduction(11, 58, 64, link=FRONT_END), reduction(60, 63)],
        [reduction(0, 1), reduction(51, 58, 64, link=FRONT_END), reduction(60, 63)],
    ]
    lines = fitted_lines(ranks, 8e12)
    (step,) = simulated_steps(ranks, [[(0, 2)]] * 2, [0, 0], lines)
    # 50 of computing, 7, 2, and 2 as the mean of 1 and 3 of the all-reduces.
    assert step == pytest.approx(50 + 7 + 2 + 2, abs=1)


COMPUTES = (3 * MS, 25 * MS)
"""Before the operations of the first and of the second dimension."""


def run_of_two_dimensions(steps=5, rails=2):
    """A run of four ranks on each of two rails: rings of two in one dimension, then the other."""
    job = RailJob.grid("job", 1, [2, 2], rails)
    operations = {rank: [] for rank in range(4 * rails)}
    for rank, of in operations.items():
        groups = [
            group.name
            for dimension in (1, 2)
            for group in job.groups.values()
            if rank in group.ranks and group.dimension == dimension
        ]
        at = 0
        for step in range(steps):
            for name, compute in zip(groups, COMPUTES, strict=True):
                asked, at = at + compute, at + compute + MS
                stamps = [Span(each, each) for each in (asked, asked, at)]
                of.append(Done(Wanted(name, step, "allreduce", 1000), *stamps))
    tables = [
        PhaseTable(
            tuple(
                Operation(name, 0, job.groups[name].dimension)
                for name in (done.operation.group for done in of[:2])
            )
        )
        for of in operations.values()
    ]
    return job, Trained(operations, {}), tables


@pytest.mark.parametrize(
    ("mode", "change", "step"),
    [
        # Each change begins a gathering time after the last rank has asked for it.
        ("default", 10 * MS, sum(COMPUTES) + 2 * MS + 2 * (10 * MS + GATHERING)),
        # One is hidden behind 25 ms of computing, of the other all but 3 ms is waited for.
        ("provisioning", 10 * MS, 25 * MS + 2 * MS + 10 * MS + GATHERING),
        ("provisioning", 40 * MS, 2 * MS + 2 * (40 * MS + GATHERING)),
    ],
)
def test_changes_are_predicted_by_the_control_plane(mode, change, step) -> None:
    """Two dimensions on two rails, in turn: a change to each in every step."""
    job, run, tables = run_of_two_dimensions()
    found = predicted(job, run, tables, mode, 8e12, change)
    assert found.step.value == pytest.approx(step, rel=1e-3)
    assert found.ranks == 8
    assert "100 ms" not in " ".join(found.assumptions)


def test_without_a_timed_change_nothing_is_predicted() -> None:
    job, run, tables = run_of_two_dimensions()
    assert "no change of circuits was timed" in predicted(job, run, tables, "default", 8e9, None)
    job, run, tables = run_of_two_dimensions(steps=2)
    assert "has 1 steps behind the first" in predicted(job, run, tables, "default", 8e9, MS)


def test_operations_without_a_pattern_are_predicted_by_their_times() -> None:
    """A gather of all ranks takes in the simulated run what it took in the recorded one."""
    ranks = steps_of((20, 70), took=9)
    named = [[replace(one, kind="gather") for one in operations] for operations in ranks]
    lines = fitted_lines(named, 8e12)
    assert simulated_steps(named, [[(0, 1), (1, 2)]] * 2, [0, 0], lines) == [79, 79]


def test_members_of_a_collective_have_its_largest_amount() -> None:
    """A scatter of 400 bytes at its root and 100 elsewhere; messages stay as they are."""
    scatter = [RecordedOperation("scatter", (0, 1), amount, 0, 9) for amount in (100, 400)]
    send = RecordedOperation("send", (0, 1), 70, 10, 12, "s")
    again = [replace(one, amount=one.amount // 4) for one in scatter]
    ranks = [[one, send, two] for one, two in zip(scatter, again, strict=True)]
    found = same_amounts(ranks)
    assert [[one.amount for one in of] for of in found] == [[400, 70, 100]] * 2


def test_ranks_that_wait_for_each_other_end_the_simulation() -> None:
    """Each of three ranks wants what the next one wants later."""
    pairs = [((0, 1), (0, 2)), ((1, 2), (0, 1)), ((0, 2), (1, 2))]
    ranks = [[reduction(0, 1, members=pair) for pair in each] for each in pairs]
    with pytest.raises(WorkloadError, match="waits for ever"):
        simulated_steps(ranks, [[(0, 1)]] * 3, [0] * 3, {("dp", "allreduce", 2): Line(5, 1)})


def test_joined_messages_are_one_operation_of_the_table() -> None:
    """Ranks send each other 10 bytes as two operations a step, which the table has as one."""
    job = RailJob.grid("job", 2, [1])
    (name,) = (group.name for group in job.groups.values() if len(group.ranks) == 2)
    operations = {0: [], 1: []}
    for step in range(4):
        for rank in (0, 1):
            for number in (0, 1):
                asked = 100 * step + 50 + 10 * rank + number
                done = Done(Wanted(name, 2 * step + number, "send", 10),
                            *(Span(at, at) for at in (asked, asked, 100 * step + 70 + number)),
                            parts="sr"[number])  # fmt: skip
                operations[rank].append(done)
    table = PhaseTable((Operation(name, 0, 0),), joined=(2,), still=True)
    found = predicted(job, Trained(operations, {}), [table] * 2, "default", 8e12, None)
    assert found.step.n == 3
    assert found.step.value == pytest.approx(100, abs=12)


def test_the_interval_is_that_of_another_run() -> None:
    """Steps of 90, 100 and 110: a standard deviation of 10, and 4.303 of them by Student's t.

    The mean of another run deviates by 4.303 x 10 x sqrt(2 / 3), and as a whole by a tenth.
    """
    found = predicted_step([200, 210, 190], [90, 100, 110], 4, ["so"])
    assert found.step.value == 200
    half = ((4.3027 * 10 * (2 / 3) ** 0.5) ** 2 + 20**2) ** 0.5
    assert found.step.upper - 200 == pytest.approx(half, rel=1e-4)
    assert 200 - found.step.lower == pytest.approx(half, rel=1e-4)
    assert found.document()["computed"] is True


@pytest.mark.parametrize(
    ("measured", "printed"),
    [
        (215 * MS, "its interval holds the measured step"),
        (280 * MS, "its interval does NOT hold the measured step, which takes +40%"),
        (120 * MS, "its interval does NOT hold the measured step, which takes -40%"),
        (None, "nothing was measured beside it"),
    ],
)
def test_it_stands_beside_what_was_measured(measured, printed) -> None:
    found = predicted_step([200 * MS] * 3, [200 * MS] * 3, 4, ["ranks compute as before"])
    mean = measured and MeanEstimate(measured, measured, measured, 3)
    first, *more = found.lines(mean)
    assert first.startswith("predicted 200 ms (95 % interval 180 … 220, n = 3), computed before")
    assert first.endswith(printed)
    assert more[0] == "          assumed: ranks compute as before"


def test_it_is_stored_behind_what_is_there(tmp_path) -> None:
    file = tmp_path / "predictions.jsonl"
    found = predicted_step([200, 210, 190], [90, 100, 110], 4, [])
    found.store(file, "a.py")
    found.store(file, "b.py")
    lines = [SimpleNamespace(**json.loads(line)) for line in file.read_text().splitlines()]
    assert [line.script for line in lines] == ["a.py", "b.py"]
    assert lines[1].step["value"] == 200
    with pytest.raises(OSError, match="No such file"):
        found.store(tmp_path / "no" / "such", "a.py")
