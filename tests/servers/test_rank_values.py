"""Values that one rank of a collective gives and expects, by hand: rank 1 of 3, or rank 0 of 3.

Value i of rank r is i modulo 251, plus r: rank 1 gives 1, 2, 3 ... of seven values.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from rank_parts import Mpi, Stood, Torch, gloo_rank, mpi_rank

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
def test_values_of_mpi_by_hand(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm-up whose values are not counted, a right result, none at all, and two wrong values."""
    used, given, expected = GIVEN_AND_EXPECTED[name]
    operation = {
        "all_reduce": "Iallreduce",
        "all_gather": "Iallgather",
        "reduce_scatter": "Ireduce_scatter_block",
        "all_to_all": "Ialltoall",
        "send_receive": "Irecv",
    }[name]
    mpi = Mpi({operation: [[99] * len(expected), expected, None, [*expected[:-2], -4, -5]]})
    with mpi_rank(monkeypatch, mpi) as rank:
        found = rank.ask("run", collective=name, sizes=[size], warm_up=1, iterations=3)
    (result,) = found["sizes"]
    assert (result["size"], result["wrong"]) == (used, len(expected) + 2)
    assert len(result["times"]) == 3
    if name == "send_receive":
        # From the rank before; to the one after.
        assert mpi.asked[0][::2] == ("Irecv", {"source": 0})
        assert mpi.asked[1] == ("Isend", given, {"dest": 2})
    else:
        assert mpi.asked[0] == (operation, given, {})


@pytest.mark.parametrize("size", [28, 31])
@pytest.mark.parametrize("name", GIVEN_AND_EXPECTED)
def test_values_of_gloo_by_hand(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of MPI; without a result the buffer has zeros, or what was given to be summed."""
    used, given, expected = GIVEN_AND_EXPECTED[name]
    operation = {
        "all_reduce": "all_reduce",
        "all_gather": "all_gather_into_tensor",
        "reduce_scatter": "reduce_scatter_tensor",
        "all_to_all": "all_to_all_single",
        "send_receive": "recv",
    }[name]
    first = given if name == "all_reduce" else [0] * len(expected)
    unwritten = sum(a != b for a, b in zip(first, expected, strict=True))
    torch = Torch({operation: [[99] * len(expected), expected, None, [*expected[:-2], -4, -5]]})
    with gloo_rank(monkeypatch, torch) as rank:
        found = rank.ask("run", collective=name, sizes=[size], warm_up=1, iterations=3)
    (result,) = found["sizes"]
    assert (result["size"], result["wrong"]) == (used, unwritten + 2)
    assert len(result["times"]) == 3
    if name == "all_reduce":
        assert torch.asked[0][:2] == (name, given)
    elif name == "send_receive":
        assert torch.asked[:2] == [("isend", given, 2, {}), ("recv", first, 0, {})]
        assert torch.waited[0].waits == 1
    else:
        assert torch.asked[0] == (operation, first, given, {})


def test_an_unknown_collective_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"collective": "hum", "sizes": [8], "warm_up": 0, "iterations": 1}
    with mpi_rank(monkeypatch, Mpi()) as rank:
        assert rank.error("run", **request)["text"] == "no collective is called 'hum'"
    with gloo_rank(monkeypatch, Torch()) as rank:
        assert rank.error("run", **request)["text"] == "no collective is called 'hum'"


def test_patterns_repeat_after_251_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rank 0, which receives from rank 2."""
    expected = [at % 251 + 2 for at in range(253)]
    assert expected[248:] == [250, 251, 252, 2, 3]
    request = {"collective": "send_receive", "sizes": [4 * 253], "warm_up": 0, "iterations": 1}
    torch, mpi = Torch({"recv": [expected]}), Mpi({"Irecv": [expected]}, rank=0)
    with gloo_rank(monkeypatch, torch, rank=0) as rank:
        assert rank.ask("run", **request)["sizes"][0]["wrong"] == 0
    with mpi_rank(monkeypatch, mpi) as rank:
        assert rank.ask("run", **request)["sizes"][0]["wrong"] == 0
    for asked in (torch.asked, mpi.asked):
        (given,) = (each[1] for each in asked if each[0] in ("isend", "Isend"))
        assert given[248:] == [248, 249, 250, 0, 1]


# Lane 2 of rank 1: from rank s to rank r, value i is i + 31 s + 7 r + 2.
LANE = {"lane": 2, "given": [0, 3, 5], "taken": [4, 0, 1]}


def test_shares_of_an_exchange_of_mpi_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """All right; nothing received, five wrong values; three wrong ones."""
    mpi = Mpi({"Irecv": [[9, 10, 11, 12], [71], None, None, [9, 10, 0, 0], [1]]})
    with mpi_rank(monkeypatch, mpi) as rank:
        found = rank.ask("exchange", lane=LANE, warm_up=0, iterations=3)
        assert (found["wrong"], len(found["times"])) == (0 + 5 + 3, 3)
        assert [each for each in mpi.asked if each[0] in ("Irecv", "Isend")][:4] == [
            ("Irecv", [-1] * 4, {"source": 0}),
            ("Irecv", [-1], {"source": 2}),
            ("Isend", [40, 41, 42], {"dest": 1}),
            ("Isend", [47, 48, 49, 50, 51], {"dest": 2}),
        ]
        # All lanes of all servers begin together, also where this one has no share.
        assert mpi.asked[0][0] == "Ibarrier of the world"
        mpi.asked.clear()
        idle = rank.ask("exchange", lane=None, warm_up=1, iterations=2)
        assert (idle["wrong"], len(idle["times"])) == (0, 2)
        assert mpi.names().count("Ibarrier of the world") == 3
        assert set(mpi.names()) == {"Ibarrier of the world", "Ibarrier"}


def test_shares_of_an_exchange_of_gloo_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """All right; nothing received, seven wrong values; three wrong ones."""
    results = [[9, 10, 11, 12, 71], [8, 9], None, None, [9, 0, 11, 0, 71], [8, 0]]
    torch = Torch({"all_to_all_single": results})
    other = {"lane": 1, "given": [2, 0, 0], "taken": [2, 0, 0]}
    with gloo_rank(monkeypatch, torch, lanes=3) as rank:
        found = rank.ask("exchange", lanes=[LANE, other], warm_up=0, iterations=3)
    assert (found["wrong"], len(found["times"])) == (0 + 7 + 3, 3)
    more = {"async_op": True}
    # To rank 0 on lane 1: 31 + 0 + 1 = 32; from there 7 + 1 = 8. The lanes are a, b and c.
    sent = [40, 41, 42, 47, 48, 49, 50, 51]
    exchanged = [each for each in torch.asked if each[0] != "barrier"]
    assert exchanged[:2] == [
        ("all_to_all_single", [-1] * 5, sent, [4, 0, 1], [0, 3, 5], {"group": "c", **more}),
        ("all_to_all_single", [-1] * 2, [32, 33], [2, 0, 0], [2, 0, 0], {"group": "b", **more}),
    ]
    assert [each.waits for each in torch.waited if each.waits] == [1] * 6


def test_rounds_of_mpi_end_by_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two values, and the flag that this rank sets in the third round."""
    mpi = Mpi({"Iallreduce": [None, [3, 3, 0], [3, 2, 1]]})
    with mpi_rank(monkeypatch, mpi) as rank:
        mpi.meanwhile = lambda _: rank.ask("stop") if len(mpi.asked) == 2 else None
        found = rank.ask("loop", size=11)
    assert (found["wrong"], found["failure"]) == (2 + 0 + 1, None)
    assert [each[1] for each in mpi.asked] == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]


def test_rounds_of_gloo_end_by_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, each after an exchange of two values."""
    exchanged = [None, [8, 9], [8, 1]]
    torch = Torch({"all_reduce": [None, [3, 3, 0], [3, 2, 1]], "all_to_all_single": exchanged})
    lanes = [{"lane": 1, "given": [2, 0, 0], "taken": [2, 0, 0]}]
    with gloo_rank(monkeypatch, torch, lanes=2) as rank:
        torch.meanwhile = lambda _: rank.ask("stop") if len(torch.asked) == 4 else None
        found = rank.ask("loop", size=11, lanes=lanes)
    assert (found["wrong"], found["failure"]) == ((2 + 2) + 0 + (1 + 1), None)
    assert [each[1] for each in torch.asked] == [
        [-1, -1], [1, 1, 0], [-1, -1], [1, 1, 0], [-1, -1], [1, 1, 1],
    ]  # fmt: skip


def test_long_rounds_are_polled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of what has passed, 50 us at least and 2 ms at most."""
    mpi = Mpi({"Iallreduce": [RuntimeError("over")]})
    with mpi_rank(monkeypatch, mpi) as rank:
        clock, mpi.polls = Stood(monkeypatch, mpi_program, sleeps=True), 2000
        assert rank.checked("all_reduce", 4)["failure"] == "RuntimeError: over"
    assert clock.sleeps[:2] == [50_000, 50_000]
    passed = np.cumsum([0, *clock.sleeps[:-1]])
    wanted = np.clip(passed * 0.01, 50_000, 2_000_000)
    assert clock.sleeps == pytest.approx(wanted.tolist(), abs=1)
    assert clock.sleeps[-1] == 2_000_000


def test_the_end_of_a_timed_operation_is_seen_within_a_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it takes: what is late is measured as slow. The period is 50 us."""
    mpi = Mpi()
    with mpi_rank(monkeypatch, mpi) as rank:
        clock = Stood(monkeypatch, mpi_program, sleeps=True)
        monkeypatch.setattr(gloo_program, "now", lambda: clock.at)
        end = clock.at + 70_000_000
        mpi.Iallreduce = lambda *_: SimpleNamespace(Test=lambda: clock.at >= end)
        mpi.Ibarrier = lambda: SimpleNamespace(Test=lambda: True)
        found = rank.ask("run", collective="all_reduce", sizes=[64], warm_up=0, iterations=1)
    (took,) = found["sizes"][0]["times"]
    assert 70_000_000 <= took <= 70_051_000


def test_an_operation_is_given_up_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = Mpi()
    with mpi_rank(monkeypatch, mpi, timeout_ns=10_000_000) as rank:
        clock, mpi.polls = Stood(monkeypatch, mpi_program, sleeps=True), 10**9
        began = clock.at
        why = rank.error("run", collective="all_reduce", sizes=[8], warm_up=1, iterations=0)["text"]
    assert why == "an operation was not complete after 0.01 s"
    # 10 ms are allowed: it is polled then, and given up 50 us later.
    assert clock.at - began == 10_050_000
