"""Collectives whose every result is checked: expected values by hand, and bugs that are planted."""

import struct
from collections.abc import Callable, Iterator

import pytest
from program_host import Here
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs.checked_rounds import (
    COLLECTIVES,
    CheckedRounds,
    added,
    updated,
)
from lightrig.instruments.jobs.traffic.checked_job import CheckedJob
from lightrig.instruments.jobs.traffic.ring import RingRunner
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import Program


def numbers(block: bytes) -> list[int]:
    return list(struct.unpack(f"={len(block) // 4}I", block))


def test_values_differ_by_rank_element_and_iteration() -> None:
    # Rank r gives (r + 1) times 1, 2, 3 ..., shifted by one an iteration, and 65536 r.
    zero, two = (CheckedRounds("all_reduce", 5, rank, 3) for rank in (0, 2))
    assert numbers(zero.given(0)) == [1, 2, 3, 4, 5]
    assert numbers(zero.given(7)) == [8, 9, 10, 11, 12]
    assert numbers(two.given(1)) == [131078, 131081, 131084, 131087, 131090]
    # 1 + 2 + 3 ranks: six times, and 65536 (0 + 1 + 2).
    assert numbers(zero.expected(1)) == [196620, 196626, 196632, 196638, 196644]
    ring = CheckedRounds("send_receive", 2, 0, 3)
    assert numbers(ring.expected(1)) == [131078, 131081]
    # 1021 values, then the first again.
    assert numbers(zero.given(1020)) == [1021, 1, 2, 3, 4]


def test_sums_do_not_carry_into_the_next_value() -> None:
    one = struct.pack("=3I", 0x00FFFFFF, 1, 7)
    assert numbers(added(one, struct.pack("=3I", 0x7F000001, 0xFFFFFFFE, 8))) == [
        0x80000000, 0xFFFFFFFF, 15,
    ]  # fmt: skip


def test_shares_and_training_steps_by_hand() -> None:
    # Rank r gives (r + 1) times 1, 2, 3 ... and 65536 r; each rank has its third of three ranks.
    middle = CheckedRounds("all_to_all", 6, 1, 3)
    assert numbers(middle.expected(0)) == [3, 4, 65542, 65544, 131081, 131084]
    # Sums of two ranks: 3 times 1, 2, 3 and 65536, then 3 times 2, 3, 4, and half of those before.
    steps = CheckedRounds("train", 3, 0, 2)
    assert numbers(steps.expected(0)) == [65539, 65542, 65545]
    assert numbers(steps.expected(1)) == [98311, 98316, 98320]
    assert numbers(updated(struct.pack("=2I", 7, 0xFFFFFFFF), bytes(8))) == [3, 0x7FFFFFFF]


@pytest.mark.parametrize("collective", ["all_reduce", "send_receive", "all_to_all"])
def test_a_result_of_the_iteration_before_is_wrong_in_every_value(collective: str) -> None:
    rounds = CheckedRounds(collective, 3000, 1, 4)
    for iteration in (1, 20, 1021):
        stale, right = numbers(rounds.expected(iteration - 1)), numbers(rounds.expected(iteration))
        assert not any(a == b for a, b in zip(stale, right, strict=True))


@pytest.mark.parametrize(("collective", "ranks"), [("broadcast", 2), ("all_reduce", 65)])
def test_what_is_not_checked_is_refused(collective: str, ranks: int) -> None:
    with pytest.raises(ValueError, match="checked"):
        CheckedRounds(collective, 4, 0, ranks)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CheckedJob]]:
    """Start a job of plain TCP on loopback; `bug` is added to the program of its ranks."""
    made: list[RingRunner] = []

    def start(collective: str, ranks: int = 3, bug: str = "") -> CheckedJob:
        sources = Program.sources

        def with_bug(program: Program) -> list[tuple[str, str]]:
            *first, (name, text) = sources(program)
            return [*first, (name, text + bug)]

        monkeypatch.setattr(Program, "sources", with_bug)
        Program.packed.cache_clear()
        names = [f"server{n}" for n in range(ranks)]
        clock = SystemClock()
        servers = {name: LinuxServer(name, Here(), clock, {}) for name in names}
        made.append(RingRunner(servers, dict.fromkeys(names, "127.0.0.1"), clock))
        made[-1].form(names)
        return CheckedJob(made[-1], tuple(names), collective, 1002)

    yield start
    Program.packed.cache_clear()
    for each in made:
        each.close()


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_plain_tcp_gives_right_results(started: Callable[..., CheckedJob], collective: str) -> None:
    job = started(collective)
    until(lambda: job.state().exchanges >= 20, SystemClock())
    state = job.stop()
    assert (state.wrong, state.error, state.failed) == (0, "", None)
    assert len(state.ends) >= 20
    assert list(state.ends) == sorted(state.ends)


STALE = """
_right = RingWorker.communicate
def _stale(self, collective, block):
    result, before = _right(self, collective, block), getattr(self, "_last", None)
    self._last, self._count = result, getattr(self, "_count", 0) + 1
    return before if self._count == 5 and self.rank == 1 else result
RingWorker.communicate = _stale
"""
FLIPPED = """
_right = RingWorker.communicate
def _flipped(self, collective, block):
    result = bytearray(_right(self, collective, block))
    self._count = getattr(self, "_count", 0) + 1
    if self._count == 5 and self.rank == 2:
        result[4 * 617 + 1] ^= 1
    return bytes(result)
RingWorker.communicate = _flipped
"""


@pytest.mark.parametrize(
    ("collective", "bug"),
    [
        ("all_reduce", STALE),
        ("all_to_all", STALE),
        ("send_receive", FLIPPED),
        ("train", FLIPPED),
        pytest.param("all_reduce", FLIPPED, marks=pytest.mark.long),
        pytest.param("all_to_all", FLIPPED, marks=pytest.mark.long),
        pytest.param("send_receive", STALE, marks=pytest.mark.long),
        pytest.param("train", STALE, marks=pytest.mark.long),
    ],
)
def test_one_wrong_result_of_one_rank_is_found(
    started: Callable[..., CheckedJob], collective: str, bug: str
) -> None:
    job = started(collective, bug=bug)
    until(lambda: job.state().exchanges >= 8, SystemClock())
    wrong = job.stop().wrong
    # A wrong gradient stays in the momentum.
    assert wrong > 1 if collective == "train" else wrong == 1


def test_the_end_of_one_rank_is_an_error_of_its_peers(started: Callable[..., CheckedJob]) -> None:
    bug = """
_right = RingWorker.communicate
def _closed(self, collective, block):
    self._count = getattr(self, "_count", 0) + 1
    if self._count == 4 and self.rank == 1:
        self._before.shutdown(2), self._after.shutdown(2)  # which loses nothing on its way
    return _right(self, collective, block)
RingWorker.communicate = _closed
"""
    job = started("all_reduce", bug=bug)
    until(lambda: bool(job.state().error), SystemClock())
    state = job.stop()
    assert state.exchanges == 3
    assert state.error.startswith("server")
    assert state.failed is not None


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_notices_that_its_next_one_is_lost(
    started: Callable[..., CheckedJob], late: int
) -> None:
    """As it sends, where it is late itself, and while it waits for the one before."""
    bug = f"""
import struct, time
_right = RingWorker.communicate
def _reset(self, collective, block):
    self._count = getattr(self, "_count", 0) + 1
    if self._count == 4 and self.rank == {late}:
        time.sleep(0.2)
    if self._count == 4 and self.rank == 1:
        self._before.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._before.close()
        time.sleep(60)
    return _right(self, collective, block)
RingWorker.communicate = _reset
"""
    job = started("send_receive", bug=bug)
    until(lambda: bool(job.state().error), SystemClock())
    assert (
        "server0: ConnectionError: to the next rank: Connection reset by peer" in job.stop().error
    )
