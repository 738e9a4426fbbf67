"""The program of one rank of a ring of plain TCP connections; it is sent to a server as source.

It needs Python 3.8 or newer on Linux and no Lightrig. Requests and replies are those of
`gloo_program`; of the work only `checked` is done. `listen` with `address` replies `port`. `join`
has `rank`, `ranks`, `next: [address, port]` and `user_timeout_ns` (TCP_USER_TIMEOUT, RFC 5482; 0:
the system's): connect to the next rank, and be connected to by the one before.

An all-reduce goes round the ring twice, in parts: the first time each rank adds its own values, the
second time each takes the sums (Patarasuk and Yuan, 2009).
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import IO, Any

from lightrig.instruments.jobs.programs.checked_rounds import BYTES, added, buckets
from lightrig.instruments.jobs.programs.gloo_program import Worker, answer_requests
from lightrig.instruments.servers.programs.server_clock import boot_id

__all__ = ["RingWorker", "main"]

_VERSION = 1
_TCP_USER_TIMEOUT = 18
_CONNECT_S = 20.0


class RingWorker(Worker):
    """Answers the requests of one harness with sockets."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(out)
        self._listening: socket.socket | None = None
        self._before: socket.socket | None = None
        self._after: socket.socket | None = None
        self._verbs["listen"] = self._listen

    def _hello(self) -> dict[str, Any]:
        return {"boot": boot_id(), "pid": os.getpid()}

    def _listen(self, request: dict[str, Any]) -> dict[str, Any]:
        self._leave()
        self._listening = socket.create_server((request["address"], 0))
        self._listening.settimeout(_CONNECT_S)
        return {"port": self._listening.getsockname()[1]}

    def _join(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._listening is not None
        self.rank, self.ranks = request["rank"], request["ranks"]
        self._after = socket.create_connection(tuple(request["next"]), _CONNECT_S)
        self._before, _ = self._listening.accept()
        for each in (self._after, self._before):
            each.settimeout(None)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if request["user_timeout_ns"]:
                milliseconds = request["user_timeout_ns"] // 1_000_000
                each.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, milliseconds)
        return {}

    def _leave(self) -> dict[str, Any]:
        for each in (self._listening, self._before, self._after):
            if each is not None:
                each.close()
        self._listening = self._before = self._after = None
        return {}

    def communicate(self, collective: str, block: bytes) -> bytes:
        """Take part over the connections of the ring; see `Worker`."""
        if collective == "send_receive":
            return self._passed_on(block)
        if collective == "all_to_all":
            # Each block goes round the ring, and each rank takes its share of it.
            share, shares = len(block) // self.ranks, {}
            for step in range(self.ranks):
                shares[(self.rank - step) % self.ranks] = block[share * self.rank :][:share]
                if step < self.ranks - 1:
                    block = self._passed_on(block)
            return b"".join(shares[rank] for rank in range(self.ranks))
        if collective == "train":
            return b"".join(self._summed(part) for part in buckets(block))
        return self._summed(block)

    def _summed(self, block: bytes) -> bytes:
        share = len(block) // BYTES // self.ranks * BYTES
        parts = [block[share * place : share * (place + 1)] for place in range(self.ranks)]
        parts[-1] += block[share * self.ranks :]
        for step in range(self.ranks - 1):
            sent = (self.rank - step) % self.ranks
            taken = (sent - 1) % self.ranks
            parts[taken] = added(parts[taken], self._passed_on(parts[sent], len(parts[taken])))
        for step in range(self.ranks - 1):
            sent = (self.rank + 1 - step) % self.ranks
            taken = (sent - 1) % self.ranks
            parts[taken] = self._passed_on(parts[sent], len(parts[taken]))
        return b"".join(parts)

    def _passed_on(self, block: bytes, size: int | None = None) -> bytes:
        """Send `block` to the next rank; return as much, or `size` bytes, of the one before."""
        assert self._before is not None
        assert self._after is not None
        try:
            self._after.sendall(block)  # fits into the buffers of a socket: all ranks send at once
        except OSError as error:
            raise ConnectionError(f"to the next rank: {error.strerror}") from error
        size, found = len(block) if size is None else size, bytearray()
        ready = select.poll()
        ready.register(self._before, select.POLLIN)
        ready.register(self._after, 0)  # errors, which nobody else would notice while this waits
        while len(found) < size:
            for descriptor, _ in ready.poll():
                if descriptor == self._after.fileno():
                    code = self._after.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    raise ConnectionError(f"to the next rank: {os.strerror(code)}")
            part = self._before.recv(size - len(found))
            if not part:
                raise ConnectionError("the rank before has closed the connection")
            found += part
        return bytes(found)


def main() -> int:
    """Run the program of one rank of a ring; returns the exit status."""
    return answer_requests("lightrig-ring", _VERSION, RingWorker)


if __name__ == "__main__":
    sys.exit(main())
