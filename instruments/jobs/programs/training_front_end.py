"""Operations that no rail carries: over the control connection, as over a front-end network."""

from __future__ import annotations

import base64
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lightrig.instruments.jobs.programs.training_gate import Gate, RefusedError
from lightrig.instruments.jobs.programs.training_store import Exchanges

__all__ = ["FrontEnd"]

_PART = 1 << 19
"""Bytes of a tensor that one line carries: messages about circuits go between two of them."""


class FrontEnd:
    """Collectives, sends and receives of one process group; without PyTorch's backends.

    The harness keeps each tensor until its readers have it. Values are combined in the order of
    ranks, so that all ranks get the same to the last bit.

    Args:
        torch: PyTorch.
        exchanges: the harness's store.
        gate: notes what has run here.
        group: its name, the same on all ranks, its own rank in it, and the ranks of all.
    """

    def __init__(
        self,
        torch: Any,
        exchanges: Exchanges,
        gate: Gate,
        group: Callable[[], tuple[str, int, Sequence[int]]],
    ) -> None:
        self._torch, self._exchanges, self._gate, self._group = torch, exchanges, gate, group
        self._count = 0
        self._messages: dict[tuple[int, int, int], int] = {}

    def run(self, kind: str, given: Sequence[Any], size: int) -> None:
        """Run a collective on its arguments; raises `RefusedError` for an unknown one."""
        name, rank, ranks = self._group()
        one = _Collective(self, f"{name} {self._count}", rank, len(ranks))
        self._count += 1
        method = getattr(one, kind.strip("_"), None)
        if method is None:
            raise RefusedError(f"{kind} among ranks {sorted(ranks)}: no front end carries it")
        with self._gate.beside(kind, ranks, size):
            method(*given)

    def send(self, tensors: Sequence[Any], peer: int, tag: int, size: int) -> None:
        """Leave tensors for a rank of the group, which may take them later."""
        _, rank, ranks = self._group()
        with self._gate.beside("send", (ranks[rank], ranks[peer]), size):
            key = self._message(rank, peer, tag)
            for place, tensor in enumerate(tensors):
                self.give(f"{key} {place}", tensor, 1)

    def receive(self, tensors: Sequence[Any], peer: int, tag: int, size: int) -> Any:
        """Return a future of tensors that a rank of the group sends."""
        _, rank, ranks = self._group()
        future, key = self._torch.futures.Future(), self._message(peer, rank, tag)

        def take() -> None:
            try:
                with self._gate.beside("recv", (ranks[rank], ranks[peer]), size):
                    for place, tensor in enumerate(tensors):
                        tensor.copy_(self.take(f"{key} {place}", tensor))
            except Exception as error:  # of any type: the script gets it
                future.set_exception(error)
            else:
                future.set_result(tensors)

        # A script may start it before the send that the other rank waits for.
        threading.Thread(target=take, name="received", daemon=True).start()
        return future

    def _message(self, source: int, target: int, tag: int) -> str:
        """Return the key of the next message from one rank of the group to another."""
        number = self._messages.get((source, target, tag), 0)
        self._messages[source, target, tag] = number + 1
        return f"{self._group()[0]} from {source} to {target}, {tag}, {number}"

    def give(self, key: str, tensor: Any, readers: int) -> None:
        """Leave a tensor for that many readers."""
        plain = tensor.detach().cpu().contiguous()
        data = ctypes.string_at(plain.data_ptr(), size) if (size := plain.nbytes) else b""
        for part in _parts(size):
            text = base64.b64encode(data[part : part + _PART]).decode()
            self._exchanges.ask("hand", f"front end {key}, {part}", text, readers)

    def take(self, key: str, like: Any) -> Any:
        """Wait for a tensor of another rank, of the type and shape of `like`."""
        data = bytearray()
        for part in _parts(like.nbytes):
            data += base64.b64decode(self._exchanges.ask("take", f"front end {key}, {part}"))
        if not data:
            return self._torch.empty_like(like)
        return self._torch.frombuffer(data, dtype=like.dtype).view(like.shape)

    def combined(self, found: Sequence[Any], how: Any) -> Any:
        """Combine tensors in their order; raises `RefusedError` for an operator unknown here."""
        known = self._torch.distributed.ReduceOp
        # Compared one by one: a ReduceOp equals its kind, but no kind equals a ReduceOp.
        kinds = (
            (known.SUM, self._torch.add),
            (known.AVG, self._torch.add),
            (known.PRODUCT, self._torch.mul),
            (known.MAX, self._torch.maximum),
            (known.MIN, self._torch.minimum),
        )
        combine = next((function for kind, function in kinds if how == kind), None)
        if combine is None:
            raise RefusedError(f"the front end combines by no {how}")
        combined = functools.reduce(combine, found)
        return combined / len(found) if how == known.AVG else combined


class _Collective:
    """One collective: a method for each kind, with the arguments of PyTorch's process groups."""

    def __init__(self, front_end: FrontEnd, name: str, rank: int, size: int) -> None:
        self._front_end, self._name, self._rank, self._size = front_end, name, rank, size

    def _exchanged(self, given: Sequence[Any], like: Sequence[Any], what: object = "") -> list[Any]:
        """Give a tensor to each rank, and return what each gives, of the shapes of `like`.

        Where it is the same for all, it is left once.
        """
        peers = [rank for rank in range(self._size) if rank != self._rank]
        name, mine = f"{self._name} {what}", self._rank
        if all(each is given[mine] for each in given):
            self._front_end.give(f"{name} {mine}", given[mine], len(peers))
            return [
                given[mine] if rank == mine else self._front_end.take(f"{name} {rank}", like[rank])
                for rank in range(self._size)
            ]
        for rank in peers:
            self._front_end.give(f"{name} {mine} {rank}", given[rank], 1)
        return [
            given[mine] if rank == mine else self._front_end.take(f"{name} {rank} {mine}", each)
            for rank, each in enumerate(like)
        ]

    def _shared(self, tensor: Any, what: object = "") -> list[Any]:
        return self._exchanged([tensor] * self._size, [tensor] * self._size, what)

    def _filled(self, out: Sequence[Any], found: Sequence[Any]) -> None:
        for tensor, each in zip(out, found, strict=True):
            tensor.copy_(each.reshape(tensor.shape))

    def allreduce(self, tensors: Sequence[Any], options: Any) -> None:
        for place, tensor in enumerate(tensors):
            found = self._shared(tensor, place)
            tensor.copy_(self._front_end.combined(found, options.reduceOp))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Sequence[Any], options: Any) -> None:
        for place, tensor in enumerate(tensors):
            name = f"{self._name} {place}"
            if options.rootRank == self._rank:
                self._front_end.give(name, tensor, self._size - 1)
            else:
                tensor.copy_(self._front_end.take(name, tensor))

    def reduce(self, tensors: Sequence[Any], options: Any) -> None:
        for place, tensor in enumerate(tensors):
            found = self._gathered(tensor, [tensor] * self._size, options.rootRank, place)
            if found:
                tensor.copy_(self._front_end.combined(found, options.reduceOp))

    def _gathered(
        self, tensor: Any, like: Sequence[Any], root: int, what: object = ""
    ) -> list[Any]:
        """Return the tensors of all ranks on the root, nothing on another rank."""
        name = f"{self._name} {what}"
        if root != self._rank:
            self._front_end.give(f"{name} {self._rank}", tensor, 1)
            return []
        return [
            tensor if rank == root else self._front_end.take(f"{name} {rank}", each)
            for rank, each in enumerate(like)
        ]

    def gather(self, out: Sequence[Sequence[Any]], tensors: Sequence[Any], options: Any) -> None:
        found = self._gathered(tensors[0], out[0] if out else (), options.rootRank)
        self._filled(out[0] if out else (), found)

    def scatter(self, out: Sequence[Any], tensors: Sequence[Sequence[Any]], options: Any) -> None:
        if options.rootRank == self._rank:
            for rank, each in enumerate(tensors[0]):
                if rank != self._rank:
                    self._front_end.give(f"{self._name} {rank}", each, 1)
            out[0].copy_(tensors[0][self._rank])
        else:
            out[0].copy_(self._front_end.take(f"{self._name} {self._rank}", out[0]))

    def allgather(self, out: Sequence[Sequence[Any]], tensors: Sequence[Any], *_: Any) -> None:
        for place, (into, tensor) in enumerate(zip(out, tensors, strict=True)):
            self._filled(into, self._exchanged([tensor] * self._size, into, place))

    def allgather_base(self, out: Any, tensor: Any, *_: Any) -> None:
        self.allgather_into_tensor_coalesced([out], [tensor])

    all_gather_single = allgather_base

    def allgather_into_tensor_coalesced(
        self, out: Sequence[Any], tensors: Sequence[Any], *_: Any
    ) -> None:
        for place, (into, tensor) in enumerate(zip(out, tensors, strict=True)):
            self._filled(
                into.reshape(-1).chunk(self._size), self._shared(tensor.reshape(-1), place)
            )

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def reduce_scatter(
        self, out: Sequence[Any], tensors: Sequence[Sequence[Any]], options: Any
    ) -> None:
        for place, (into, each) in enumerate(zip(out, tensors, strict=True)):
            found = self._exchanged(each, [into] * self._size, place)
            into.copy_(self._front_end.combined(found, options.reduceOp))

    def reduce_scatter_tensor_coalesced(
        self, out: Sequence[Any], tensors: Sequence[Any], options: Any
    ) -> None:
        parts = [
            [each.reshape(into.shape) for each in tensor.reshape(-1).chunk(self._size)]
            for into, tensor in zip(out, tensors, strict=True)
        ]
        self.reduce_scatter(out, parts, options)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter_base(self, out: Any, tensor: Any, options: Any) -> None:
        self.reduce_scatter_tensor_coalesced([out], [tensor], options)

    reduce_scatter_single = reduce_scatter_base

    def alltoall(self, out: Sequence[Any], tensors: Sequence[Any], *_: Any) -> None:
        self._filled(out, self._exchanged(tensors, out))

    def alltoall_base(
        self, out: Any, tensor: Any, taken: Sequence[int], given: Sequence[int], *_: Any
    ) -> None:
        self.alltoall(self._split(out, taken), self._split(tensor, given))

    all_to_all_single = alltoall_base

    def _split(self, tensor: Any, rows: Sequence[int]) -> Sequence[Any]:
        return tensor.split(list(rows) or tensor.shape[0] // self._size)  # type: ignore[no-any-return]


def _parts(size: int) -> Iterator[int]:
    """Yield where each part of that many bytes begins; one of no bytes has one."""
    yield from range(0, max(size, 1), _PART)
