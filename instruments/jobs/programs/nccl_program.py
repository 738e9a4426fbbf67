"""The program of one rank of NCCL on a server; it is sent there as source.

It needs Python, a GPU and PyTorch with NCCL there, or with RCCL, AMD's library of the same calls.
Requests and replies are those of `gloo_program`, of which it answers `hello`, `join`, `checked`,
`state` and `leave`; `join` takes `address` too, the server's own one. NCCL talks over TCP here, so
that the links in question carry its data. An operation raises its error in the rank that waits for
it, NCCL's own or that of the timeout, where PyTorch would end the process.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from lightrig.instruments.jobs.programs.checked_rounds import buckets
from lightrig.instruments.jobs.programs.gloo_program import Worker, answer_requests

__all__ = ["NcclWorker", "main"]

_VERSION = 1


class NcclWorker(Worker):
    """Answers the requests of one harness with blocks on a GPU."""

    backend = "nccl"

    def _lacking(self, torch: Any) -> str:
        if not torch.cuda.is_available():
            return "this PyTorch finds no GPU"
        return "" if torch.distributed.is_nccl_available() else "this PyTorch has no NCCL"

    def _hello(self) -> dict[str, Any]:
        found = super()._hello()
        if found["torch"] is not None:
            version = ".".join(map(str, self._torch.cuda.nccl.version()))
            found["torch"] += f", NCCL {version}"
        return found

    def _join(self, request: dict[str, Any]) -> dict[str, Any]:
        (interface,) = request["interfaces"]
        os.environ |= {
            "NCCL_SOCKET_IFNAME": f"={interface}",
            "NCCL_NET": "Socket",
            # Servers that are namespaces of one machine: NCCL would take its memory, not the
            # links, and refuses a second rank on one GPU of what it knows to be one host.
            "NCCL_HOSTID": request["address"],
            "TORCH_NCCL_BLOCKING_WAIT": "1",
        }
        cuda = self._torch.cuda
        self._device = self._torch.device("cuda", request["rank"] % cuda.device_count())
        cuda.set_device(self._device)
        return super()._join(request)

    def communicate(self, collective: str, block: bytes) -> bytes:
        """Take part with `block` on the GPU; see `Worker`."""
        distributed = self._torch.distributed
        parts = [self._on_gpu(p) for p in (buckets(block) if collective == "train" else [block])]
        if collective in ("all_reduce", "train"):
            pending = [distributed.all_reduce(part, async_op=True) for part in parts]
        else:
            sent = parts[0]
            parts = [self._torch.empty_like(sent)]
            if collective == "all_to_all":
                pending = [distributed.all_to_all_single(parts[0], sent, async_op=True)]
            else:
                peers = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
                pending = distributed.batch_isend_irecv(
                    [
                        distributed.P2POp(distributed.isend, sent, peers[0]),
                        distributed.P2POp(distributed.irecv, parts[0], peers[1]),
                    ]
                )
        for work in pending:
            work.wait()
        return b"".join(part.cpu().numpy().tobytes() for part in parts)

    def _on_gpu(self, block: bytes) -> Any:
        values = self._torch.frombuffer(bytearray(block), dtype=self._torch.int32)
        return values.to(self._device)


def main() -> int:
    """Run the program of one rank of NCCL; returns the exit status."""
    return answer_requests("lightrig-nccl", _VERSION, NcclWorker)


if __name__ == "__main__":
    sys.exit(main())
