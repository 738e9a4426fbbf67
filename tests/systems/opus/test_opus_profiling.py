"""Phase tables from what ranks were seen to do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.opus.planning.operations import Job, OpusError
from lightrig.harness.systems.opus.planning.profiling import profiled
from lightrig.suites.claims.opus.steps import phase_tables

JOB = Job.grid("llama", 2, [2])


def seen(job: Job, steps: int, **shape: int) -> dict[int, list[str]]:
    tables = phase_tables(job, steps, **shape)
    return {rank: [op.group for op in table.all()] for rank, table in enumerate(tables)}


@given(stages=st.integers(2, 3), microbatches=st.integers(1, 3), gathers=st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_profiled_steps_predict_later_ones(stages: int, microbatches: int, gathers: int) -> None:
    job = Job.grid("llama", stages, [2])
    shape = {"microbatches": microbatches, "gathers": gathers}
    found = profiled(job, seen(job, 3, **shape))
    for rank, table in enumerate(phase_tables(job, 5, **shape)):
        foretold = [found[rank].at(position) for position in range(len(table.all()))]
        assert foretold == table.all()


def test_operations_before_the_first_step_run_once() -> None:
    data, pair = "r0.d1.s{}.0", "r0.pp0-1.{}"
    step = {rank: [pair.format(rank % 2)] * 2 + [data.format(rank // 2)] for rank in range(4)}
    groups = {rank: [data.format(rank // 2)] * 3 + step[rank] * 3 for rank in range(4)}
    for rank, table in enumerate(profiled(JOB, groups)):
        assert (len(table.before), len(table.operations)) == (3, 3)
        longer = groups[rank] + step[rank] * 4
        foretold = [table.at(position) for position in range(len(longer))]
        assert [op.group for op in foretold if op is not None] == longer
        collectives = [op.index for op in foretold if op is not None and op.dimension == 1]
        assert collectives == list(range(10))
        assert [table.asks(position) for position in range(5)] == [True, False, False, True, True]


def test_a_run_that_never_repeats_itself_is_one_step() -> None:
    data, pair = "r0.d1.s{}.0", "r0.pp0-1.{}"
    groups = {rank: [data.format(rank // 2)] * 2 + [pair.format(rank % 2)] for rank in range(4)}
    assert {(len(t.before), len(t.operations)) for t in profiled(JOB, groups)} == {(0, 3)}


def test_ranks_that_do_not_agree_are_named() -> None:
    groups = seen(JOB, 2, microbatches=2)
    groups[2].remove("r0.pp0-1.0")
    with pytest.raises(OpusError, match=r"r0\.pp0-1\.0 differ in number: rank 0 6, rank 2 5"):
        profiled(JOB, groups)


def test_ranks_that_say_nothing_have_no_steps() -> None:
    with pytest.raises(OpusError, match="found no operation"):
        profiled(JOB, {rank: [] for rank in range(4)})
