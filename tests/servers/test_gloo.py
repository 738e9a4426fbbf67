"""Collectives by Gloo: with PyTorch where it is, and with a stand-in where it is not."""

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from program_host import Here
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.core.collectives import (
    CollectiveCall,
    CollectiveFailedError,
    Exchange,
)
from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.traffic.gloo import GlooRunner, NoPyTorchError
from lightrig.instruments.jobs.traffic.rank_programs import rank_shares
from lightrig.instruments.servers.host.linux import LinuxServer

STAND_IN = Path(__file__).parent / "stand_in"
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)


@pytest.fixture
def runner() -> Iterator[Callable[..., GlooRunner]]:
    made: list[GlooRunner] = []

    def build(ranks: int, *others: str) -> GlooRunner:
        clock = SystemClock()
        servers = {f"server{n}": LinuxServer(f"server{n}", Here(), clock, {}) for n in range(ranks)}
        addresses = dict.fromkeys(servers, "127.0.0.1")
        made.append(GlooRunner(servers, addresses, clock, interface="lo", lanes=others))
        return made[-1]

    yield build
    for each in made:
        each.close()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Lets the ranks take the stand-in for PyTorch.

    In the folder returned, files are its faults; in `done` and `failed` it adds a byte for each
    operation, so that nobody has to guess how long a busy machine takes for one.
    """
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    for name in ("fault", "wrong", "hang", "done", "failed"):
        monkeypatch.setenv(f"LIGHTRIG_{name.upper()}", str(tmp_path / name))
        if name in {"done", "failed"}:
            (tmp_path / name).touch()
    return tmp_path


def counted(file: Path, count: int) -> None:
    """Wait for so many more operations than the file tells of."""
    wanted = file.stat().st_size + count
    until(lambda: file.stat().st_size >= wanted, SystemClock())


def call(collective: Collective, ranks: int, *sizes: int) -> CollectiveCall:
    names = tuple(f"server{n}" for n in range(ranks))
    return CollectiveCall(collective, names, sizes, warm_up=1, iterations=3)


def test_every_collective_among_ranks_of_pytorch(runner: Callable[..., GlooRunner]) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    gloo = runner(2)
    for collective in COLLECTIVES:
        small, large = gloo.run(call(collective, 2, 1000, 100_000))
        assert (small.wrong, large.wrong) == (0, 0)
        assert 990 <= small.size <= 1000
        assert len(small.times_ns) == 3
    running = gloo.start(("server1", "server0"), 4096)
    traffic = running.stop()
    assert traffic.ranks == ("server1", "server0")
    assert (traffic.wrong, traffic.failures) == (0, {})
    assert len(traffic.completed()) >= 1


def test_each_operation_is_timed_and_checked(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo = runner(1)
    (first,) = gloo.run(call("all_gather", 1, 4001))
    assert (first.size, first.wrong, first.averaged_over) == (4000, 0, 1)
    assert first.tool == "Gloo of PyTorch 0.stand-in"
    assert len(first.times_ns) == 3
    (stand_in / "wrong").touch()
    (second,) = gloo.run(call("all_gather", 1, 4001))
    assert second.wrong == 3


class Answering(LinuxServer):
    """A server whose rank answers by hand: two operations, `times` ns each, `wrong` values."""

    def __init__(self, name: str, times: list[int], wrong: int) -> None:
        super().__init__(name, Here(), SystemClock(), {})
        measured = {"size": 96, "times": times, "wrong": wrong}
        self.answers = {"hello": {"torch": "2.11.0"}, "run": {"sizes": [measured]}}

    def start(self, *_: Any, **__: Any) -> Any:
        def submit(verb: str, body: Any, duration: int = 0) -> Any:
            return SimpleNamespace(result=lambda *_: self.answers.get(verb, {}))

        return SimpleNamespace(submit=submit, over=False, close=lambda: None)


def test_of_several_ranks_the_slowest_counts() -> None:
    servers = {
        "server0": Answering("server0", [5, 1], 0), "server1": Answering("server1", [2, 3], 2),
    }  # fmt: skip
    gloo = GlooRunner(servers, dict.fromkeys(servers, "127.0.0.1"), SystemClock())
    (found,) = gloo.run(call("all_to_all", 2, 100))
    assert (found.times_ns, found.size, found.wrong) == ((5, 3), 96, 2)
    assert found.tool == "Gloo of PyTorch 2.11.0"


def test_traffic_goes_on_until_it_is_stopped(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo = runner(1)
    clock = SystemClock()
    before = clock.now()
    running = gloo.start(("server0",), 64)
    counted(stand_in / "done", 7)
    traffic = running.stop()
    completed = traffic.completed()
    assert len(completed) > 5
    assert traffic.failures == {}
    assert before < completed[0][0].earliest
    assert all(began.earliest <= ended.latest for began, ended in completed)
    assert completed[-1][1].latest < clock.now()


def test_traffic_that_is_stopped_before_it_begins_ends_and_the_next_goes_on(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo = runner(1)
    clock = SystemClock()
    for _ in range(5):
        completed = gloo.start(("server0",), 64).stop().completed()
        assert completed
        assert completed[-1][1].latest < clock.now()
    running = gloo.start(("server0",), 64)
    counted(stand_in / "done", 7)
    assert len(running.stop().completed()) > 5


def test_failed_traffic_is_reported_with_its_operations(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo = runner(1)
    running = gloo.start(("server0",), 64)
    counted(stand_in / "done", 3)
    (stand_in / "fault").touch()
    until(lambda: (stand_in / "failed").stat().st_size, SystemClock())
    traffic = running.stop()
    assert traffic.failures == {"server0": "Connection closed by peer"}
    assert traffic.operations["server0"]
    (stand_in / "fault").unlink()
    assert gloo.run(call("all_reduce", 1, 64))[0].wrong == 0


def test_traffic_in_an_operation_that_does_not_end_is_abandoned_and_the_next_goes_on(
    runner: Callable[[int], GlooRunner], stand_in: Path
) -> None:
    gloo = runner(2)
    (stand_in / "hang").touch()
    running = gloo.start(("server0", "server1"), 64)
    gloo.kill("server1")
    traffic = running.abandon()
    assert traffic.ranks == ("server0",)
    assert traffic.failures == {"server0": "abandoned"}
    (stand_in / "hang").unlink()
    again = gloo.start(("server0",), 64).stop()
    assert again.failures == {}
    assert again.completed()
    # Nothing of what was left behind is answered, nor waited for.
    both = gloo.start(("server0", "server1"), 64).abandon()
    assert set(both.failures.values()) == {"abandoned"}


def test_a_collective_that_fails_ends_every_rank_and_names_the_server(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo = runner(1)
    (stand_in / "fault").touch()
    with pytest.raises(
        CollectiveFailedError, match="server0 could not run in a collective of 1"
    ) as failed:
        gloo.run(call("all_reduce", 1, 64))
    assert "Connection closed by peer" in str(failed.value)
    (stand_in / "fault").unlink()
    assert gloo.run(call("all_reduce", 1, 64))[0].wrong == 0


def test_a_server_without_pytorch_is_named_with_advice(
    runner: Callable[..., GlooRunner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NoPyTorchError, match="server0 has no PyTorch") as missing:
        runner(1).load(["server0"])
    assert "because   there is none" in str(missing.value)


# ------------------------------------------------------------------------- exchanges


def skewed(ranks: int) -> Exchange:
    """Shares that all differ, on two lanes of three; nothing goes from rank 1 to rank 0."""
    lanes = [
        [
            [4 * (7 * i + 3 * j + 40 * lane) * ((i, j) != (1, 0)) for j in range(ranks)]
            for i in range(ranks)
        ]
        for lane in (0, 1)
    ]
    nothing = [[0] * ranks] * ranks
    shapes = (tuple(tuple(row) for row in lane) for lane in (lanes[0], nothing, lanes[1]))
    return Exchange(tuple(f"server{n}" for n in range(ranks)), tuple(shapes))


def test_sent_shares_are_received_and_idle_lanes_are_left_out() -> None:
    what = skewed(3)
    shares = rank_shares(what)
    for place, sizes in ((0, what.lanes[0]), (1, what.lanes[2])):
        for i, one in enumerate(what.ranks):
            assert [n * 4 for n in shares[one][place]["given"]] == list(sizes[i])
            for j, second in enumerate(what.ranks):
                assert shares[one][place]["given"][j] == shares[second][place]["taken"][i]
    assert {tuple(lane["lane"] for lane in lanes) for lanes in shares.values()} == {(0, 2)}
    assert what.size == sum(sum(map(sum, lane)) for lane in what.lanes)


def test_an_exchange_of_unequal_shares_among_ranks_of_pytorch(
    runner: Callable[..., GlooRunner],
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    gloo, what = runner(3, "lo", "lo"), skewed(3)
    found = gloo.exchange(what, warm_up=1, iterations=2)
    assert (found.wrong, len(found.times_ns), found.exchange) == (0, 2, what)
    traffic = gloo.start_exchange(what).stop()
    assert (traffic.wrong, traffic.failures) == (0, {})
    assert traffic.completed()


def test_every_value_of_an_exchange_is_checked(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo = runner(1, "lane1", "lane2")
    what = Exchange(("server0",), (((12,),), ((0,),), ((44,),)))
    found = gloo.exchange(what, warm_up=1, iterations=3)
    assert (found.wrong, len(found.times_ns)) == (0, 3)
    assert found.tool == "Gloo of PyTorch 0.stand-in"
    (stand_in / "wrong").touch()
    assert gloo.exchange(what, warm_up=0, iterations=3).wrong == 6
    running = gloo.start_exchange(what)
    traffic = running.stop()
    assert traffic.wrong == 2 * len(traffic.completed()) > 0


def test_ranks_that_are_left_go_on_without_one_that_has_ended(
    runner: Callable[..., GlooRunner], stand_in: Path
) -> None:
    gloo, clock = runner(2), SystemClock()
    both = Exchange(("server0", "server1"), (((8, 0), (0, 8)),))
    gloo.load(both.ranks)
    left = gloo.process("server0")
    running = gloo.start_exchange(both)
    os.kill(gloo.process("server1"), signal.SIGKILL)
    deadline = clock.now() + 20_000_000_000
    while gloo.ended() != ("server1",):
        assert clock.now() < deadline
        clock.sleep(1_000_000)
    (stand_in / "hang").touch()  # as connections do to a server that is not there any more
    traffic = running.abandon()
    assert (traffic.ranks, traffic.failures) == (("server0",), {"server0": "abandoned"})
    (stand_in / "hang").unlink()
    alone = Exchange(("server0",), (((8,),),))
    assert gloo.exchange(alone, warm_up=0, iterations=1).wrong == 0
    assert gloo.process("server0") == left
    assert gloo.exchange(both, warm_up=0, iterations=1).wrong == 0
