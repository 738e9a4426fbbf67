"""The program of one replica of torchft on a server; it is sent there as source.

It needs Python, PyTorch with Gloo and torchft there. Requests and replies are those of
`gloo_program`, of which it answers `hello`, `join`, `checked`, `state`, `abandon` and `leave`.
`join` takes `address` too, the server's own one, and `silence_ns`, the time after which a replica
that is not heard of is taken for dead. The first rank's server runs the lighthouse at `store`,
which decides who takes part; all of it talks over the fabric.

Each checked round is one step of torchft: a quorum, the collective, a commit. A step that a replica
does not commit, or whose quorum is not the one before, is followed by steps in which the replicas
agree who takes part and in which iteration they go on. A replica that gets no quorum in torchft's
own time (60 s) fails: its manager raises that error at each later step too.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import sys
import time
from datetime import timedelta
from typing import IO, Any

from lightrig.instruments.jobs.programs.checked_rounds import buckets
from lightrig.instruments.jobs.programs.gloo_program import Worker, answer_requests
from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["TorchftWorker", "main"]

_VERSION = 1
_QUORUM_DELAY_MS = 1000
_RETRY_S = 0.05
_JOINING_S = 60


class TorchftWorker(Worker):
    """Answers the requests of one harness with torchft's manager over Gloo."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(out)
        self._manager: Any = None
        self._lighthouse: Any = None
        self._configured, self._agreed = 0, -1
        self._place, self._places = 0, 0

    def _hello(self) -> dict[str, Any]:
        try:
            importlib.import_module("torchft")
        except ImportError as error:
            return {"torch": None, "why": str(error)}
        found = super()._hello()
        if found["torch"] is None:
            return found
        version = importlib.metadata.version("torchft")
        return {**found, "torch": f"{found['torch']} with torchft {version}"}

    def _join(self, request: dict[str, Any]) -> dict[str, Any]:
        self._leave()
        os.environ["GLOO_SOCKET_IFNAME"] = request["interfaces"][0]
        address, port = request["store"]
        timeout = timedelta(microseconds=request["timeout_ns"] / 1e3)
        self._place, self._places = request["rank"], request["ranks"]
        if self._place == 0:
            coordination = importlib.import_module("torchft.coordination")
            self._lighthouse = coordination.LighthouseServer(
                bind=f"{address}:{port}",
                min_replicas=1,
                join_timeout_ms=_QUORUM_DELAY_MS,
                heartbeat_timeout_ms=request["silence_ns"] // 1_000_000,
            )
        store = self._torch.distributed.TCPStore(
            request["address"], 0, is_master=True, wait_for_workers=False
        )
        self._manager = importlib.import_module("torchft").Manager(
            pg=self._group(timeout),
            load_state_dict=lambda _: None,
            state_dict=dict,
            min_replica_size=1,
            use_async_quorum=False,
            timeout=timeout,
            rank=0,
            world_size=1,
            store_addr=request["address"],
            store_port=store.port,
            lighthouse_addr=f"http://{address}:{port}",
            replica_id=f"rank{self._place}",
            hostname=request["address"],
            checkpoint_transport=_no_checkpoints(),
            init_sync=False,
        )
        self._store = store
        deadline = time.monotonic() + _JOINING_S
        while self.ranks < self._places:
            # A step fails where another replica joins meanwhile.
            with contextlib.suppress(RuntimeError):
                self._agree(0)
            if time.monotonic() > deadline:
                raise RuntimeError(f"the quorum has {self.ranks} of {self._places} replicas")
        return {}

    def _group(self, timeout: timedelta) -> Any:
        worker = self
        base: Any = importlib.import_module("torchft").ProcessGroupGloo

        class Group(base):  # type: ignore[misc]  # torchft is known when this runs
            def configure(self, *given: Any, **further: Any) -> None:
                worker._configured += 1
                super().configure(*given, **further)

        return Group(timeout=timeout)

    def _leave(self) -> dict[str, Any]:
        if self._manager is not None:
            self._manager.shutdown(wait=False)
            self._manager = None
        if self._lighthouse is not None:
            self._lighthouse.shutdown()
            self._lighthouse = None
        self.ranks = 0
        return {}

    def communicate(self, collective: str, block: bytes) -> bytes:
        """Take part in a step of torchft, which all replicas commit; see `Worker`."""
        self._manager.start_quorum()
        if self._configured != self._agreed:
            raise RuntimeError("the quorum is another one")
        parts = [bytearray(p) for p in (buckets(block) if collective == "train" else [block])]
        self._reduce([self._torch.frombuffer(part, dtype=self._torch.int32) for part in parts])
        return b"".join(parts)

    def _reduce(self, tensors: list[Any]) -> None:
        """Sum tensors over all replicas in the quorum; raises `RuntimeError`."""
        operation = self._torch.distributed.ReduceOp.SUM
        for work in [self._manager.allreduce(each, reduce_op=operation) for each in tensors]:
            work.wait()
        if not self._manager.should_commit():
            raise RuntimeError(f"a step was not committed: {self._manager.errored()}")

    def _agree(self, iteration: int, *, quorum: bool = True) -> tuple[list[int], int]:
        """Return who takes part, as places, and the latest iteration; raises `RuntimeError`."""
        if quorum:
            self._manager.start_quorum()
        configured = self._configured
        found = self._torch.zeros(2 * self._places, dtype=self._torch.int64)
        found[self._place], found[self._places + self._place] = 1, iteration
        self._reduce([found])
        values = found.tolist()
        members = [place for place in range(self._places) if values[place]]
        self._agreed = configured
        self.rank, self.ranks = members.index(self._place), len(members)
        return members, max(values[self._places :])

    def _reformed(self, error: Exception, iteration: int, seen: dict[str, Any]) -> int | None:
        """Go on with whom the quorum has, as soon as one commits."""
        quorum = self._configured == self._agreed
        while seen is self._seen:
            try:
                seen["members"], latest = self._agree(iteration, quorum=quorum)
            except RuntimeError:
                quorum = True
                time.sleep(_RETRY_S)
                continue
            seen["reformed"].append(now())
            return latest + 1
        return None


def _no_checkpoints() -> Any:
    """Return a transport for replicas whose state is the number of the step alone."""
    base: Any = importlib.import_module("torchft.checkpointing").CheckpointTransport

    class Transport(base):  # type: ignore[misc]  # torchft is known when this runs
        def metadata(self) -> str:
            return ""

        def send_checkpoint(self, *_: Any, **__: Any) -> None:
            pass

        def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: Any) -> Any:
            steps = {"step": step, "batches_committed": step}
            return {"user": {"default": {}}, "torchft": steps}

    return Transport()


def main() -> int:
    """Run the program of one replica; returns the exit status."""
    return answer_requests("lightrig-torchft", _VERSION, TorchftWorker)


if __name__ == "__main__":
    sys.exit(main())
