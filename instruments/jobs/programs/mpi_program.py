"""The program of one MPI rank; `instruments.servers.mpi` starts it in a namespace of this machine.

Requests and replies are those of `gloo_program`; `hello` replies `mpi`, the library's version, and
`join` takes `members`, the ranks of the world that form a group in this order, and `timeout_ns`:
the same processes serve any order. A process has one lane: `exchange` takes that `lane`'s shares,
or null, and all processes of the world take part in it. MPI has no timeout: an operation that is
not complete in time is given up here.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lightrig.instruments.jobs.programs.checked_rounds import BUCKETS
from lightrig.instruments.jobs.programs.gloo_program import Worker, answer_requests
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["MpiWorker", "main"]

_VERSION = 1
_PATTERN = 251
_BYTES = 4

_PROGRESS_PERIOD = 50e-6
"""Period of polling for progress, in s: blocking calls of MPICH busy-wait on shared cores."""

_LATE_SHARE, _PROGRESS_SELDOM = 0.01, 2e-3
"""The end of a checked round may be seen late by this share of its duration, at most by so many s:
ranks that wait for light take little processor time. Operations that are timed are never polled so.
"""

_EXCHANGE_PERIOD = 1e-3
"""The same of an exchange, which has a process for each lane of each server on the same cores."""

Values = npt.NDArray[np.float32]


class OperationTimeoutError(RuntimeError):
    """An operation was not complete in time."""


def _pattern(by: int, length: int, first: int = 0) -> Values:
    # Small whole numbers: sums of them are exact.
    return (np.arange(first, first + length) % _PATTERN + by).astype(np.float32)


class _Group:
    """The ranks of a lane; operations are non-blocking and awaited with a timeout."""

    def __init__(self, mpi: Any, members: list[int], timeout_ns: int) -> None:
        self.mpi = mpi
        self.world = mpi.COMM_WORLD
        # Of the members alone: no message of a lane goes to another one.
        self.all = self.world.Create_group(self.world.Get_group().Incl(members))
        self.rank: int = self.all.Get_rank()
        self.size: int = self.all.Get_size()
        self._timeout_ns = timeout_ns

    def wait(
        self, *requests: Any, period: float = _PROGRESS_PERIOD, late_share: float = 0.0
    ) -> None:
        """Wait for `requests`, polled every `period` s.

        late_share: of the duration so far, after which they are polled instead, where it is longer.

        Raises `OperationTimeoutError`.
        """
        began = now()
        deadline = began + self._timeout_ns
        # One by one: an error of all of them together would not show its kind.
        while not all(each.Test() for each in requests):
            if now() > deadline:
                raise OperationTimeoutError(
                    f"an operation was not complete after {self._timeout_ns / 1e9:g} s"
                )
            waited = (now() - began) / 1e9
            time.sleep(max(period, min(waited * late_share, _PROGRESS_SELDOM)))


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


class _Exchange:
    """The shares of one lane in an all-to-all of unequal shares, all sent and received at once."""

    def __init__(self, group: _Group, share: dict[str, Any] | None) -> None:
        self._group = group
        self._sent: dict[int, Values] = {}
        self._out: dict[int, Values] = {}
        self._expected: dict[int, Values] = {}
        if share is None:
            return
        rank, lane = group.rank, share["lane"]
        for peer, (given, taken) in enumerate(zip(share["given"], share["taken"], strict=True)):
            if given:
                self._sent[peer] = _pattern(31 * rank + 7 * peer + lane, given)
            if taken:
                self._expected[peer] = _pattern(31 * peer + 7 * rank + lane, taken)
                self._out[peer] = np.empty(taken, np.float32)

    def prepare(self) -> None:
        """Initialise the buffers before an operation, and wait for all lanes of all servers."""
        for out in self._out.values():
            out.fill(-1.0)
        self._group.wait(self._group.world.Ibarrier(), period=_EXCHANGE_PERIOD)

    def operate(self) -> None:
        """Run one operation to its end."""
        lane = self._group.all
        # Receives first: what comes before its receive is posted would be copied twice.
        requests = [lane.Irecv(out, source=peer) for peer, out in self._out.items()]
        requests += [lane.Isend(sent, dest=peer) for peer, sent in self._sent.items()]
        self._group.wait(*requests, period=_EXCHANGE_PERIOD)

    def wrong(self) -> int:
        """Return the number of wrong values after an operation."""
        return sum(int((out != self._expected[peer]).sum()) for peer, out in self._out.items())


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


class MpiWorker(Worker):
    """Answers the requests of one harness with MPI, which is initialised by `join`."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(out)
        self._group: _Group | None = None

    def _hello(self) -> dict[str, Any]:
        mpi4py = importlib.import_module("mpi4py")
        # Not at import or exit: finalizing would hang on a rank whose links are down.
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        self._mpi = importlib.import_module("mpi4py.MPI")
        first_line = self._mpi.Get_library_version().partition("\n")[0]
        version = first_line.partition(",")[0].replace("Version:", " ")
        return {"mpi": " ".join(version.split()), "boot": boot_id(), "pid": os.getpid()}

    def _join(self, request: dict[str, Any]) -> dict[str, Any]:
        # Requests run on one thread; it changes only with `abandon`, after which MPI is not used.
        if not self._mpi.Is_initialized():
            self._mpi.Init_thread(self._mpi.THREAD_SERIALIZED)
        self._group = _Group(self._mpi, request["members"], request["timeout_ns"])
        self.rank, self.ranks = self._group.rank, self._group.size
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

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._timed(_Exchange(self._joined(), request["lane"]), request)

    def communicate(self, collective: str, block: bytes) -> bytes:
        """Take part by non-blocking operations of MPI; see `Worker`."""
        group = self._joined()
        given = np.frombuffer(block, np.uint32)
        out = np.empty_like(given)
        wait = partial(group.wait, late_share=_LATE_SHARE)
        if collective == "all_reduce":
            wait(group.all.Iallreduce(given, out))
        elif collective == "all_to_all":
            wait(group.all.Ialltoall(given, out))
        elif collective == "train":
            # All at once, as gradients are that become ready one after the other.
            pairs = zip(np.array_split(given, BUCKETS), np.array_split(out, BUCKETS), strict=True)
            wait(*[group.all.Iallreduce(*pair) for pair in pairs])
        else:
            source, sink = (group.rank - 1) % group.size, (group.rank + 1) % group.size
            wait(group.all.Irecv(out, source=source), group.all.Isend(given, dest=sink))
        return out.tobytes()

    def _reformed(self, error: Exception, iteration: int, seen: dict[str, Any]) -> int | None:
        """Shrink the group where the library reports the failure of a process (ULFM)."""
        group, mpi = self._joined(), self._mpi
        lost = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        known = {getattr(mpi, name) for name in lost if hasattr(mpi, name)} - {mpi.UNDEFINED}
        if not isinstance(error, mpi.Exception) or error.Get_error_class() not in known:
            return None
        before = group.all.Get_group()
        group.all.Revoke()
        group.all = group.all.Shrink()
        self.rank, self.ranks = group.rank, group.size = group.all.rank, group.all.size
        places = group.all.Get_group().Translate_ranks(None, before)
        seen["members"] = [seen["members"][place] for place in places]
        mine, latest = np.array([iteration]), np.array([0])
        group.wait(group.all.Iallreduce(mine, latest, op=mpi.MAX))
        seen["reformed"].append(now())
        return int(latest[0]) + 1

    def _barrier(self) -> None:
        group = self._joined()
        group.wait(group.all.Ibarrier())

    def _round(self, request: dict[str, Any]) -> _Round:
        return _Round(self._joined(), request["size"])


def main() -> int:
    """Run the program of one rank of MPI; returns the exit status."""
    return answer_requests("lightrig-mpi", _VERSION, MpiWorker)


if __name__ == "__main__":
    sys.exit(main())
