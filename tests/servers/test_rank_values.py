"""Values that one rank of a collective gives and expects, by hand: rank 1 of 3, or rank 2 of 3.

Value i of rank r is i modulo 251, plus r: rank 1 gives 1, 2, 3 ... of seven values.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rank_parts import (
    Mpi,
    Pending,
    Stood,
    Torch,
    group,
)

from lightrig.instruments.jobs.programs import gloo_program, mpi_program

# Of 28 or 31 bytes: seven whole values of four bytes; shares of two values for three ranks.
GIVEN_AND_EXPECTED = {
    "all_reduce": (28, [1, 2, 3, 4, 5, 6, 7], [3, 6, 9, 12, 15, 18, 21]),
    "all_gather": (24, [1, 2], [0, 1, 1, 2, 2, 3]),
    "reduce_scatter": (24, [1, 2, 3, 4, 5, 6], [9, 12]),
    "all_to_all": (24, [1, 2, 3, 4, 5, 6], [2, 3, 3, 4, 4, 5]),
    "send_receive": (28, [1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6]),
}


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
