"""Steps predicted from a recorded run: what data took, simulated runs and intervals by hand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lightrig.harness.jobs.predicted_steps import (
    matched,
    predicted_step,
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


def reduction(asked, ended, amount=1000, members=(0, 1), link="dp"):
    return RecordedOperation("allreduce", members, amount, asked, ended, link=link)


def took(ranks):
    """Return what the data of each operation took, by rank."""
    return [[one.took for one in operations] for operations in matched(ranks)]


def test_data_move_from_when_the_last_rank_wants_them() -> None:
    """90 from 310 on, 70 from 500, and 330 from 770.

    The first of rank 0 still runs when it wants the second, which moves data afterwards alone.
    """
    ranks = [
        [reduction(100, 400), reduction(390, 570), reduction(600, 1090, 3000)],
        [reduction(310, 390), reduction(500, 560), reduction(770, 1100, 3000)],
    ]
    assert took(ranks) == [[(90,), (70,), (330,)]] * 2
    assert [[one.ended for one in of] for of in matched(ranks)] == [[400, 570, 1100]] * 2


def test_operations_at_once_move_data_one_after_the_other() -> None:
    """Both are wanted at 0 by both; the second has its data 60 after the first one."""
    each = [reduction(0, 100, 0), reduction(0, 160, 0)]
    assert took([each, each]) == [[(100,), (60,)]] * 2


def test_a_message_moves_once_its_receive_is_wanted() -> None:
    """Rank 0 wants to send at 100 what rank 1 wants at 500 and has at 560."""
    ranks = [
        [RecordedOperation("send", (0, 1), 600, 100, 555, "s")],
        [RecordedOperation("recv", (0, 1), 600, 500, 560, "r")],
    ]
    assert took(ranks) == [[(60,)]] * 2


def test_a_joined_exchange_has_the_time_of_each_message() -> None:
    """Both ranks send and receive: from 20 to 70 one way, and from 40 to 90 the other."""
    ranks = [
        [RecordedOperation("send", (0, 1), 10, 20, 70, "s"),
         RecordedOperation("recv", (0, 1), 10, 40, 90, "r")],
        [RecordedOperation("batch", (0, 1), 20, 10, 90, "rs")],
    ]  # fmt: skip
    assert took(ranks) == [[(70,), (50,)], [(70, 50)]]


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
    """Three ranks compute 20, 70 and 30, and move data for 10."""
    ranks = matched(steps_of((20, 70, 30), took=10))
    found = simulated_steps(ranks, [[(0, 1), (1, 2), (2, 3)]] * 3, [0] * 3)
    assert found == [70 + 10] * 3


def test_a_sender_waits_for_its_receive() -> None:
    """Rank 0 computes 10 and sends, rank 1 computes 100 and receives: 5 later both have it.

    Each then computes 20: were the send to end without its receive, rank 0 would be ahead.
    """
    ranks = [
        [RecordedOperation("send", (0, 1), 0, at + 10, at + 105, "s") for at in (0, 105, 210)],
        [RecordedOperation("recv", (0, 1), 0, at + 100, at + 105, "r") for at in (0, 105, 210)],
    ]
    found = simulated_steps(matched(ranks), [[(0, 1), (1, 2)]] * 2, [0, 1])
    assert found == [105] * 2


def test_a_run_that_waits_for_nothing_more_takes_as_long() -> None:
    """Three ranks end what they do together up to 40 apart, and the first time takes 900.

    The last one to want each all-reduce is another rank each time; steps are those between the
    last ends: 175, 90 and 205.
    """
    asked = [(5, 10, 100), (1010, 1090, 1050), (1240, 1190, 1200), (1310, 1400, 1330)]
    ended = [(1000, 990, 960), (1175, 1165, 1170), (1230, 1265, 1250), (1465, 1470, 1430)]
    ranks = [
        [reduction(a[rank], e[rank], members=(0, 1, 2)) for a, e in zip(asked, ended, strict=True)]
        for rank in range(3)
    ]
    bounds = [[(0, 1), (1, 2), (2, 3)]] * 3
    assert simulated_steps(matched(ranks), bounds, [0] * 3) == [175, 90, 205]


def test_what_no_rail_carries_is_waited_for() -> None:
    """Rank 1 comes to the front end 40 after rank 0, and both leave it 7 later."""
    ranks = [
        [reduction(0, 1), reduction(11, 58, 64, link=FRONT_END), reduction(60, 63)],
        [reduction(0, 1), reduction(51, 58, 64, link=FRONT_END), reduction(60, 63)],
    ]
    (step,) = simulated_steps(matched(ranks), [[(0, 2)]] * 2, [0, 0])
    assert step == 50 + 7 + 2 + 3


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
    found = predicted(job, run, tables, mode, change)
    assert found.step.value == pytest.approx(step, rel=1e-3)
    assert found.ranks == 8
    assert "100 ms" not in " ".join(found.assumptions)


def run_of_batches(parts, steps=5):
    """A pipeline of two stages with two replicas: a batch between stages, then sums of replicas.

    parts: the order in which the ranks of each stage list what they send and receive at once.
    """
    job = RailJob.grid("job", 2, [2])
    operations = {rank: [] for rank in range(4)}
    for rank, of in operations.items():
        dimensions = {group.dimension: name for name, group in job.groups.items()
                      if rank in group.ranks}  # fmt: skip
        at = 0
        for step in range(steps):
            for dimension, compute in zip(sorted(dimensions), COMPUTES, strict=True):
                asked, at = at + compute, at + compute + MS
                stamps = [Span(each, each) for each in (asked, asked, at)]
                batch = ".pp" in dimensions[dimension]
                kind = ("batch", 1000) if batch else ("allreduce", 500)
                wanted = Wanted(dimensions[dimension], step, *kind)
                of.append(Done(wanted, *stamps, parts=parts[job.stage_of[rank]] * batch))
    tables = [
        PhaseTable(
            tuple(
                Operation(done.operation.group, 0, job.groups[done.operation.group].dimension)
                for done in of[:2]
            ),
            joined=tuple(max(1, len(done.parts)) for done in of[:2]),
        )
        for of in operations.values()
    ]
    return job, Trained(operations, {}), tables


@pytest.mark.parametrize("parts", [("sr", "sr"), ("rs", "sr"), ("ssr", "srr"), ("rrs", "ssr")])
def test_a_batch_is_one_operation_in_whatever_order_its_ends_list_it(parts) -> None:
    """Both stages send at once, for 1 ms: a batch is granted as a whole, and asked for once."""
    job, run, tables = run_of_batches(parts)
    found = predicted(job, run, tables, "default", 10 * MS)
    changes = 2 * (10 * MS + GATHERING)
    assert found.step.value == pytest.approx(sum(COMPUTES) + 2 * MS + changes, rel=1e-3)


def test_what_the_control_plane_does_not_follow_is_run_without_a_prediction() -> None:
    """Each stage sends first, and nothing says that the two are one operation."""
    job, run, tables = run_of_batches(("sr", "sr"))
    apart = []
    for table in tables:
        batch, total = sorted(table.operations, key=lambda one: not one.asymmetric)
        apart.append(PhaseTable((batch, replace(batch, index=1), total)))
    found = predicted(job, run, apart, "default", 10 * MS)
    assert found.endswith("r0.pp0-1.0#1 ended and was never started")


def test_without_a_timed_change_nothing_is_predicted() -> None:
    job, run, tables = run_of_two_dimensions()
    assert "no change of circuits was timed" in predicted(job, run, tables, "default", None)
    job, run, tables = run_of_two_dimensions(steps=2)
    assert "has 1 steps behind the first" in predicted(job, run, tables, "default", MS)


def test_operations_without_a_pattern_are_predicted_by_their_times() -> None:
    """A gather of all ranks takes in the simulated run what it took in the recorded one."""
    ranks = steps_of((20, 70), took=9)
    named = [[replace(one, kind="gather") for one in operations] for operations in ranks]
    assert simulated_steps(matched(named), [[(0, 1), (1, 2)]] * 2, [0, 0]) == [79, 79]


def test_members_of_a_collective_have_its_largest_amount() -> None:
    """A scatter of 400 bytes at its root and 100 elsewhere; messages stay as they are."""
    scatter = [RecordedOperation("scatter", (0, 1), amount, 0, 9) for amount in (100, 400)]
    send = RecordedOperation("send", (0, 1), 70, 10, 12, "s")
    again = [replace(one, amount=one.amount // 4) for one in scatter]
    ranks = [[one, send, two] for one, two in zip(scatter, again, strict=True)]
    found = matched(ranks)
    assert [[one.amount for one in of] for of in found] == [[400, 70, 100]] * 2


def test_ranks_that_wait_for_each_other_end_the_simulation() -> None:
    """Each of three ranks wants what the next one wants later."""
    pairs = [((0, 1), (0, 2)), ((1, 2), (0, 1)), ((0, 2), (1, 2))]
    ranks = [[reduction(0, 1, members=pair) for pair in each] for each in pairs]
    with pytest.raises(WorkloadError, match="waits for ever"):
        simulated_steps(matched(ranks), [[(0, 1)]] * 3, [0] * 3)


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
    found = predicted(job, Trained(operations, {}), [table] * 2, "default", None)
    assert found.step.n == 3
    assert found.step.value == pytest.approx(100, abs=12)


@pytest.mark.parametrize("first", [100, 170])
def test_the_interval_is_that_of_another_run(first) -> None:
    """Steps of 90, 100 and 110: a standard deviation of 10, and 4.303 of them by Student's t.

    The mean of another run deviates by 4.303 x 10 x sqrt(2 / 3), and as a whole by a fifth. What
    the first step takes more is no deviation.
    """
    found = predicted_step([200, 210, 190], [first, 90, 100, 110], 4, ["so"])
    assert found.step.value == 200
    half = ((4.3027 * 10 * (2 / 3) ** 0.5) ** 2 + 40**2) ** 0.5
    assert found.step.upper - 200 == pytest.approx(half, rel=1e-4)
    assert 200 - found.step.lower == pytest.approx(half, rel=1e-4)
    assert found.document()["computed"] is True


def test_of_two_steps_both_deviate() -> None:
    """90 and 110: a standard deviation of 14.1, 12.706 of them by Student's t, and a fifth."""
    found = predicted_step([2000, 2000], [90, 110], 4, [])
    half = ((12.706 * 200**0.5) ** 2 + 400**2) ** 0.5
    assert found.step.upper - 2000 == pytest.approx(half, rel=1e-4)


@pytest.mark.parametrize(
    ("measured", "printed"),
    [
        (239 * MS, "its interval holds the measured step"),
        (280 * MS, "its interval does NOT hold the measured step, which takes +40%"),
        (120 * MS, "its interval does NOT hold the measured step, which takes -40%"),
        (None, "nothing was measured beside it"),
    ],
)
def test_it_stands_beside_what_was_measured(measured, printed) -> None:
    found = predicted_step([200 * MS] * 3, [200 * MS] * 3, 4, ["ranks compute as before"])
    mean = measured and MeanEstimate(measured, measured, measured, 3)
    first, *more = found.lines(mean)
    assert first.startswith("predicted 200 ms (95 % interval 160 … 240, n = 3), computed before")
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
