"""Replicas of torchft: what a replica does with quorums as given by hand, and torchft itself."""

import contextlib
import importlib.metadata
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from program_host import Here
from rank_parts import Rank, Torch, gloo_rank
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs.checked_rounds import CheckedRounds
from lightrig.instruments.jobs.programs.torchft_program import TorchftWorker
from lightrig.instruments.jobs.traffic.checked_job import CheckedJob
from lightrig.instruments.jobs.traffic.gloo import NoPyTorchError
from lightrig.instruments.jobs.traffic.torchft import TorchftRunner
from lightrig.instruments.servers.host.linux import LinuxServer

# Steps of torchft: whether the quorum is another one, what the other replicas give, the commit.
Step = tuple[bool, list[list[int]], bool]

JOINED: Step = (True, [[1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]], True)
"""A quorum of three replicas; each says which it is, then its iteration in the place of its own."""


class Torchft(ModuleType):
    """As much of torchft as a replica needs: a manager whose steps are given by hand."""

    class ProcessGroupGloo:
        def __init__(self, timeout: timedelta) -> None:
            self.timeout = timeout

        def configure(self, *given: Any, **further: Any) -> None:
            pass

    class CheckpointTransport:
        pass

    def __init__(self, *steps: Step) -> None:
        super().__init__("torchft")
        self.steps, self.given = list(steps), list[list[int]]()
        self.joined: dict[str, Any] = {}
        self.ended, self.begun = 0, False

    def Manager(self, **joined: Any) -> "Torchft":  # noqa: N802 - torchft's name
        self.joined = joined
        return self

    def start_quorum(self) -> None:
        if not self.steps:
            raise TimeoutError("no quorum")
        assert not self.begun, "a step begins after the end of the one before"
        self.begun = True
        if self.steps[0][0]:
            self.joined["pg"].configure("store", 0, 1)

    def allreduce(self, tensor: Any, reduce_op: str) -> Any:
        assert reduce_op == "sum"
        self.given.append(tensor.tolist())
        for others in self.steps[0][1]:
            tensor += np.array(others, tensor.dtype)
        return SimpleNamespace(wait=lambda: True)

    def should_commit(self) -> bool:
        self.begun = False
        return self.steps.pop(0)[2]

    def errored(self) -> str:
        return "connection lost"

    def shutdown(self, wait: bool) -> None:
        self.ended += 1


class TorchOfReplicas(Torch):
    """As much of PyTorch as torchft's replicas need."""

    int64, frombuffer = np.int64, staticmethod(np.frombuffer)
    zeros = staticmethod(np.zeros)

    def __init__(self) -> None:
        super().__init__()
        self.distributed.ReduceOp = SimpleNamespace(SUM="sum")
        self.distributed.TCPStore = lambda *_, **__: SimpleNamespace(port=4711)


@contextlib.contextmanager
def replica(monkeypatch: pytest.MonkeyPatch, torchft: Torchft, rank: int = 1) -> Iterator[Rank]:
    """One of three replicas, by default the second."""
    monkeypatch.setattr(importlib.metadata, "version", {"torchft": "0.1.1"}.__getitem__)
    monkeypatch.setitem(sys.modules, "torchft", torchft)
    monkeypatch.setitem(sys.modules, "torchft.checkpointing", torchft)
    join = {"address": "10.0.0.2", "silence_ns": 2_500_000_000}
    with gloo_rank(monkeypatch, TorchOfReplicas(), rank=rank, kind=TorchftWorker, **join) as made:
        yield made


def numbers(block: bytes) -> list[int]:
    return np.frombuffer(block, np.uint32).tolist()


def test_replicas_that_are_left_go_on_after_the_latest_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first replica is lost in the second round; the third was ahead, at iteration 45."""
    mine, first, third = (CheckedRounds("all_reduce", 2, rank, 3) for rank in (1, 0, 2))
    lower, upper = (CheckedRounds("all_reduce", 2, rank, 2) for rank in (0, 1))
    torchft = Torchft(
        JOINED,
        (False, [numbers(first.given(0)), numbers(third.given(0))], True),
        # The quorum alone is another one: nothing is given in it before the others agree.
        (True, [[0, 0, 1, 0, 0, 45]], False),
        (False, [[0, 0, 1, 0, 0, 45]], True),
        (False, [numbers(upper.given(46))], True),
        (False, [[9, 8]], True),
    )
    with replica(monkeypatch, torchft) as rank:
        assert rank.ask("hello")["torch"] == "2.11.0 with torchft 0.1.1"
        state = rank.checked("all_reduce", 2)
    joined = torchft.joined
    assert (joined["lighthouse_addr"], joined["replica_id"]) == ("http://10.0.0.1:29", "rank1")
    assert (joined["store_addr"], joined["store_port"]) == ("10.0.0.2", 4711)
    assert joined["pg"].timeout == joined["timeout"] == timedelta(seconds=10)
    assert torchft.given == [
        [0, 1, 0, 0, 0, 0],
        numbers(mine.given(0)),
        *[[0, 1, 0, 0, 1, 0]] * 2,
        numbers(lower.given(46)),
        numbers(lower.given(47)),
    ]
    assert (state["members"], len(state["reformed"])) == ([1, 2], 1)
    assert (state["exchanges"], state["wrong"]) == (3, 1)
    # At last there is no quorum, which the manager raises at each step.
    assert state["failure"] == "TimeoutError: no quorum"


def test_a_step_that_is_not_committed_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while they join, in the second step of four, nor in a round."""
    torchft = Torchft(
        (True, [[1, 0, 0, 0, 0, 0]], True),
        (True, [[1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]], False),
        JOINED,
        (False, [[9]], False),
    )
    with replica(monkeypatch, torchft) as rank:
        state = rank.checked("train", 4)
    assert torchft.given[:3] == [[0, 1, 0, 0, 0, 0]] * 3
    assert (state["exchanges"], state["reformed"], state["members"]) == (0, [], [0, 1, 2])
    assert state["failure"] == "TimeoutError: no quorum"


def test_the_lighthouse_runs_at_the_first_replica_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torchft, made, ended = Torchft(JOINED), dict[str, Any](), list[str]()
    torchft.steps = [(True, [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]], True)]
    lighthouse = SimpleNamespace(shutdown=lambda: ended.append("lighthouse"))
    coordination = SimpleNamespace(
        LighthouseServer=lambda **given: made.update(given) or lighthouse
    )
    monkeypatch.setitem(sys.modules, "torchft.coordination", coordination)
    with replica(monkeypatch, torchft, rank=0) as rank:
        assert made["bind"] == "10.0.0.1:29"
        assert (made["heartbeat_timeout_ms"], made["min_replicas"]) == (2500, 1)
        assert rank.ask("leave") == rank.ask("leave") == {}
    assert (ended, torchft.ended) == (["lighthouse"], 1)


@pytest.fixture
def runner() -> Iterator[TorchftRunner]:
    clock = SystemClock()
    servers = {f"server{n}": LinuxServer(f"server{n}", Here(), clock, {}) for n in range(3)}
    addresses = dict.fromkeys(servers, "127.0.0.1")
    made = TorchftRunner(
        servers, addresses, clock, interface="lo", timeout=5 * 10**9, detector=10**9
    )
    yield made
    made.close()


def test_a_server_without_torchft_is_named(
    runner: TorchftRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "torchft.py").write_text("raise ImportError('there is none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NoPyTorchError, match="server0 has no PyTorch") as missing:
        runner.load(["server0"])
    assert "there is none" in str(missing.value)


@pytest.mark.long
def test_replicas_of_torchft_go_on_without_one_that_was_killed(runner: TorchftRunner) -> None:
    if importlib.util.find_spec("torchft") is None:
        pytest.skip("torchft is not installed")
    ranks = ("server0", "server1", "server2")
    runner.form(ranks)
    assert " with torchft " in runner.tool
    job = CheckedJob(runner, ranks, "train", 1002)
    until(lambda: job.state().exchanges >= 3, SystemClock())
    os.kill(runner.process("server2"), signal.SIGKILL)
    until(lambda: bool(job.state().reformed), SystemClock())
    before = job.state().exchanges
    until(lambda: job.state().exchanges >= before + 3, SystemClock())
    state = job.stop()
    assert (state.wrong, state.error) == (0, "")
    assert state.groups == {frozenset({"server0", "server1"})}
