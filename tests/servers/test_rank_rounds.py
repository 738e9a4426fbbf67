"""Checked rounds of one rank, by hand: what it sends, what counts as wrong, who goes on."""

from types import SimpleNamespace
from typing import Any

import pytest
from rank_parts import (
    SECOND,
    Mpi,
    Stood,
    Torch,
    block,
    gloo_worker,
    mpi_worker,
    seen_of,
)

from lightrig.instruments.jobs.programs import gloo_program, mpi_program
from lightrig.instruments.jobs.programs.checked_rounds import CheckedRounds


def test_a_rank_of_mpi_joins_the_given_group() -> None:
    """MPI is initialised once; a barrier ends the joining."""
    asked: list[Any] = []
    lane = Mpi()
    lane.Get_rank, lane.Get_size = lambda: 2, lambda: 3
    world = SimpleNamespace(
        Get_group=lambda: SimpleNamespace(Incl=asked.append), Create_group=lambda _: lane
    )
    worker: Any = mpi_program._MpiWorker()
    worker._mpi = SimpleNamespace(
        COMM_WORLD=world, THREAD_SERIALIZED="one at a time", Init_thread=asked.append,
        Is_initialized=lambda: "one at a time" in asked,
    )  # fmt: skip
    for members in ([4, 1, 7], [1, 4, 7]):
        assert worker._join({"members": members, "timeout_ns": 9 * SECOND}) == {}
    assert asked == ["one at a time", [4, 1, 7], [1, 4, 7]]
    assert (worker._rank, worker._ranks, worker._group._timeout_ns) == (2, 3, 9 * SECOND)
    assert [each[0] for each in lane.asked] == ["Ibarrier", "Ibarrier"]


def test_a_rank_that_has_not_joined_says_so() -> None:
    with pytest.raises(RuntimeError, match="has not joined"):
        mpi_program._MpiWorker()._barrier()


def test_blocks_of_mpi_go_to_the_next_rank_and_come_from_the_one_before() -> None:
    given = block(5, 6, 7, 8, 9)
    world = Mpi({
        "Iallreduce": [[1, 2, 3, 4, 5], [10, 20], [30], [40], [50]],
        "Ialltoall": [[9, 8, 7, 6, 5]],
        "Irecv": [[4, 4, 4, 4, 1]],
    })  # fmt: skip
    rank = mpi_worker(world, rank=2)
    assert rank._communicate("all_reduce", given) == block(1, 2, 3, 4, 5)
    assert rank._communicate("all_to_all", given) == block(9, 8, 7, 6, 5)
    assert rank._communicate("train", given) == block(10, 20, 30, 40, 50)
    assert [each[1] for each in world.asked[2:]] == [[5, 6], [7], [8], [9]]
    assert rank._communicate("send_receive", given) == block(4, 4, 4, 4, 1)
    assert [(each[0], each[-1]) for each in world.asked[-2:]] == [
        ("Irecv", {"source": 1}),
        ("Isend", {"dest": 0}),
    ]
    assert world.asked[-1][1] == [5, 6, 7, 8, 9]


def test_blocks_of_gloo_go_to_the_next_rank_and_come_from_the_one_before() -> None:
    given = block(5, 6, 7, 8, 9)
    torch = Torch({
        "all_reduce": [[1, 2, 3, 4, 5], [10, 20], [30, 40], [50]],
        "all_to_all_single": [[9, 8, 7, 6, 5]],
        "recv": [[4, 4, 4, 4, 1]],
    })  # fmt: skip
    rank = gloo_worker(torch, rank=2)
    assert rank._communicate("all_reduce", given) == block(1, 2, 3, 4, 5)
    assert rank._communicate("all_to_all", given) == block(9, 8, 7, 6, 5)
    # Parts of two values: five of four, rounded up.
    assert rank._communicate("train", given) == block(10, 20, 30, 40, 50)
    assert [each[1] for each in torch.asked[2:]] == [[5, 6], [7, 8], [9]]
    assert [each.waits for each in torch.waited[2:]] == [1, 1, 1]
    assert rank._communicate("send_receive", given) == block(4, 4, 4, 4, 1)
    assert torch.asked[-2:] == [
        ("isend", [5, 6, 7, 8, 9], 0, {}),
        ("recv", [0] * 5, 1, {}),
    ]
    assert torch.waited[-2].waits == 1


def test_checked_rounds_note_each_operation_and_each_wrong_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of five rounds the third is wrong; the sixth fails. Each takes 3 ns, and 1 between."""
    worker = gloo_worker(None)
    seen = seen_of(worker)
    monkeypatch.setattr(worker, "_watch_retransmissions", lambda _: None)
    clock = Stood(monkeypatch, gloo_program)
    right = CheckedRounds("all_reduce", 4, 1, 3)
    rounds: list[bytes] = []

    def communicate(collective: str, given: bytes) -> bytes:
        clock.at += 3
        rounds.append(given)
        if len(rounds) == 6:
            clock.at += 4
            raise OSError("gone")
        result = right.expected(len(rounds) - 1)
        return bytes(len(result)) if len(rounds) == 3 else result

    monkeypatch.setattr(worker, "_communicate", communicate)
    worker._checked({"collective": "all_reduce", "count": 4})
    assert rounds == [right.given(number) for number in range(6)]
    begin = 5 * SECOND
    assert seen["operations"] == [(begin + 3 * n, begin + 3 * n + 3) for n in range(5)]
    assert (seen["wrong"], seen["failure"]) == (1, "OSError: gone")
    assert (seen["began"], seen["failed"]) == (begin + 15, begin + 22)
    assert seen["members"] == [0, 1, 2]
    state = worker._state(3)
    assert state["exchanges"] == 5
    assert state["operations"] == [(begin + 9, begin + 12), (begin + 12, begin + 15)]


def test_training_steps_keep_half_of_the_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right sums are right steps; and a wrong sum of a step stays in those after it."""
    for spoilt, wrong in ((None, 0), (1, 4)):
        worker = gloo_worker(None)
        seen = seen_of(worker)
        monkeypatch.setattr(worker, "_watch_retransmissions", lambda _: None)
        sums = CheckedRounds("all_reduce", 4, 1, 3)
        numbers = iter(range(6))

        def communicate(
            _: str, given: bytes, sums: Any = sums, numbers: Any = numbers, spoilt: Any = spoilt
        ) -> bytes:
            number = next(numbers)
            if number == 5:
                raise RuntimeError("over")
            result: bytes = sums.expected(number)
            return block(1 << 20, 0, 0, 0) if number == spoilt else result

        monkeypatch.setattr(worker, "_communicate", communicate)
        worker._checked({"collective": "train", "count": 4})
        assert (seen["wrong"], seen["failure"]) == (wrong, "RuntimeError: over")


def test_a_group_goes_on_without_a_lost_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the iteration that is agreed on; the round that was broken lasts until its end."""
    worker = gloo_worker(None)
    seen = seen_of(worker)
    monkeypatch.setattr(worker, "_watch_retransmissions", lambda _: None)
    clock = Stood(monkeypatch, gloo_program)
    fewer = CheckedRounds("all_reduce", 4, 0, 2)
    given: list[bytes] = []

    def communicate(_: str, block: bytes) -> bytes:
        clock.at += 5
        given.append(block)
        if len(given) == 1:
            raise OSError("lost")
        if len(given) == 4:
            raise OSError("lost again")
        return fewer.expected(len(given) + 5)

    def reformed(error: Exception, iteration: int, seen: dict[str, Any]) -> int | None:
        clock.at += 100
        worker._rank, worker._ranks = 0, 2
        if len(given) == 4:
            raise RuntimeError("cannot")
        assert (str(error), iteration) == ("lost", 0)
        return 7

    monkeypatch.setattr(worker, "_communicate", communicate)
    monkeypatch.setattr(worker, "_reformed", reformed)
    worker._checked({"collective": "all_reduce", "count": 4})
    assert given[1:3] == [fewer.given(7), fewer.given(8)]
    begin = 5 * SECOND
    assert seen["operations"] == [(begin, begin + 110), (begin + 110, begin + 115)]
    assert (seen["wrong"], seen["failure"]) == (0, "RuntimeError: cannot")


class MpiError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def Get_error_class(self) -> int:  # noqa: N802 - mpi4py's name
        return self.code


def test_a_failed_process_is_left_out_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """ULFM: of the members 4, 6 and 9 the second is lost; another one was at iteration 12."""
    clock = Stood(monkeypatch, mpi_program)
    revoked: list[str] = []

    class Shrunk(Mpi):
        rank, size = 1, 2

        def Get_group(self) -> Any:  # noqa: N802
            def places(mine: Any, before: str) -> list[int]:
                assert (mine, before) == (None, "all three")
                return [0, 2]

            return SimpleNamespace(Translate_ranks=places)

    smaller = Shrunk({"Iallreduce": [[12]]})
    world = SimpleNamespace(
        Get_group=lambda: "all three", Revoke=lambda: revoked.append("it"), Shrink=lambda: smaller
    )
    worker = mpi_worker(world, rank=2)
    worker._mpi = SimpleNamespace(
        Exception=MpiError, UNDEFINED=-32766, MAX="greatest", ERR_PROC_FAILED=75,
        ERR_PROC_FAILED_PENDING=-32766, ERR_REVOKED=77,
    )  # fmt: skip
    seen: dict[str, Any] = {"members": [4, 6, 9], "reformed": []}
    for other in (MpiError(16), MpiError(-32766), RuntimeError("another")):
        assert worker._reformed(other, 11, seen) is None
    assert revoked == []
    assert worker._reformed(MpiError(77), 11, seen) == 13
    assert (seen["members"], seen["reformed"], revoked) == ([4, 9], [clock.at], ["it"])
    assert (worker._rank, worker._ranks) == (1, 2)
    assert (worker._group.rank, worker._group.size) == (1, 2)
    assert smaller.asked == [("Iallreduce", [11], {"op": "greatest"})]
