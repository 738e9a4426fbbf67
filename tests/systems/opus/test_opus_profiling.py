"""Phase tables from what ranks were seen to do."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.profiling import SeenOperations, profiled
from lightrig.suites.claims.opus.steps import phase_tables

JOB = RailJob.grid("llama", 2, [2])


def seen(job: RailJob, steps: int, **shape: int) -> dict[int, list[str]]:
    tables = phase_tables(job, steps, **shape)
    return {rank: [op.group for op in table.all()] for rank, table in enumerate(tables)}


def of(groups: Mapping[int, Sequence[str]]) -> dict[int, SeenOperations]:
    return {rank: SeenOperations(each) for rank, each in groups.items()}


@given(stages=st.integers(2, 3), microbatches=st.integers(1, 3), gathers=st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_profiled_steps_predict_later_ones(stages: int, microbatches: int, gathers: int) -> None:
    job = RailJob.grid("llama", stages, [2])
    shape = {"microbatches": microbatches, "gathers": gathers}
    found = profiled(job, of(seen(job, 3, **shape)))
    for rank, table in enumerate(phase_tables(job, 5, **shape)):
        foretold = [found[rank].at(position) for position in range(len(table.all()))]
        assert foretold == table.all()


def test_operations_before_the_first_step_run_once() -> None:
    data, pair = "r0.d1.s{}.0", "r0.pp0-1.{}"
    step = {rank: [pair.format(rank % 2)] * 2 + [data.format(rank // 2)] for rank in range(4)}
    groups = {rank: [data.format(rank // 2)] * 3 + step[rank] * 3 for rank in range(4)}
    for rank, table in enumerate(profiled(JOB, of(groups))):
        assert (len(table.before), len(table.operations), table.profiled_steps) == (3, 3, 3)
        longer = groups[rank] + step[rank] * 4
        foretold = [table.at(position) for position in range(len(longer))]
        assert [op.group for op in foretold if op is not None] == longer
        collectives = [op.index for op in foretold if op is not None and op.dimension == 1]
        assert collectives == list(range(10))
        assert [table.asks(position) for position in range(5)] == [True, False, False, True, True]


def test_nothing_is_asked_for_after_the_first_operation_where_no_circuit_changes() -> None:
    """A pipeline alone has its own circuits all the time; with a ring of data it has not."""
    pair = ["r0.pp0-1.0"] * 6
    alone = RailJob.grid("pipeline", 2, [1])
    for table in profiled(alone, of({0: pair, 1: pair})):
        assert [table.asks(position) for position in range(9)] == [True] + [False] * 8
    steps = {rank: [f"r0.pp0-1.{rank % 2}", f"r0.d1.s{rank // 2}.0"] * 3 for rank in range(4)}
    for table in profiled(JOB, of(steps)):
        assert all(table.asks(position) for position in range(9))


def test_a_run_that_never_repeats_itself_is_one_step() -> None:
    data, pair = "r0.d1.s{}.0", "r0.pp0-1.{}"
    groups = {rank: [data.format(rank // 2)] * 2 + [pair.format(rank % 2)] for rank in range(4)}
    assert {(len(t.before), len(t.operations)) for t in profiled(JOB, of(groups))} == {(0, 3)}


def test_ranks_that_do_not_agree_are_named() -> None:
    groups = seen(JOB, 2, microbatches=2)
    groups[2].remove("r0.pp0-1.0")
    with pytest.raises(OpusError, match=r"r0\.pp0-1\.0 differ in number: rank 0 6, rank 2 5"):
        profiled(JOB, of(groups))


def test_ranks_that_say_nothing_have_no_steps() -> None:
    with pytest.raises(OpusError, match="found no operation"):
        profiled(JOB, of({rank: [] for rank in range(4)}))


DATA, PAIR = "r0.d1.s{}.0", "r0.pp0-1.{}"


def seen_by(*ranks: str, steps: Sequence[int] = ()) -> dict[int, SeenOperations]:
    """Ranks 0 to 3 as texts: s and r, those joined in brackets; c and p, collectives.

    c is one of the stage, p one of the two ranks that send to each other.
    """
    found = {}
    for rank, text in enumerate(ranks):
        groups, parts = [], []
        for each in re.findall(r"\((\w+)\)|(\w)", text):
            part = "".join(each)
            groups.append(
                (DATA if part == "c" else PAIR).format(rank // 2 if part == "c" else rank % 2)
            )
            parts.append("" if part in "cp" else part)
        found[rank] = SeenOperations(groups, parts, steps)
    return found


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        # GPipe: what one rank has begun before a wait, the other waited for one by one.
        ("(ss)(rr)c", "rrssc", [1, 1, 1, 1, 1]),
        ("(ssr)rc", "rrssc", [1, 1, 1, 1, 1]),
        # Both send first: neither would end before the other one received.
        ("ssrc", "srrc", [3, 1]),
        ("s(sr)(sr)rc", "r(sr)(sr)sc", [1, 2, 2, 1, 1]),
        ("srsrc", "(rsrs)c", [1, 1, 1, 1, 1]),
    ],
)
def test_both_ranks_join_what_neither_ends_before_the_other_begins(first, second, joined) -> None:
    tables = profiled(JOB, seen_by(first, first, second, second))
    for table in tables:
        assert [table.joined_at(at) for at in range(len(table.operations))] == joined


def test_a_collective_of_a_pair_is_an_operation_by_itself() -> None:
    """Of three steps, so that what follows a collective counts too."""
    first, second = ("s(sr)rpcp" * 3, "r(sr)spcp" * 3)
    for table in profiled(JOB, seen_by(first, first, second, second)):
        joined = [table.joined_at(at) for at in range(len(table.operations))]
        assert (joined, table.profiled_steps) == ([1, 2, 1, 1, 1, 1], 3)


def test_a_collective_of_a_pair_between_joined_messages_is_refused() -> None:
    with pytest.raises(OpusError, match=r"begin a collective of r0\.pp0-1\.0 between sends"):
        profiled(JOB, seen_by("psc", "psc", "rpc", "rpc"))


def test_an_operation_between_joined_messages_is_refused() -> None:
    with pytest.raises(OpusError, match=r"rank 0 begins operations of \['r0.d1.s0.0'\] between"):
        profiled(JOB, seen_by("scr", "src", "src", "src"))


def test_messages_in_one_direction_must_agree() -> None:
    with pytest.raises(
        OpusError, match=r"rank 0 sends 2 messages of r0\.pp0-1\.0, and rank 2 receives 1"
    ):
        profiled(JOB, seen_by("ssc", "ssc", "rsc", "rrc"))


def test_profiled_steps_are_counted_where_a_rank_joins_their_messages() -> None:
    """One rank waits for its four messages at once, the other for each."""
    each = seen_by(*["(ssrr)c" * 4] * 2, *["rrssc" * 4] * 2)
    ends = {
        rank: [len(one.groups) * step // 4 for step in (1, 2, 3, 4)] for rank, one in each.items()
    }
    tables = profiled(JOB, {rank: replace(one, steps=ends[rank]) for rank, one in each.items()})
    assert [table.profiled_steps for table in tables] == [4] * 4


def test_steps_with_different_operations_are_listed_as_unlike() -> None:
    """Three usual steps, one with an evaluation before its last, and a checkpoint at the end."""
    ranks = ["csr" + "csr" + "ccsr" + "csr" + "cc", "crs" + "crs" + "ccrs" + "crs" + "cc"]
    tables = profiled(JOB, seen_by(*[ranks[0]] * 2, *[ranks[1]] * 2, steps=[3, 6, 10, 13]))
    for table in tables:
        assert table.steps_in(15) == [(0, 3), (3, 6), (10, 13)]
        assert (table.unlike, table.profiled_steps) == (((3, 4), (5, 2)), 3)
        assert [table.at(at) is None for at in (14, 15)] == [False, True]
        assert table.shifts == 2


def test_any_number_of_steps_may_follow_those_that_end_alike() -> None:
    """An optimizer shows the steps where their operations repeat within each, too."""
    one = "cc" + "sr" * 2
    other = "cc" + "rs" * 2
    ranks = ["c" + one * 3, "c" + other * 3]
    tables = profiled(JOB, seen_by(*[ranks[0]] * 2, *[ranks[1]] * 2, steps=[7, 13, 19]))
    for table in tables:
        assert (len(table.before), len(table.operations), table.unlike) == (7, 6, ((1, 7),))
        assert table.at(100) is not None
        assert table.profiled_steps == 2
        assert table.steps_in(31) == [(7, 13), (13, 19), (19, 25), (25, 31)]


def test_a_line_after_each_step_belongs_to_the_next_one() -> None:
    """The first step lacks it, and nothing but it comes after the last one."""
    first, second = "csr" + "ccsr" * 3 + "c", "crs" + "ccrs" * 3 + "c"
    tables = profiled(JOB, seen_by(first, first, second, second, steps=[3, 7, 11, 15]))
    assert {table.unlike for table in tables} == {()}
    assert tables[0].steps_in(16) == [(3, 7), (7, 11), (11, 15)]
