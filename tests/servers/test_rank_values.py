"""What one rank of a collective gives and expects, by hand: rank 1 of 3, or rank 2 of 3.

Value i of rank r is i modulo 251, plus r: rank 1 gives 1, 2, 3 ... of seven values.
"""

import io
import json
import queue
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.servers.programs import gloo_program, mpi_program, replies
from lightrig.instruments.servers.programs.checked_rounds import CheckedRounds

SECOND = 1_000_000_000

# Of 28 or 31 bytes: seven whole values of four bytes; shares of two values for three ranks.
GIVEN_AND_EXPECTED = {
    "all_reduce": (28, [1, 2, 3, 4, 5, 6, 7], [3, 6, 9, 12, 15, 18, 21]),
    "all_gather": (24, [1, 2], [0, 1, 1, 2, 2, 3]),
    "reduce_scatter": (24, [1, 2, 3, 4, 5, 6], [9, 12]),
    "all_to_all": (24, [1, 2, 3, 4, 5, 6], [2, 3, 3, 4, 4, 5]),
    "send_receive": (28, [1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6]),
}


class Values(np.ndarray):
    """An array with the methods of a tensor that the program uses."""

    def copy_(self, other: Any) -> None:
        self[...] = other

    fill_ = copy_

    def float(self) -> "Values":
        return self.astype(np.float32)

    def zero_(self) -> None:
        self[...] = 0

    def numpy(self) -> Any:
        return self


def values(array: Any) -> Any:
    return np.asarray(array).view(Values)


class Pending:
    """A request that is complete after some polls; then `end` has been called."""

    def __init__(self, end: Callable[[], None] = lambda: None, polls: int = 1) -> None:
        self.end, self.polls, self.waits = end, polls, 0

    def Test(self) -> bool:  # noqa: N802 - mpi4py's name
        self.polls -= 1
        if self.polls == 0:
            self.end()
        return self.polls <= 0

    def wait(self) -> None:
        self.waits += 1
        self.end()


class Mpi:
    """A communicator that notes what it is asked, and gives the results it is told to."""

    def __init__(self, results: dict[str, list[Any]] | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.results = results or {}

    def __getattr__(self, name: str) -> Callable[..., Pending]:
        def begin(*arrays: Any, **where: int) -> Pending:
            self.asked.append((name, *[each.tolist() for each in arrays[:1]], where))
            result = self.results.get(name)

            def end() -> None:
                if result:
                    arrays[-1][...] = result.pop(0)

            return Pending(end, polls=2)

        return begin


def group(world: Any, rank: int = 1, size: int = 3) -> Any:
    made: Any = object.__new__(mpi_program._Group)
    made.all = made.world = world
    made.rank, made.size, made._timeout_ns = rank, size, 10 * SECOND
    return made


class Torch:
    """As much of PyTorch as a collective needs; its operations give what they are told to."""

    int32 = np.uint32

    def __init__(self, results: dict[str, list[Any]] | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.results = results or {}
        self.waited: list[Pending] = []
        operations = (
            *("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"),
            *("all_to_all_single", "isend", "recv", "TCPStore", "init_process_group"),
            *("new_group", "barrier", "destroy_process_group"),
        )
        self.distributed = SimpleNamespace(
            **{name: self._operation(name) for name in operations},
            group=SimpleNamespace(WORLD="world"),
        )

    def _operation(self, name: str) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            plain = [each.tolist() if isinstance(each, np.ndarray) else each for each in given]
            self.asked.append((name, *plain, more))
            work = Pending()
            if result := self.results.get(name):
                work.end = partial(given[0].__setitem__, ..., result.pop(0))
            if not more.get("async_op") and name != "isend":
                work.end()
            self.waited.append(work)
            return work

        return run

    @staticmethod
    def arange(first: int, last: int) -> Any:
        return values(np.arange(first, last))

    @staticmethod
    def empty(count: int) -> Any:
        return values(np.full(count, 7.5, np.float32))

    @staticmethod
    def zeros(count: int) -> Any:
        return values(np.zeros(count, np.float32))

    @staticmethod
    def cat(parts: list[Any]) -> Any:
        return values(np.concatenate(parts))

    @staticmethod
    def frombuffer(data: bytearray, dtype: Any) -> Any:
        return values(np.frombuffer(data, dtype))


@pytest.mark.parametrize("size", [28, 31])
@pytest.mark.parametrize("name", GIVEN_AND_EXPECTED)
def test_values_of_mpi_by_hand(name: str, size: int) -> None:
    used, given, expected = GIVEN_AND_EXPECTED[name]
    operation = {
        "all_reduce": "Iallreduce",
        "all_gather": "Iallgather",
        "reduce_scatter": "Ireduce_scatter_block",
        "all_to_all": "Ialltoall",
        "send_receive": "Irecv",
    }[name]
    wrong = [*expected[:-2], -4, -5]
    world = Mpi({operation: [expected, wrong]})
    task = mpi_program._Collective(group(world), name, size)
    assert task.size == used
    task.prepare()
    assert task.wrong() == len(expected)
    task.operate()
    assert task.wrong() == 0
    task.operate()
    assert task.wrong() == 2
    if name == "send_receive":
        # From the rank before; to the one after.
        assert [(which, where) for which, _, where in world.asked[:2]] == [
            ("Irecv", {"source": 0}),
            ("Isend", {"dest": 2}),
        ]
        assert world.asked[1][1] == given
    else:
        assert world.asked[0][:2] == (operation, given)


@pytest.mark.parametrize("size", [28, 31])
@pytest.mark.parametrize("name", GIVEN_AND_EXPECTED)
def test_values_of_gloo_by_hand(name: str, size: int) -> None:
    used, given, expected = GIVEN_AND_EXPECTED[name]
    operation = {
        "all_reduce": "all_reduce",
        "all_gather": "all_gather_into_tensor",
        "reduce_scatter": "reduce_scatter_tensor",
        "all_to_all": "all_to_all_single",
        "send_receive": "recv",
    }[name]
    torch = Torch({operation: [expected, [*expected[:-2], -4, -5]]})
    task = gloo_program._Collective(torch, name, size, 1, 3)
    assert task.size == used
    task.prepare()
    first = given if name == "all_reduce" else [0] * len(expected)
    assert task._out.tolist() == first
    task.operate()
    assert task.wrong() == 0
    task.operate()
    assert task.wrong() == 2
    if name == "all_reduce":
        assert torch.asked[0][:2] == (name, given)
    elif name == "send_receive":
        assert torch.asked[:2] == [("isend", given, 2, {}), ("recv", first, 0, {})]
        assert torch.waited[0].waits == 1
    else:
        assert torch.asked[0] == (operation, first, given, {})


@pytest.mark.parametrize("make", [
    lambda: mpi_program._Collective(group(Mpi()), "hum", 8),
    lambda: gloo_program._Collective(Torch(), "hum", 8, 0, 2),
])  # fmt: skip
def test_an_unknown_collective_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="no collective is called 'hum'"):
        make()


def test_patterns_repeat_after_251_values() -> None:
    assert mpi_program._pattern(5, 4, 249).tolist() == [254, 255, 5, 6]
    task = gloo_program._Collective(Torch(), "send_receive", 4 * 253, 0, 3)
    assert task._given.tolist()[248:] == [248, 249, 250, 0, 1]
    assert task._expected.tolist()[248:] == [250, 251, 252, 2, 3]


# Lane 2 of rank 1: from rank s to rank r, value i is i + 31 s + 7 r + 2.
LANE = {"lane": 2, "given": [0, 3, 5], "taken": [4, 0, 1]}


def test_shares_of_an_exchange_of_mpi_by_hand() -> None:
    world = Mpi({"Irecv": [[9, 10, 11, 12], [71], [9, 10, 0, 0], [1]]})
    task = mpi_program._Exchange(group(world), LANE)
    task.prepare()
    assert world.asked == [("Ibarrier", {})]
    assert task.wrong() == 5
    task.operate()
    assert task.wrong() == 0
    assert world.asked[1:] == [
        ("Irecv", [-1] * 4, {"source": 0}),
        ("Irecv", [-1], {"source": 2}),
        ("Isend", [40, 41, 42], {"dest": 1}),
        ("Isend", [47, 48, 49, 50, 51], {"dest": 2}),
    ]
    task.operate()
    assert task.wrong() == 3
    idle = mpi_program._Exchange(group(world), None)
    idle.prepare()
    idle.operate()
    assert idle.wrong() == 0


def test_shares_of_an_exchange_of_gloo_by_hand() -> None:
    torch = Torch({"all_to_all_single": [[9, 10, 11, 12, 71], [8, 9], [9, 0, 11, 0, 71], [8, 0]]})
    other = {"lane": 1, "given": [2, 0, 0], "taken": [2, 0, 0]}
    task = gloo_program._Exchange(torch, [LANE, other], 1, ["a", "b", "c"])
    task.prepare()
    assert task.wrong() == 7
    task.operate()
    assert task.wrong() == 0
    more = {"async_op": True}
    # To rank 0 on lane 1: 31 + 0 + 1 = 32; from there 7 + 1 = 8.
    sent = [40, 41, 42, 47, 48, 49, 50, 51]
    assert torch.asked == [
        ("all_to_all_single", [-1] * 5, sent, [4, 0, 1], [0, 3, 5], {"group": "c", **more}),
        ("all_to_all_single", [-1] * 2, [32, 33], [2, 0, 0], [2, 0, 0], {"group": "b", **more}),
    ]
    assert [each.waits for each in torch.waited] == [1, 1]
    task.operate()
    assert task.wrong() == 3


def test_rounds_of_mpi_end_by_a_flag() -> None:
    world = Mpi({"Iallreduce": [[3, 3, 0], [3, 2, 1]]})
    task = mpi_program._Round(group(world), 11)
    task.prepare(last=False)
    task.operate()
    assert (task.wrong(), task.over()) == (0, False)
    task.prepare(last=True)
    assert task.wrong() == 2
    task.operate()
    assert (task.wrong(), task.over()) == (1, True)
    assert [each[1] for each in world.asked] == [[1, 1, 0], [1, 1, 1]]


def test_rounds_of_gloo_end_by_a_flag() -> None:
    torch = Torch({"all_reduce": [[3, 3, 0], [3, 2, 1]], "all_to_all_single": [[8, 9], [8, 1]]})
    exchange = gloo_program._Exchange(
        torch, [{"lane": 1, "given": [2, 0, 0], "taken": [2, 0, 0]}], 1, ["a", "b"]
    )
    task = gloo_program._Round(torch, 11, 3, exchange)
    task.prepare(last=False)
    task.operate()
    assert (task.wrong(), task.over()) == (0, False)
    task.prepare(last=True)
    assert task.wrong() == 2 + 2
    task.operate()
    assert (task.wrong(), task.over()) == (2, True)
    assert [each[1] for each in torch.asked] == [[-1, -1], [1, 1, 0], [-1, -1], [1, 1, 1]]


# ---------------------------------------------------------------------------- waiting


class Stood:
    """A clock that sleeps move, of one module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.at = 5 * SECOND
        self.sleeps: list[int] = []
        monkeypatch.setattr(module, "now", lambda: self.at)
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(round(seconds * 1e9))
        self.at += self.sleeps[-1]


def test_long_rounds_are_polled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of what has passed, 50 us at least and 2 ms at most."""
    clock = Stood(monkeypatch, mpi_program)
    group(Mpi()).wait(Pending(polls=2000), late_share=0.01)
    assert clock.sleeps[:2] == [50_000, 50_000]
    passed = np.cumsum([0, *clock.sleeps[:-1]])
    wanted = np.clip(passed * 0.01, 50_000, 2_000_000)
    assert clock.sleeps == pytest.approx(wanted.tolist(), abs=1)
    assert clock.sleeps[-1] == 2_000_000


def test_an_operation_is_given_up_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Stood(monkeypatch, mpi_program)
    never = Pending(polls=10**9)
    with pytest.raises(mpi_program.OperationTimeoutError, match="not complete after 10 s"):
        group(Mpi()).wait(Pending(), never, period=0.5)
    # 10 s are allowed: it is polled then, and given up half a second later.
    assert clock.at == 15_500_000_000


def test_a_lane_is_a_group_of_its_members_alone() -> None:
    asked: list[object] = []
    world = SimpleNamespace(
        Get_group=lambda: SimpleNamespace(Incl=lambda members: ("of", members)),
        Create_group=lambda of: asked.append(of) or SimpleNamespace(
            Get_rank=lambda: 1, Get_size=lambda: 3),
    )  # fmt: skip
    made = mpi_program._Group(SimpleNamespace(COMM_WORLD=world), [4, 1, 7], 9)
    assert (made.rank, made.size, asked) == (1, 3, [("of", [4, 1, 7])])


# --------------------------------------------------------------------- checked rounds


def block(*numbers: int) -> bytes:
    return np.array(numbers, np.uint32).tobytes()


def mpi_worker(world: Any, rank: int = 1) -> Any:
    made = mpi_program._MpiWorker()
    made._group = group(world, rank)
    made._rank, made._ranks = rank, 3
    return made


def test_a_rank_of_mpi_joins_the_members_it_is_told() -> None:
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


def gloo_worker(torch: Any, rank: int = 1) -> Any:
    made = gloo_program.Worker()
    made._torch, made._rank, made._ranks = torch, rank, 3
    return made


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


def seen_of(worker: Any) -> dict[str, Any]:
    worker._seen = {
        "operations": [], "wrong": 0, "failure": None, "failed": None, "retransmitted": [],
        "reformed": [], "began": 0,
    }  # fmt: skip
    seen: dict[str, Any] = worker._seen
    return seen


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


# --------------------------------------------------------------------------- requests


def test_warm_up_is_not_timed_and_the_check_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Stood(monkeypatch, gloo_program)
    worker = gloo_worker(None)
    order: list[str] = []
    monkeypatch.setattr(worker, "_barrier", lambda: order.append("barrier"))

    class Task:
        size = 24

        def prepare(self) -> None:
            order.append("prepare")
            clock.at += 1000

        def operate(self) -> None:
            order.append("operate")
            clock.at += 10 * len(order)

        def wrong(self) -> int:
            clock.at += 1000
            return 3

    monkeypatch.setattr(
        worker, "_collective", lambda *given: given == ("all_reduce", 99) and Task()
    )
    request = {"collective": "all_reduce", "sizes": [99], "warm_up": 1, "iterations": 2}
    found = worker._run(request)
    assert order == ["prepare", "operate", *["prepare", "barrier", "operate"] * 2]
    assert found == {"sizes": [{"size": 24, "times": [50, 80], "wrong": 6}]}


def test_ranks_find_each_other_at_rank_0_and_have_a_group_for_each_further_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch()
    devices: list[str] = []
    environment: dict[str, str] = {}
    monkeypatch.setattr(gloo_program.os, "environ", environment)
    made = torch.distributed.new_group
    torch.distributed.new_group = lambda **more: (
        devices.append(environment["GLOO_SOCKET_IFNAME"]) or made(**more)
    )
    worker = gloo_worker(torch, rank=0)
    worker._ranks = 0
    request = {"rank": 0, "ranks": 3, "store": ["10.0.0.1", 29], "interfaces": ["a", "b", "c"]}
    assert worker._join({**request, "timeout_ns": 2_500_000_000}) == {}
    assert devices == ["b", "c"]
    names = [each[0] for each in torch.asked]
    assert names == ["TCPStore", "init_process_group", "new_group", "new_group", "barrier"]
    _, address, port, ranks, more = torch.asked[0]
    assert (address, port, ranks, more["is_master"]) == ("10.0.0.1", 29, 3, True)
    assert more["timeout"].total_seconds() == 2.5
    first = torch.asked[1]
    assert (first[1], first[2]["rank"], first[2]["world_size"]) == ("gloo", 0, 3)
    assert len(worker._groups) == 3
    assert worker._groups[0] is None
    torch.asked.clear()
    worker._join({**request, "rank": 2, "timeout_ns": SECOND})
    assert torch.asked[0] == ("destroy_process_group", {})
    assert torch.asked[1][-1]["is_master"] is False
    torch.asked.clear()
    assert worker._leave() == worker._leave() == {}
    assert torch.asked == [("destroy_process_group", {})]


def test_a_loop_ends_in_the_round_in_which_a_rank_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Stood(monkeypatch, gloo_program)
    torch = Torch({"all_reduce": [[3, 3, 0], [3, 2, 0], [3, 3, 1]]})
    worker = gloo_worker(torch)
    run = torch.distributed.all_reduce

    def reduced(tensor: Any) -> None:
        clock.at += 7
        run(tensor)
        if len(torch.asked) == 2:
            worker._stopping.set()

    torch.distributed.all_reduce = reduced
    seen: dict[str, Any] = {"operations": [], "wrong": 0, "failure": None}
    worker._looping = (3, 4, seen)
    assert worker._loop({"size": 8}) is seen
    begin = 5 * SECOND
    ends = [(begin + 7 * n, begin + 7 * n + 7) for n in range(3)]
    assert seen == {"operations": ends, "wrong": 1, "failure": None}
    assert [each[1][-1] for each in torch.asked] == [0, 0, 1]

    def failing(tensor: Any) -> None:
        raise RuntimeError("Connection closed by peer")

    torch.distributed.all_reduce = failing
    worker._looping = (3, 4, {"operations": [], "wrong": 0, "failure": None})
    assert worker._loop({"size": 8})["failure"] == "Connection closed by peer"


def test_segments_sent_again_are_noted_when_their_count_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Stood(monkeypatch, gloo_program)
    worker = gloo_worker(None)
    seen = seen_of(worker)
    counts = iter([5, 5, 6, 6, 9])

    def count() -> int:
        found = next(counts, None)
        if found is None:
            worker._seen = {}
            return 9
        return found

    monkeypatch.setattr(gloo_program, "_retransmitted", count)
    worker._watch_retransmissions(seen)
    period, begin = 20_000_000, 5 * SECOND
    assert seen["retransmitted"] == [begin + period, begin + 3 * period]
    assert set(clock.sleeps) == {period}
    assert clock.at == begin + 5 * period


def test_the_count_of_segments_sent_again_is_read_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 812 790 23 4\n"
    )
    monkeypatch.setattr(gloo_program, "open", lambda *_, **__: io.StringIO(text), raising=False)
    assert gloo_program._retransmitted() == 23


class Lines(io.StringIO):
    """Output of a program, as replies by the number of their request."""

    def found(self) -> dict[int, dict[str, Any]]:
        return {each["id"]: each for each in map(json.loads, self.getvalue().splitlines())}


def test_requests_are_answered_in_turn_and_a_loop_can_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop stands in its first operation until it is abandoned; then work goes on."""
    out, entered, leave = Lines(), threading.Event(), threading.Event()
    requests: queue.Queue[bytes] = queue.Queue()
    stdin = SimpleNamespace(buffer=SimpleNamespace(readline=requests.get))
    monkeypatch.setattr(gloo_program, "sys", SimpleNamespace(stdin=stdin, stdout=out))
    ended: list[int] = []
    monkeypatch.setattr(gloo_program, "os", SimpleNamespace(_exit=ended.append, getpid=lambda: 4))
    torch = Torch()
    torch.distributed.all_reduce = lambda _: (entered.set(), leave.wait(20))
    worker = gloo_worker(torch)
    worker._groups = ["mine"]
    serving = threading.Thread(target=worker.serve, daemon=True)
    serving.start()

    def ask(number: int, do: str, **body: Any) -> None:
        requests.put(json.dumps({"id": number, "do": do, **body}).encode() + b"\n")

    ask(1, "hum")
    until(lambda: 1 in out.found(), SystemClock())
    ask(2, "loop", size=8)
    assert entered.wait(20)
    assert not worker._stopping.is_set()
    ask(3, "stop")
    ask(4, "abandon")
    ask(5, "leave")
    until(lambda: 5 in out.found(), SystemClock())
    ask(6, "abandon")
    requests.put(b"")
    serving.join(20)
    leave.set()
    found = out.found()
    assert found[1]["error"]["text"] == "there is no request 'hum'"
    assert found[2]["ok"] == {"operations": [], "wrong": 0, "failure": "abandoned"}
    assert [found[number]["ok"] for number in (3, 4, 5, 6)] == [{}, {}, {}, {}]
    order = [json.loads(line)["id"] for line in out.getvalue().splitlines()]
    assert order.index(2) < order.index(4)
    assert order.count(2) == 1
    # The group that the abandoned thread is in is kept.
    assert worker._left == [(["mine"], "world")]
    assert (ended, worker._stopping.is_set()) == ([0], True)


def test_replies_carry_number_stamps_and_slew(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Lines()
    monkeypatch.setattr(replies, "now", lambda: 77)
    monkeypatch.setattr(replies, "slewed", lambda: -5)
    made = replies.Replies(out)
    made.reply(8, 70, {"a": 1})
    made.fail(9, 71, ValueError())
    made.fail(10, 72, OSError("no"))
    made.event({"b": 2})
    first, second, third, event = map(json.loads, out.getvalue().splitlines())
    assert first == {"id": 8, "at": [70, 77], "slewed": -5, "ok": {"a": 1}}
    assert second["error"] == {"kind": "ValueError", "text": "ValueError"}
    assert (third["id"], third["at"], third["error"]["text"]) == (10, [72, 77], "no")
    assert event == {"event": {"b": 2}, "at": [77, 77]}
