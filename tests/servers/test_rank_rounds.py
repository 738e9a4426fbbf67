"""Checked rounds of one rank, by hand: what it sends, what counts as wrong, who goes on."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest
from rank_parts import SECOND, Mpi, MpiError, Rank, Stood, Torch, block, gloo_rank, mpi_rank

from lightrig.instruments.jobs.programs import gloo_program, mpi_program
from lightrig.instruments.jobs.programs.checked_rounds import CheckedRounds
from lightrig.instruments.jobs.programs.gloo_program import Worker

OVER = RuntimeError("over")
BEGIN = 5 * SECOND


def numbers(data: bytes) -> list[int]:
    return np.frombuffer(data, np.uint32).tolist()


def test_a_rank_of_mpi_joins_the_given_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPI is initialised once; each group is of its members alone; a barrier ends the joining."""
    mpi = Mpi(rank=2)
    with mpi_rank(monkeypatch, mpi) as rank:
        assert mpi.Is_initialized() is False  # forgotten with what was asked
        for members in ([4, 1, 7], [1, 4, 7]):
            assert rank.ask("join", members=members, timeout_ns=9 * SECOND) == {}
        assert mpi.asked == [
            ("Init_thread", "one at a time"),
            ("Incl", [4, 1, 7]), ("Create_group", [4, 1, 7]), ("Ibarrier", {}),
            ("Incl", [1, 4, 7]), ("Create_group", [1, 4, 7]), ("Ibarrier", {}),
        ]  # fmt: skip


def test_a_rank_that_has_not_joined_says_so() -> None:
    rank = Rank(mpi_program.MpiWorker)
    request = {"collective": "all_reduce", "sizes": [8], "warm_up": 0, "iterations": 1}
    assert rank.error("run", **request)["text"] == "this rank has not joined the others"
    rank.close()


# Rank r of three gives (r + 1) times 1, 2, 3 ..., and 65536 r; of five values each rank has one of
# three to give to each, or takes all five.
GIVEN = [131075, 131078, 131081, 131084, 131087]
SUMS = [196614, 196620, 196626, 196632, 196638]
EXPECTED = {
    "all_reduce": SUMS,
    "train": SUMS,
    "all_to_all": [3, 65542, 131081],
    "send_receive": [65538, 65540, 65542, 65544, 65546],
}


def results(name: str, expected: list[int], parts: list[int]) -> list[Any]:
    """Return the right result of one round, then one that is wrong in its last value, then none."""
    wrong = [*expected[:-1], 0]
    if name != "train":
        return [expected, wrong, OVER]
    cuts = np.cumsum(parts)[:-1]
    steps = [np.split(np.array(each), cuts) for each in (expected, wrong)]
    return [*steps[0], *steps[1], *[OVER] * len(parts)]


@pytest.mark.parametrize("name", EXPECTED)
def test_blocks_of_mpi_go_to_the_next_rank_and_come_from_the_one_before(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 2 of three; of a step's four parts of five values the first has two."""
    operation = {"all_to_all": "Ialltoall", "send_receive": "Irecv"}.get(name, "Iallreduce")
    mpi = Mpi({operation: results(name, EXPECTED[name], [2, 1, 1, 1])}, rank=2)
    with mpi_rank(monkeypatch, mpi) as rank:
        state = rank.checked(name, 5)
    assert (state["exchanges"], state["wrong"], state["failure"]) == (2, 1, "RuntimeError: over")
    if name == "train":
        assert [each[1] for each in mpi.asked[:4]] == [GIVEN[:2], *[[each] for each in GIVEN[2:]]]
    elif name == "send_receive":
        assert mpi.asked[0][::2] == ("Irecv", {"source": 1})
        assert mpi.asked[1] == ("Isend", GIVEN, {"dest": 0})
    else:
        assert mpi.asked[0] == (operation, GIVEN[: len(EXPECTED[name])], {})


@pytest.mark.parametrize("name", EXPECTED)
def test_blocks_of_gloo_go_to_the_next_rank_and_come_from_the_one_before(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 2 of three; parts of two values: five of four, rounded up."""
    operation = {"all_to_all": "all_to_all_single", "send_receive": "recv"}.get(name, "all_reduce")
    torch = Torch({operation: results(name, EXPECTED[name], [2, 2, 1])})
    with gloo_rank(monkeypatch, torch, rank=2) as rank:
        state = rank.checked(name, 5)
    assert (state["exchanges"], state["wrong"], state["failure"]) == (2, 1, "RuntimeError: over")
    if name == "train":
        assert [each[1] for each in torch.asked[:3]] == [GIVEN[:2], GIVEN[2:4], GIVEN[4:]]
        assert [each.waits for each in torch.waited[:3]] == [1, 1, 1]
    elif name == "send_receive":
        assert torch.asked[:2] == [("isend", GIVEN, 0, {}), ("recv", [0] * 5, 1, {})]
        assert torch.waited[0].waits == 1
    elif name == "all_to_all":
        assert torch.asked[0] == (operation, [0] * 3, GIVEN[:3], {})
    else:
        assert torch.asked[0] == (operation, GIVEN, {})


def by(communicate: Callable[[bytes], bytes]) -> Callable[[IO[str]], Worker]:
    """Return the kind of a rank whose rounds are given."""

    class ByHand(Worker):
        def communicate(self, collective: str, block: bytes) -> bytes:
            return communicate(block)

    return ByHand


def test_checked_rounds_note_each_operation_and_each_wrong_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of five rounds the third is wrong; the sixth fails after 7 ns. The others take 3, 4, 5 ..."""
    clock = Stood(monkeypatch, gloo_program)
    right = CheckedRounds("all_reduce", 4, 1, 3)
    rounds: list[bytes] = []

    def communicate(given: bytes) -> bytes:
        clock.at += 3 + len(rounds)
        rounds.append(given)
        if len(rounds) == 6:
            raise OSError("gone")
        result = right.expected(len(rounds) - 1)
        return bytes(len(result)) if len(rounds) == 3 else result

    with gloo_rank(monkeypatch, Torch(), kind=by(communicate)) as rank:
        state = rank.checked("all_reduce", 4)
        later = rank.ask("state", since=3)
    assert rounds == [right.given(number) for number in range(6)]
    ends = [BEGIN + end for end in (0, 3, 7, 12, 18, 25)]
    operations = [list(pair) for pair in itertools.pairwise(ends)]
    assert state["operations"] == operations
    assert (state["wrong"], state["failure"]) == (1, "OSError: gone")
    assert (state["began"], state["failed"]) == (BEGIN + 25, BEGIN + 33)
    assert state["members"] == [0, 1, 2]
    assert (later["exchanges"], later["operations"]) == (5, operations[3:])


@pytest.mark.parametrize(("spoilt", "wrong"), [(None, 0), (1, 4), (3, 2)])
def test_training_steps_keep_half_of_the_momentum(
    spoilt: int | None, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right sums are right steps; and a wrong sum of a step stays in those after it."""
    sums = CheckedRounds("all_reduce", 4, 1, 3)
    steps = iter(range(6))

    def communicate(_: bytes) -> bytes:
        number = next(steps)
        if number == 5:
            raise OVER
        return block(1 << 20, 0, 0, 0) if number == spoilt else sums.expected(number)

    with gloo_rank(monkeypatch, Torch(), kind=by(communicate)) as rank:
        state = rank.checked("train", 4)
    assert (state["exchanges"], state["wrong"]) == (5, wrong)
    assert state["failure"] == "RuntimeError: over"


class Ulfm(Mpi):
    """A communicator with ULFM, of which one process after the other is lost.

    smaller: is left of it; places: of its members in this one; takes: time of shrinking, in ns.
    """

    def __init__(self, clock: Stood, results: list[Any], rank: int, size: int) -> None:
        super().__init__({"Iallreduce": results}, rank, size)
        self.clock, self.revoked = clock, 0
        self.smaller: Ulfm | None = None
        self.places: list[int] = []

    def Revoke(self) -> None:  # noqa: N802 - mpi4py's name
        self.revoked += 1

    def Shrink(self) -> "Ulfm":  # noqa: N802 - mpi4py's name
        self.clock.at += 100
        if self.smaller is None:
            raise RuntimeError("cannot")
        return self.smaller

    def Get_group(self) -> Any:  # noqa: N802 - mpi4py's name
        def translated(mine: Any, before: Any) -> list[int]:
            assert (mine, before.of.smaller) == (None, self)
            places: list[int] = before.of.places
            return places

        return SimpleNamespace(of=self, Translate_ranks=translated)


def test_a_group_goes_on_without_lost_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """ULFM: of the members 0, 1 and 2 the second is lost; the other one was at iteration 12.

    Each round takes 5 ns, and the one that was broken lasts until the smaller group has ended its
    first. Then the first member is lost too, and at last there is none to go on with.
    """
    clock = Stood(monkeypatch, gloo_program)
    monkeypatch.setattr(mpi_program, "now", lambda: clock.at)
    fewer, alone = CheckedRounds("all_reduce", 4, 1, 2), CheckedRounds("all_reduce", 4, 0, 1)
    rounds = [numbers(fewer.expected(number)) for number in (13, 14)]
    last = Ulfm(clock, [14, numbers(alone.expected(15)), MpiError(77)], rank=0, size=1)
    pair = Ulfm(clock, [12, *rounds, MpiError(75)], rank=1, size=2)
    whole = Ulfm(clock, [MpiError(77)], rank=2, size=3)
    whole.smaller, whole.places = pair, [0, 2]
    pair.smaller, pair.places = last, [1]
    for each in (whole, pair, last):
        each.meanwhile = lambda name: setattr(clock, "at", clock.at + 5 * (name == "Iallreduce"))
    with mpi_rank(monkeypatch, whole) as rank:
        state = rank.checked("all_reduce", 4)
    assert [each[1:] for each in pair.asked[:3]] == [
        ([0], {"op": "greatest"}), (numbers(fewer.given(13)), {}), (numbers(fewer.given(14)), {}),
    ]  # fmt: skip
    assert [each[1] for each in last.asked[:2]] == [[15], numbers(alone.given(15))]
    # Broken after 5, shrunk in 100 and agreed on in 5, then its own 5.
    ends = [BEGIN + end for end in (0, 115, 120, 235)]
    assert state["operations"] == [list(pair) for pair in itertools.pairwise(ends)]
    assert state["reformed"] == [BEGIN + 110, BEGIN + 230]
    assert (state["members"], state["wrong"]) == ([2], 0)
    assert (state["failure"], state["failed"]) == ("RuntimeError: cannot", BEGIN + 340)
    assert [each.revoked for each in (whole, pair, last)] == [1, 1, 1]


@pytest.mark.parametrize("error", [MpiError(16), MpiError(-32766), RuntimeError("another")])
def test_another_error_than_a_lost_process_ends_the_rounds(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPI_UNDEFINED is the class of what this library has no error for."""
    whole = Ulfm(Stood(monkeypatch, gloo_program), [error], rank=2, size=3)
    with mpi_rank(monkeypatch, whole) as rank:
        state = rank.checked("all_reduce", 4)
    assert state["failure"] == f"{type(error).__name__}: {error}"
    assert (state["exchanges"], state["reformed"], whole.revoked) == (0, [], 0)
