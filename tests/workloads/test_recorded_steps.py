"""Steps that training has recorded, as workloads: by hand, through files and in the simulator."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from lightrig.harness.jobs.recorded_steps import RecordedOperation, median_step, recorded_step
from lightrig.harness.systems.opus.measurements.training_answer import recorded_of
from lightrig.harness.systems.opus.planning.operations import Operation, RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.workloads import chakra
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Kind, Pattern, WorkloadError
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Simulator
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import Done, Wanted

TIMING = Timing(latency=10)


def reduction(asked, ended, members=(0, 1), amount=1000):
    return RecordedOperation("allreduce", members, amount, asked, ended)


def simulated(step):
    return Simulator(step, DedicatedLinks({"dp": 1.0, "pp": 1.0}, TIMING)).run()


def test_waits_for_others_are_left_out():
    """Both compute 70 and 300 before their all-reduce of 2 x (500 + 10), and rank 0 had waited.

    Rank 0 wants it at 1,070 and has it at 1,450, rank 1 at 1,300; both then compute 50 and 20.
    """
    step = recorded_step(
        [
            [reduction(1070, 1450), reduction(1500, 1700)],
            [reduction(1300, 1450), reduction(1470, 1700)],
        ],
        (1000, 1000),
        (0, 0),
    )
    computes = [
        [node.nanoseconds for node in step.graph(rank).nodes if node.kind is Kind.COMPUTE]
        for rank in (0, 1)
    ]
    assert computes == [[70, 50], [300, 20]]
    assert simulated(step).ends == [300 + 1020 + 50 + 1020] * 2


def test_computing_beside_an_operation_goes_on():
    """The second is wanted 40 after the first, which still runs, the third 30 after both ended."""
    step = recorded_step(
        [[reduction(10, 200), reduction(50, 400), reduction(430, 500)]], (0,), (0,)
    )
    nodes = step.graph(0).nodes
    assert [node.nanoseconds for node in nodes if node.kind is Kind.COMPUTE] == [10, 40, 30]
    assert nodes[2].needs == (0,)
    assert nodes[4].needs == (1, 2, 3)


def test_sends_and_receives_meet_by_their_order():
    """Rank 0 sends 600, then sends and receives 400 each as one operation; rank 1 vice versa."""
    step = recorded_step(
        [
            [
                RecordedOperation("send", (0, 1), 600, 100, 900, "s"),
                RecordedOperation("send", (0, 1), 800, 1000, 1900, "sr"),
            ],
            [
                RecordedOperation("recv", (0, 1), 600, 0, 900, "r"),
                RecordedOperation("recv", (0, 1), 800, 900, 1900, "rs"),
            ],
        ],
        (0, 0),
        (0, 1),
    )
    sent = [
        (node.kind.name, node.amount, node.peer, node.tag)
        for node in step.graph(1).nodes
        if node.kind is not Kind.COMPUTE
    ]
    assert sent == [("RECEIVE", 600, -1, 0), ("RECEIVE", 400, -1, 1), ("SEND", 400, -1, 0)]
    # 100, a message of 610 with the receiver waiting; 100 more to compute, then 410 both ways.
    assert simulated(step).ends[0] == 100 + 610 + 100 + 410


def test_an_all_gather_has_its_own_shard_as_amount():
    """Its largest argument is the result of all four."""
    gather = RecordedOperation("_allgather_base", (0, 1, 2, 3), 4000, 5, 9)
    step = recorded_step([[gather]] * 4, (0,) * 4, (0,) * 4)
    node = step.graph(2).nodes[1]
    assert (node.pattern, node.amount) == (Pattern.ALL_GATHER, 1000)


def test_what_is_written_and_read_takes_as_long(tmp_path):
    step = recorded_step(
        [
            [reduction(1070, 1450), reduction(1500, 1700, amount=3000)],
            [reduction(1300, 1450), reduction(1470, 1700, amount=3000)],
        ],
        (1000, 1000),
        (0, 0),
    )
    assert chakra.write(step, tmp_path / "step") == 2
    assert simulated(chakra.read(tmp_path / "step")).ends == simulated(step).ends


@pytest.mark.parametrize(
    ("operation", "printed"),
    [
        (RecordedOperation("gather", (0, 1), 10, 1, 2), "gather is not simulated"),
        (RecordedOperation("send", (0, 1, 2), 10, 1, 2, "s"), "expected two"),
    ],
)
def test_what_no_collective_is_is_refused(operation, printed):
    with pytest.raises(WorkloadError, match=printed):
        recorded_step([[operation]], (0,), (0,))


def test_the_step_of_median_length_of_a_run_is_recorded():
    """Three steps behind the first, of 100, 300 and 200: the last one. Rank 1 is always done first.

    In it rank 0 computes 60 and rank 1, from its own end of the step before, 65.
    """
    wanted = [(10, 20), (90, 120), (300, 420), (480, 620)]
    operations = {
        rank: [
            Done(
                Wanted("r0.d1.s0.0", index, "allreduce", 1000),
                *(Span(at, at) for at in (asked, asked, ended - 5 * rank)),
            )
            for index, (asked, ended) in enumerate(wanted)
        ]
        for rank in (0, 1)
    }
    job = RailJob.grid("job", 1, [2])
    table = PhaseTable((Operation("r0.d1.s0.0", 0, 1),))
    run = Trained(operations, {}, rails=SimpleNamespace(job=job))
    step = recorded_of(run, [table] * 2)
    assert [step.graph(rank).nodes[0].nanoseconds for rank in (0, 1)] == [60, 65]
    assert step.groups[0]["dp 0-1"].members == (0, 1)
    short = Trained({rank: each[:2] for rank, each in operations.items()}, {}, rails=run.rails)
    assert "2 steps are alike" in recorded_of(short, [table] * 2)
    kinds = {rank: [replace(d, operation=replace(d.operation, kind="gather")) for d in each]
             for rank, each in operations.items()}  # fmt: skip
    gathered = Trained(kinds, {}, rails=run.rails)
    assert "gather is not simulated" in recorded_of(gathered, [table] * 2)


def test_the_median_step_is_of_the_middle_length():
    assert median_step({1: 90, 2: 20, 3: 50}) == 3
    assert median_step({1: 90, 2: 20, 3: 50, 4: 60}) == 3
