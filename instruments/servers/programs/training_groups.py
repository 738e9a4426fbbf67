"""PyTorch's process groups, wrapped: each operation passes the gate before it begins."""

# Only a private function of PyTorch makes a Work from a future.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
import functools
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lightrig.instruments.servers.programs.training_gate import Gate, RefusedError
from lightrig.instruments.servers.programs.training_store import Exchanges, harness_store

__all__ = ["wrapped_groups"]

_COLLECTIVES = {
    # Method of a process group, and the method of its backend.
    "allreduce": "allreduce",
    "allreduce_coalesced": "allreduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "allgather",
    "allgather_coalesced": "allgather_coalesced",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoall_base": "alltoall_base",
    "_allgather_base": "_allgather_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_to_all_single": "alltoall_base",
}

_FRONT_END_BYTES = 1 << 20
"""Largest tensor that the store carries."""

_LAST_END_S = 10.0
"""Time allowed for operations that a script has started and not waited for, in s."""


def _follow(torch: Any, gate: Gate, started: queue.SimpleQueue[Any]) -> None:
    """Wait for the end of each started operation in the queue, until None comes.

    An entry is its work, its number, its future and the future's result. One thread waits for all:
    so the stamp of an end does not depend on when the script waits for it.
    """
    streams: dict[Any, Any] = {}
    while (each := started.get()) is not None:
        work, number, future, result = each
        try:
            if torch.cuda.is_available():
                # NCCL's wait only blocks the stream that is current. One of our own ends with the
                # operation; the script's would end with the computation queued behind it.
                device = _device(torch, result)
                if device not in streams:
                    streams[device] = torch.cuda.Stream(device)
                with torch.cuda.stream(streams[device]):
                    work.wait()
                streams[device].synchronize()
            else:
                work.wait()
        except Exception as error:  # of any type: the script gets it
            gate.done(number)
            future.set_exception(error)
        else:
            gate.done(number)
            future.set_result(result)


class _FrontEnd:
    """Small collectives of one process group over its store; without PyTorch's backends.

    Values are combined in the order of ranks, so that all get the same to the last bit.
    """

    def __init__(self, torch: Any, store: Any, rank: int, size: int) -> None:
        self._torch, self._store, self._rank, self._size = torch, store, rank, size
        self._count = 0

    def run(self, kind: str, given: Sequence[Any]) -> None:
        """Run a collective on its arguments; raises `RefusedError` for one that is none of these.

        An all-reduce, a broadcast, and the two all-gathers.
        """
        if kind == "allreduce":
            for tensor in given[0]:
                tensor.copy_(self._reduced(self._shared(kind, tensor), given[1].reduceOp))
        elif kind == "broadcast":
            for tensor in given[0]:
                tensor.copy_(self._shared(kind, tensor)[given[1].rootRank])
        elif kind in ("_allgather_base", "all_gather_single"):
            given[0].copy_(
                self._torch.cat(self._shared(kind, given[1].reshape(-1))).view_as(given[0])
            )
        elif kind == "allgather":
            for out, found in zip(given[0][0], self._shared(kind, given[1][0]), strict=True):
                out.copy_(found)
        else:
            raise RefusedError(
                f"{kind} among ranks of several servers that share no rail's group: the front end "
                "carries all-reduces, broadcasts and all-gathers"
            )

    def _shared(self, kind: str, tensor: Any) -> list[Any]:
        """Exchange a tensor; return those of all ranks in their order."""
        torch, size = self._torch, tensor.numel() * tensor.element_size()
        if size > _FRONT_END_BYTES:
            raise RefusedError(
                f"{kind} of {size} bytes among ranks that share no rail's group: the front end "
                f"carries up to {_FRONT_END_BYTES}"
            )
        count, self._count = self._count, self._count + 1
        plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        self._store.set(f"front end {count} {self._rank}", bytes(plain.tolist()))
        found = []
        for rank in range(self._size):
            data = bytearray(self._store.get(f"front end {count} {rank}"))
            found.append(torch.frombuffer(data, dtype=tensor.dtype).view_as(tensor))
        if count > 1:  # all ranks have begun the one before, and so read what came before that
            self._store.delete_key(f"front end {count - 2} {self._rank}")
        return found

    def _reduced(self, found: Sequence[Any], how: Any) -> Any:
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
        return combined / self._size if how == known.AVG else combined


def _backend(
    torch: Any,
    gate: Gate,
    inner: str,
    started: queue.SimpleQueue[Any],
    servers: Sequence[frozenset[int]],
) -> Callable[..., Any]:
    """Return a factory of process groups whose operations pass `gate` and run on `inner`."""
    distributed = torch.distributed

    class Handle(distributed.Work):  # type: ignore[misc, name-defined, unused-ignore]
        """A send or a receive in progress."""

        def __init__(self, number: int, future: Any) -> None:
            super().__init__()
            self._number, self._future = number, future

        def wait(self, timeout: Any = None) -> bool:
            gate.waited_for(self._number)
            self._future.wait()
            return True

        def is_completed(self) -> bool:
            gate.waited_for(self._number)
            return bool(self._future.done())

        def get_future(self) -> Any:
            gate.waited_for(self._number)
            return self._future

    class Group(distributed.ProcessGroup):  # type: ignore[misc, name-defined, unused-ignore]
        """A process group that waits for permission before it sends."""

        def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
            super().__init__(rank, size)
            kind = {"gloo": "ProcessGroupGloo", "nccl": "ProcessGroupNCCL"}[inner]
            if inner == "gloo":
                self._inner = getattr(distributed, kind)(store, rank, size, timeout)
            else:
                options = getattr(distributed, kind).Options()
                options._timeout = timeout  # as PyTorch sets it
                self._inner = getattr(distributed, kind)(store, rank, size, options)
            self._store, self._barriers, self._timeout = store, 0, timeout
            self._front_end = _FrontEnd(torch, store, rank, size)
            self._within: Any = None
            self._name = self._purpose = ""

        # PyTorch keeps these in backends by device, of which a group in Python has none.
        def setGroupName(self, name: str) -> None:  # noqa: N802 - PyTorch's name
            self._name = name

        def getGroupName(self) -> str:  # noqa: N802 - PyTorch's name
            return self._name

        def setGroupDesc(self, text: str) -> None:  # noqa: N802 - PyTorch's name
            self._purpose = text

        def getGroupDesc(self) -> str:  # noqa: N802 - PyTorch's name
            return self._purpose

        def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
            return "lightrig"

        def barrier(self, *_: Any, **__: Any) -> Any:
            """Wait over the store, not over the rail: a barrier carries no data."""
            name = f"barrier {self._barriers}"
            self._barriers += 1
            if self._store.add(name, 1) == self.size():
                self._store.set(f"{name} passed", "1")
            self._store.wait([f"{name} passed"])
            return _completed(torch, [])

        def send(self, tensors: Any, peer: int, tag: int) -> Any:
            return self._talk("send", tensors, peer, tag)

        def recv(self, tensors: Any, peer: int, tag: int) -> Any:
            return self._talk("recv", tensors, peer, tag)

        def _talk(self, kind: str, tensors: Any, peer: int, tag: int) -> Any:
            ranks = self._members()
            pair = [ranks[self.rank()], ranks[peer]]
            if not gate.carries(pair) and self._is_within(pair):
                return getattr(self._scale_up(), kind)(tensors, peer, tag)
            number = gate.begin(kind, pair, _bytes(torch, tensors))
            future = torch.futures.Future()
            started.put((getattr(self._inner, kind)(tensors, peer, tag), number, future, tensors))
            return Handle(number, future)

        def _members(self) -> list[int]:
            return list(distributed.get_process_group_ranks(self))

        @staticmethod
        def _is_within(ranks: Sequence[int]) -> bool:
            return any(server.issuperset(ranks) for server in servers)

        def _scale_up(self) -> Any:
            """Return the group within a server, over its loopback or what NCCL finds."""
            if inner != "gloo":
                return self._inner
            if self._within is None:
                options = distributed.ProcessGroupGloo._Options()
                options._timeout = self._timeout
                options._devices = [distributed.ProcessGroupGloo.create_device(interface="lo")]
                store = distributed.PrefixStore("scale-up", self._store)
                made = distributed.ProcessGroupGloo(store, self.rank(), self.size(), options)
                self._within = made
            return self._within

    def collective(kind: str, method: str) -> Callable[..., Any]:
        def operate(self: Any, *given: Any, **more: Any) -> Any:
            ranks = self._members()
            if not gate.carries(ranks) and self._is_within(ranks):
                return getattr(self._scale_up(), method)(*given, **more)
            if not gate.carries(ranks) and len(ranks) > 1:
                self._front_end.run(kind, given)
                return _completed(torch, given[0])
            number = gate.begin(kind, ranks, _bytes(torch, given))
            future = torch.futures.Future()
            work = getattr(self._inner, method)(*given, **more)
            started.put((work, number, future, given[0]))
            return torch._C._distributed_c10d._create_work_from_future(future)

        return operate

    for kind, method in _COLLECTIVES.items():
        setattr(Group, kind, collective(kind, method))
    return Group


def _completed(torch: Any, result: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def _device(torch: Any, given: Any) -> Any:
    """Return the device of the first tensor of an operation's arguments."""
    while not isinstance(given, torch.Tensor):
        given = given[0]
    return given.device


def _bytes(torch: Any, given: Any) -> int:
    """Return the size of an operation: of its largest argument, a list summed up."""
    if isinstance(given, torch.Tensor):
        return int(given.numel() * given.element_size())
    if not isinstance(given, list | tuple):
        return 0
    sizes = [_bytes(torch, each) for each in given]
    return sum(sizes) if isinstance(given, list) else max(sizes, default=0)


@contextlib.contextmanager
def wrapped_groups(
    torch: Any, gate: Gate, exchanges: Exchanges, request: dict[str, Any]
) -> Iterator[None]:
    """Replace PyTorch's factories of process groups, so that each group passes `gate`."""
    distributed = torch.distributed
    module = distributed.distributed_c10d
    found = {name: getattr(module, name) for name in ("init_process_group", "new_group")}
    accelerated = torch.cuda.is_available()
    started: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stores: list[Any] = []  # PyTorch keeps only their part in C++
    arguments = (torch, gate, started)
    follower = threading.Thread(target=_follow, args=arguments, name="ended", daemon=True)
    follower.start()

    def init(backend: str | None = None, *given: Any, **more: Any) -> Any:
        inner = str(backend or ("nccl" if accelerated else "gloo")).rpartition(":")[2].lower()
        if inner == "lightrig":
            inner = "nccl" if accelerated else "gloo"
        servers = [frozenset(ranks) for ranks in request["servers"]]
        maker = _backend(torch, gate, inner, started, servers)
        distributed.Backend.register_backend("lightrig", maker, devices=["cpu", "cuda"])
        if not given and "store" not in more:
            # Rendezvous over the control connection: circuits of the rail may move meanwhile.
            stores.append(harness_store(torch, exchanges))
            more |= {"store": stores[-1], "rank": request["rank"], "world_size": request["ranks"]}
            more.pop("init_method", None)
        return found["init_process_group"]("lightrig", *given, **more)

    def group(ranks: Any = None, timeout: Any = None, backend: Any = None, **more: Any) -> Any:
        del backend  # "lightrig" always, on top of the backend of the first group
        return found["new_group"](ranks, timeout=timeout, backend="lightrig", **more)

    ours = {"init_process_group": init, "new_group": group}
    # Modules such as `device_mesh` have imported them by name.
    known = [each for name, each in sys.modules.items() if name.startswith("torch.distributed")]
    places = [
        (place, name)
        for place in {id(each): each for each in (distributed, module, *known)}.values()
        for name in ours
        if vars(place).get(name) is found[name]
    ]
    for place, name in places:
        setattr(place, name, ours[name])
    try:
        yield
        # The script may end before the end of its last operation has been noted.
        started.put(None)
        follower.join(_LAST_END_S)
    finally:
        started.put(None)
        for place, name in places:
            setattr(place, name, found[name])
