"""The program of one MPI rank; `instruments.servers.mpi` starts it in a namespace of this machine.

Requests and replies are those of `gloo_program`, without `exchange`; `hello` replies `mpi`, the
library's version, and `join` takes `rank` and `timeout_ns`: the same processes serve any order.
MPI has no timeout: an operation that is not complete in time is given up here.
"""

from __future__ import annotations

import importlib
import os
import sys
import time  # noqa: TID251 - this runs alone in a namespace, without a bench
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lightrig.instruments.servers.gloo_program import Worker

__all__ = ["main"]

_VERSION = 1
_PATTERN = 251
_BYTES = 4

_PROGRESS_PERIOD = 50e-6
"""Period of polling for progress, in s: blocking calls of MPICH busy-wait on shared cores."""

Values = npt.NDArray[np.float32]


class OperationTimeoutError(RuntimeError):
    """An operation was not complete in time."""


def _pattern(by: int, length: int, first: int = 0) -> Values:
    # Small whole numbers: sums of them are exact.
    return (np.arange(first, first + length) % _PATTERN + by).astype(np.float32)


class _Group:
    """All ranks; operations are non-blocking and awaited with a timeout."""

    def __init__(self, mpi: Any, rank: int, timeout_ns: int) -> None:
        self.mpi = mpi
        self.all = mpi.COMM_WORLD.Split(0, rank)
        self.rank: int = self.all.Get_rank()
        self.size: int = self.all.Get_size()
        self._timeout_ns = timeout_ns

    def wait(self, *requests: Any) -> None:
        """Wait for `requests`; raises `OperationTimeoutError`."""
        deadline = time.monotonic_ns() + self._timeout_ns
        while not self.mpi.Request.Testall(requests):
            if time.monotonic_ns() > deadline:
                raise OperationTimeoutError(
                    f"an operation was not complete after {self._timeout_ns / 1e9:g} s"
                )
            time.sleep(_PROGRESS_PERIOD)


class _Collective:
    """One collective of one size among all ranks: its buffers and their expected contents."""

    def __init__(self, group: _Group, name: str, size: int) -> None:
        self._group = group
        rank, ranks, everyone = group.rank, group.size, range(group.size)
        share = size // (_BYTES * ranks)
        count = size // _BYTES if name in ("all_reduce", "send_receive") else share * ranks
        self.size = count * _BYTES
        given = _pattern(rank, share if name == "all_gather" else count)
        self._out = out = np.empty(share if name == "reduce_scatter" else count, np.float32)
        self._expected: Values
        self._begin: Callable[[], list[Any]]
        if name == "all_reduce":
            self._begin = lambda: [group.all.Iallreduce(given, out)]
            self._expected = np.sum([_pattern(by, count) for by in everyone], axis=0)
        elif name == "all_gather":
            self._begin = lambda: [group.all.Iallgather(given, out)]
            self._expected = np.concatenate([_pattern(by, share) for by in everyone])
        elif name == "reduce_scatter":
            self._begin = lambda: [group.all.Ireduce_scatter_block(given, out)]
            self._expected = np.sum([_pattern(by, share, rank * share) for by in everyone], axis=0)
        elif name == "all_to_all":
            self._begin = lambda: [group.all.Ialltoall(given, out)]
            self._expected = np.concatenate([_pattern(by, share, rank * share) for by in everyone])
        elif name == "send_receive":
            after, before = (rank + 1) % ranks, (rank - 1) % ranks
            self._begin = lambda: [
                group.all.Irecv(out, source=before),
                group.all.Isend(given, dest=after),
            ]
            self._expected = _pattern(before, count)
        else:
            raise ValueError(f"no collective is called {name!r}")

    def prepare(self) -> None:
        """Initialise the buffers before an operation."""
        self._out.fill(-1.0)

    def operate(self) -> None:
        """Run one operation to its end."""
        self._group.wait(*self._begin())

    def wrong(self) -> int:
        """Return the number of wrong values after an operation."""
        return int((self._out != self._expected).sum())


class _Round:
    """Back-to-back all-reduces until a rank requests the end."""

    def __init__(self, group: _Group, size: int) -> None:
        self._group = group
        # The last value is a stop flag, which all ranks see in the same round.
        self._given = np.ones(size // _BYTES + 1, np.float32)
        self._out = np.empty_like(self._given)

    def prepare(self, *, last: bool) -> None:
        """Initialise the buffers before a round; `last`: this rank requests the end."""
        self._given[-1] = float(last)
        self._out.fill(-1.0)

    def operate(self) -> None:
        """Run one all-reduce to its end; raises `RuntimeError`."""
        self._group.wait(self._group.all.Iallreduce(self._given, self._out))

    def wrong(self) -> int:
        """Return the number of wrong values after a round."""
        return int((self._out[:-1] != self._group.size).sum())

    def over(self) -> bool:
        """Whether a rank has requested the end."""
        return bool(self._out[-1] > 0)


class _MpiWorker(Worker):
    """Answers the requests of one harness with MPI, which is initialised by `join`."""

    def __init__(self) -> None:
        super().__init__()
        self._group: _Group | None = None

    def _hello(self) -> dict[str, Any]:
        mpi4py = importlib.import_module("mpi4py")
        # Not at import or exit: finalizing would hang on a rank whose links are down.
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        self._mpi = importlib.import_module("mpi4py.MPI")
        first_line = self._mpi.Get_library_version().partition("\n")[0]
        version = first_line.replace("Version:", " ")
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return {"mpi": " ".join(version.split()), "boot": boot, "pid": os.getpid()}

    def _join(self, request: dict[str, Any]) -> dict[str, Any]:
        # Requests run on one thread; it changes only with `abandon`, after which MPI is not used.
        if not self._mpi.Is_initialized():
            self._mpi.Init_thread(self._mpi.THREAD_SERIALIZED)
        self._group = _Group(self._mpi, request["rank"], request["timeout_ns"])
        self._barrier()
        return {}

    def _leave(self) -> dict[str, Any]:
        return {}

    def _joined(self) -> _Group:
        if self._group is None:
            raise RuntimeError("this rank has not joined the others")
        return self._group

    def _collective(self, name: str, size: int) -> _Collective:
        return _Collective(self._joined(), name, size)

    def _barrier(self) -> None:
        group = self._joined()
        group.wait(group.all.Ibarrier())

    def _round(self, request: dict[str, Any]) -> _Round:
        return _Round(self._joined(), request["size"])


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-mpi", str(_VERSION)]):
        print(f"this is lightrig-mpi {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    _MpiWorker().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
