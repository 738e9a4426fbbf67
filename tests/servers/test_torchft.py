"""Replicas of torchft: what a replica does with quorums as given by hand, and torchft itself."""

import importlib.util
import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from program_host import Here
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs.torchft_program import _TorchftWorker
from lightrig.instruments.jobs.traffic.checked_job import CheckedJob
from lightrig.instruments.jobs.traffic.gloo import NoPyTorchError
from lightrig.instruments.jobs.traffic.torchft import TorchftRunner
from lightrig.instruments.servers.host.linux import LinuxServer


class Manager:
    """Steps by hand: whether the quorum is new, what the other replicas give, the commit."""

    def __init__(self, worker: _TorchftWorker, *steps: tuple[bool, list[list[int]], bool]) -> None:
        self.worker, self.steps, self.given = worker, list(steps), list[list[int]]()

    def start_quorum(self) -> None:
        if not self.steps:
            raise TimeoutError("no quorum")
        self.worker._configured += self.steps[0][0]

    def allreduce(self, tensor: Any, reduce_op: str) -> Any:
        assert reduce_op == "sum"
        self.given.append(tensor.tolist())
        for others in self.steps[0][1]:
            tensor += np.array(others, tensor.dtype)
        return SimpleNamespace(wait=lambda: True)

    def should_commit(self) -> bool:
        return self.steps.pop(0)[2]

    def errored(self) -> str:
        return "connection lost"


@pytest.fixture
def worker() -> _TorchftWorker:
    """The second of three replicas."""
    made = _TorchftWorker()
    made._place, made._places = 1, 3
    made._torch = SimpleNamespace(
        int32=np.uint32, int64=np.int64, frombuffer=np.frombuffer, zeros=np.zeros,
        distributed=SimpleNamespace(ReduceOp=SimpleNamespace(SUM="sum")),
    )  # fmt: skip
    return made


def test_replicas_that_are_left_go_on_after_the_latest_iteration(worker: _TorchftWorker) -> None:
    manager = worker._manager = Manager(
        worker,
        (True, [[1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]], True),
        (False, [[5, 6], [70, 80]], True),
        (True, [], True),
    )
    assert worker._agree(0) == ([0, 1, 2], 0)
    assert (worker._rank, worker._ranks) == (1, 3)
    block = np.array([100, 200], np.uint32).tobytes()
    assert np.frombuffer(worker._communicate("all_reduce", block), np.uint32).tolist() == [175, 286]
    with pytest.raises(RuntimeError, match="the quorum is another one") as another:
        worker._communicate("all_reduce", block)
    # Nothing was given to the new quorum, in which the others agree first.
    assert manager.given == [[0, 1, 0, 0, 0, 0], [100, 200]]
    manager.steps = [
        (False, [[0, 0, 1, 0, 0, 45]], False),
        (False, [[0, 0, 1, 0, 0, 45]], True),
    ]
    seen: dict[str, Any] = {"reformed": [], "members": [0, 1, 2]}
    worker._seen = seen
    assert worker._reformed(another.value, 41, seen) == 46
    assert (seen["members"], len(seen["reformed"])) == ([1, 2], 1)
    assert (worker._rank, worker._ranks) == (0, 2)
    assert manager.given[2:] == [[0, 1, 0, 0, 41, 0]] * 2


def test_a_step_that_is_not_committed_has_no_result(worker: _TorchftWorker) -> None:
    worker._manager = Manager(worker, (True, [], True), (False, [[9, 8]], False))
    worker._agree(3)
    with pytest.raises(RuntimeError, match="not committed: connection lost"):
        worker._communicate("train", bytes(32))


def test_a_replica_without_a_quorum_fails(worker: _TorchftWorker) -> None:
    worker._manager, worker._agreed = Manager(worker), 0
    worker._seen = seen = {"reformed": []}
    with pytest.raises(TimeoutError, match="no quorum"):
        worker._reformed(RuntimeError(), 3, seen)
    assert seen == {"reformed": []}


@pytest.fixture
def runner() -> Iterator[TorchftRunner]:
    clock = SystemClock()
    servers = {f"server{n}": LinuxServer(f"server{n}", Here(), clock, {}) for n in range(3)}
    made = TorchftRunner(
        servers, dict.fromkeys(servers, "127.0.0.1"), clock, timeout=5 * 10**9, detector=10**9
    )
    made._interfaces = ["lo"]
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
