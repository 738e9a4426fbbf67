"""The program of one rank of hierarchical all-reduces over plain TCP; it is sent to a server.

It needs Python 3.8 or newer on Linux and no Lightrig. Requests and replies are those of
`gloo_program`, of which `run` does its work, for `all_reduce` alone. `listen` with `addresses`
replies `ports`, one for each. `join` has `rank`, `ranks` and `rings`: of each its `place`, its
`size` and `next: [address, port]`: connect to the next rank, and be connected to by the one before,
at the socket of the same place in `addresses`.

The first ring is inner. An all-reduce is a reduce-scatter on it, then on the others, then an
all-gather on these and on the inner one. Of what is left after the first step, the first half goes
round the second ring and then the third, the other half round the fifth and then the fourth at the
same time (Cho et al., BlueConnect, 2019, in two halves).
"""

from __future__ import annotations

import select
import socket
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from lightrig.instruments.jobs.programs.checked_rounds import BYTES, CheckedRounds, added
from lightrig.instruments.jobs.programs.gloo_program import answer_requests
from lightrig.instruments.jobs.programs.ring_program import RingWorker

__all__ = ["HierarchicalWorker", "main"]

_VERSION = 1
_CONNECT_S = 60.0
_IDLE_MS = 60_000
_PART = 1 << 16


class _Ring:
    """Connections to the next rank of a ring and from the one before."""

    def __init__(self, place: int, size: int, after: socket.socket, before: socket.socket) -> None:
        self.place, self.size, self._after, self._before = place, size, after, before
        for each in (after, before):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)

    def close(self) -> None:
        self._after.close()
        self._before.close()

    def ends(self, length: int) -> list[int]:
        """Return where parts of a block begin and end: whole values each, the last has more."""
        share = length // BYTES // self.size * BYTES
        return [share * place for place in range(self.size)] + [length]

    def scattered(self, block: bytes) -> bytes:
        """Return the sums of this rank's part of the block, which is that after its own place."""
        ends = self.ends(len(block))
        parts = [block[ends[n] : ends[n + 1]] for n in range(self.size)]
        for step in range(self.size - 1):
            sent = (self.place - step) % self.size
            taken = (sent - 1) % self.size
            parts[taken] = added(parts[taken], self._passed(parts[sent], len(parts[taken])))
        return parts[(self.place + 1) % self.size]

    def gathered(self, part: bytes, length: int) -> bytes:
        """Return the whole block, of which this rank has the part that `scattered` returns."""
        ends = self.ends(length)
        parts = [b""] * self.size
        parts[(self.place + 1) % self.size] = part
        for step in range(self.size - 1):
            sent = (self.place + 1 - step) % self.size
            taken = (sent - 1) % self.size
            parts[taken] = self._passed(parts[sent], ends[taken + 1] - ends[taken])
        return b"".join(parts)

    def _passed(self, block: bytes, size: int) -> bytes:
        """Send `block` to the next rank while `size` bytes of the one before are received."""
        left, found = memoryview(block), bytearray()
        ready = select.poll()
        while left or len(found) < size:
            ready.register(self._after, select.POLLOUT if left else 0)
            ready.register(self._before, select.POLLIN if len(found) < size else 0)
            events = dict(ready.poll(_IDLE_MS))
            if not events:
                raise ConnectionError("no neighbour on the ring has sent or taken anything")
            if left and self._after.fileno() in events:
                left = left[self._after.send(left[:_PART]) :]
            if len(found) < size and self._before.fileno() in events:
                part = self._before.recv(min(_PART, size - len(found)))
                if not part:
                    raise ConnectionError("the rank before has closed the connection")
                found += part
        return bytes(found)


class _AllReduce:
    """One all-reduce: its input and what must come out."""

    def __init__(self, worker: HierarchicalWorker, size: int) -> None:
        rounds = CheckedRounds("all_reduce", size // BYTES, worker.rank, worker.ranks)
        self._worker = worker
        self._given, self._expected = rounds.given(0), rounds.expected(0)
        self.size = len(self._given)

    def prepare(self) -> None:
        self._result = b""

    def operate(self) -> None:
        self._result = self._worker.communicate("all_reduce", self._given)

    def wrong(self) -> int:
        """Return the number of wrong values after an operation."""
        found, wanted = array("I", self._result), array("I", self._expected)
        differ = sum(one != two for one, two in zip(found, wanted))  # noqa: B905 - Python 3.8
        return differ + abs(len(found) - len(wanted))


class HierarchicalWorker(RingWorker):
    """Answers the requests of one harness with the sockets of five rings."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(out)
        self._sockets: list[socket.socket] = []
        self._rings: list[_Ring] = []
        self._halves = ThreadPoolExecutor(2)

    def _listen(self, request: dict[str, Any]) -> dict[str, Any]:
        self._leave()
        self._sockets = [socket.create_server((each, 0)) for each in request["addresses"]]
        for each in self._sockets:
            each.settimeout(_CONNECT_S)
        return {"ports": [each.getsockname()[1] for each in self._sockets]}

    def _join(self, request: dict[str, Any]) -> dict[str, Any]:
        self.rank, self.ranks = request["rank"], request["ranks"]
        after = [
            socket.create_connection(tuple(each["next"]), _CONNECT_S) for each in request["rings"]
        ]
        self._rings = [
            _Ring(each["place"], each["size"], following, listening.accept()[0])
            for each, following, listening in zip(request["rings"], after, self._sockets)  # noqa: B905
        ]
        return {}

    def _leave(self) -> dict[str, Any]:
        for listening in self._sockets:
            listening.close()
        for ring in self._rings:
            ring.close()
        self._sockets, self._rings = [], []
        return {}

    def _collective(self, name: str, size: int) -> Any:
        if name != "all_reduce":
            raise ValueError(f"no hierarchical collective is called {name!r}")
        return _AllReduce(self, size)

    def _barrier(self) -> None:
        self.communicate("all_reduce", bytes(BYTES * self.ranks * 2))

    def communicate(self, collective: str, block: bytes) -> bytes:
        """Return the sums of all ranks' blocks; see `Worker`."""
        inner, x, y, x_back, y_back = self._rings
        mine = inner.scattered(block)
        middle = len(mine) // BYTES // 2 * BYTES
        halves = self._halves.map(
            self._half, (mine[:middle], mine[middle:]), (x, y_back), (y, x_back)
        )
        return inner.gathered(b"".join(halves), len(block))

    def _half(self, block: bytes, first: _Ring, second: _Ring) -> bytes:
        part = first.scattered(block)
        return first.gathered(second.gathered(second.scattered(part), len(part)), len(block))


def main() -> int:
    """Run the program of one rank; returns the exit status."""
    return answer_requests("lightrig-hierarchical", _VERSION, HierarchicalWorker)


if __name__ == "__main__":
    sys.exit(main())
