"""Stand-ins for MPI and PyTorch on arrays, and workers of ranks, for tests in their own process."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightrig.instruments.jobs.programs import gloo_program, mpi_program

SECOND = 1_000_000_000


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


def block(*numbers: int) -> bytes:
    return np.array(numbers, np.uint32).tobytes()


def mpi_worker(world: Any, rank: int = 1) -> Any:
    made = mpi_program._MpiWorker()
    made._group = group(world, rank)
    made._rank, made._ranks = rank, 3
    return made


def gloo_worker(torch: Any, rank: int = 1) -> Any:
    made = gloo_program.Worker()
    made._torch, made._rank, made._ranks = torch, rank, 3
    return made


def seen_of(worker: Any) -> dict[str, Any]:
    worker._seen = {
        "operations": [], "wrong": 0, "failure": None, "failed": None, "retransmitted": [],
        "reformed": [], "began": 0,
    }  # fmt: skip
    seen: dict[str, Any] = worker._seen
    return seen
