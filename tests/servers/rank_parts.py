"""Stand-ins for MPI and PyTorch on arrays, and ranks that are asked by lines, in one process."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pytest
from program_lines import ProgramLines

from lightrig.instruments.jobs.programs.gloo_program import Worker
from lightrig.instruments.jobs.programs.mpi_program import MpiWorker

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


class Results:
    """What is asked of a library, and the results that a test has given for it, by operation.

    Attributes:
        asked: name and arguments of each operation.
        meanwhile: is called with the name of each one while it runs.
    """

    def __init__(self, results: dict[str, list[Any]] | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.results = results or {}
        self.meanwhile: Callable[[str], object] = lambda _: None

    def put(self, name: str, target: Any) -> Callable[[], None]:
        """Return what ends an operation: its next result is written, or raised."""
        given = self.results.get(name)
        result = given.pop(0) if given else None

        def end() -> None:
            if isinstance(result, Exception):
                raise result
            if result is not None:
                target[...] = result

        return end

    def names(self) -> list[str]:
        return [each[0] for each in self.asked]


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


class MpiError(RuntimeError):
    """An error of mpi4py, by its class."""

    def Get_error_class(self) -> int:  # noqa: N802 - mpi4py's name
        return int(self.args[0])


class Mpi(Results):
    """MPI, its world and the communicator of the only lane, whose requests end after some polls."""

    THREAD_SERIALIZED, MAX, UNDEFINED = "one at a time", "greatest", -32766
    ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED = 75, -32766, 77
    Exception = MpiError

    def __init__(
        self, results: dict[str, list[Any]] | None = None, rank: int = 1, size: int = 3
    ) -> None:
        super().__init__(results)
        self.rank, self.size, self.polls = rank, size, 2
        self.COMM_WORLD = SimpleNamespace(
            Get_group=lambda: SimpleNamespace(Incl=self._noted("Incl", lambda members: members)),
            Create_group=self._noted("Create_group", lambda _: self),
            Ibarrier=lambda: self._begin("Ibarrier of the world"),
        )
        self.Init_thread = self._noted("Init_thread", lambda _: None)

    def _noted(self, name: str, action: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            self.asked.append((name, given))
            return action(given)

        return call

    def _begin(self, name: str, *arrays: Any, **where: Any) -> Pending:
        self.asked.append((name, *[each.tolist() for each in arrays[:1]], where))
        self.meanwhile(name)
        return Pending(self.put(name, arrays[-1] if arrays else None), self.polls)

    def __getattr__(self, name: str) -> Callable[..., Pending]:
        if not name.startswith("I"):
            raise AttributeError(name)

        def begin(*arrays: Any, **where: Any) -> Pending:
            return self._begin(name, *arrays, **where)

        return begin

    def Is_initialized(self) -> bool:  # noqa: N802 - mpi4py's name
        return "Init_thread" in self.names()

    def Get_library_version(self) -> str:  # noqa: N802 - mpi4py's name
        return "MPICH Version:      5.0.1\nMPICH Release date: unreleased"

    def Get_rank(self) -> int:  # noqa: N802 - mpi4py's name
        return self.rank

    def Get_size(self) -> int:  # noqa: N802 - mpi4py's name
        return self.size


class Torch(Results):
    """As much of PyTorch as a collective needs; its operations give what they are told to."""

    __version__ = "2.11.0"
    int32 = np.uint32

    def __init__(self, results: dict[str, list[Any]] | None = None) -> None:
        super().__init__(results)
        self.waited: list[Pending] = []
        operations = (
            *("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"),
            *("all_to_all_single", "isend", "recv", "TCPStore", "init_process_group"),
            *("barrier", "destroy_process_group"),
        )
        self.distributed = SimpleNamespace(
            **{name: self._operation(name) for name in operations},
            is_gloo_available=lambda: True,
            new_group=self._new_group,
            group=SimpleNamespace(WORLD="world"),
        )

    def _operation(self, name: str) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            plain = [each.tolist() if isinstance(each, np.ndarray) else each for each in given]
            self.asked.append((name, *plain, more))
            self.meanwhile(name)
            work = Pending(self.put(name, given[0] if given else None))
            if not more.get("async_op") and name != "isend":
                work.end()
            self.waited.append(work)
            return work

        return run

    def _new_group(self, **more: Any) -> str:
        """Return the device on which the group would be made."""
        self.asked.append(("new_group", more))
        return os.environ["GLOO_SOCKET_IFNAME"]

    def set_num_threads(self, count: int) -> None:
        assert count == 1

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
    """A clock that sleeps move, of one module.

    sleeps: whether it is moved by the module's sleeps; by default these take their real time, since
    the thread that counts TCP segments sleeps beside the rounds of a test.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, module: Any, *, sleeps: bool = False
    ) -> None:
        self.at = 5 * SECOND
        self.sleeps: list[int] = []
        monkeypatch.setattr(module, "now", lambda: self.at)
        if sleeps:
            monkeypatch.setattr(module, "time", SimpleNamespace(sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(round(seconds * 1e9))
        self.at += self.sleeps[-1]


def block(*numbers: int) -> bytes:
    return np.array(numbers, np.uint32).tobytes()


class Rank(ProgramLines):
    """The program of one rank."""

    def checked(self, collective: str, count: int) -> dict[str, Any]:
        """Run checked rounds until one fails; return the state then."""
        self.ask("checked", collective=collective, count=count)
        state: dict[str, Any] = self.ask("state", since=0)
        return state

    def close(self) -> None:
        """End it, with all its threads: one counts TCP segments beside its rounds."""
        self.ask("abandon")
        super().close()


@contextmanager
def gloo_rank(
    monkeypatch: pytest.MonkeyPatch,
    torch: Any,
    rank: int = 1,
    lanes: int = 1,
    kind: Callable[[IO[str]], Worker] = Worker,
    **join: Any,
) -> Iterator[Rank]:
    """A rank of three that has joined over a stand-in of PyTorch."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")  # which joining overwrites
    made = Rank(kind)
    assert made.ask("hello")["torch"].startswith(torch.__version__)
    interfaces = ["a", "b", "c"][:lanes]
    request = {"rank": rank, "ranks": 3, "store": ["10.0.0.1", 29], "timeout_ns": 10 * SECOND}
    made.ask("join", **{**request, "interfaces": interfaces, **join})
    torch.asked.clear()
    torch.waited.clear()
    yield made
    made.close()


@contextmanager
def mpi_rank(
    monkeypatch: pytest.MonkeyPatch, mpi: Any, timeout_ns: int = 10 * SECOND
) -> Iterator[Rank]:
    """A rank that has joined over a stand-in of MPI."""
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(rc=SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    made = Rank(MpiWorker)
    assert made.ask("hello")["mpi"] == "MPICH 5.0.1"
    made.ask("join", members=[2, 0, 1], timeout_ns=timeout_ns)
    mpi.asked.clear()
    yield made
    made.close()
