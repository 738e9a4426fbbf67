"""PyTorch's process groups, wrapped: each operation passes the gate before it begins."""

# Only a private function of PyTorch makes a Work from a future.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
import importlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from lightrig.instruments.jobs.programs.training_front_end import FrontEnd
from lightrig.instruments.jobs.programs.training_gate import Gate
from lightrig.instruments.jobs.programs.training_store import Exchanges, harness_store

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
    # Functional collectives, such as those of a DTensor. Backends offer them to C++ alone: they are
    # begun tensor by tensor.
    "allgather_into_tensor_coalesced": "_allgather_base",
    "all_gather_single_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "_reduce_scatter_base",
}

_LAST_END_S = 10.0
"""Time allowed for operations that a script has started and not waited for, in s."""


def _follow(torch: Any, gate: Gate, started: queue.SimpleQueue[Any], accelerated: bool) -> None:
    """Wait for the end of each started operation in the queue, until None comes.

    An entry is its work, its number, its future and the future's result. One thread waits for all:
    so the stamp of an end does not depend on when the script waits for it.
    """
    streams: dict[Any, Any] = {}
    while (each := started.get()) is not None:
        work, number, future, result = each
        try:
            if accelerated:
                # NCCL's wait only blocks the stream that is current. One of our own ends with the
                # operation; the script's would end with the computation queued behind it.
                device = device_of(torch, result)
                if device not in streams:
                    streams[device] = torch.cuda.Stream(device)
                with torch.cuda.stream(streams[device]):
                    work.wait()
                streams[device].synchronize()
            else:
                work.wait()
        except Exception as error:  # of any type: the script gets it
            gate.done(number, partial(future.set_exception, error))
        else:
            gate.done(number, partial(future.set_result, result))


class _Works:
    """Several collectives that are one operation."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _backend(
    torch: Any,
    gate: Gate,
    inner: str,
    started: queue.SimpleQueue[Any],
    servers: Sequence[frozenset[int]],
    exchanges: Exchanges,
    carrier: Any,
) -> Callable[..., Any]:
    """Return a factory of process groups whose operations pass `gate` and run on `inner`.

    carrier: carries all-to-alls of rows; None: none.
    """
    distributed = torch.distributed
    world: list[Any] = []

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
            self._front_end = FrontEnd(
                torch, exchanges, gate, lambda: (self._name, self.rank(), self._members())
            )
            self._within: Any = None
            self._name = self._purpose = ""
            world.append(self)  # the first one

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

        def _get_backend(self, _: Any) -> Any:
            """Return itself: PyTorch 2.14 asks for it before it starts sends and receives."""
            return self

        def barrier(self, *_: Any, **__: Any) -> Any:
            """Wait over the store, not over the rail: a barrier carries no data."""
            name = f"barrier {self._barriers}"
            self._barriers += 1
            with gate.beside("barrier", self._members(), 0):
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
            size = bytes_of(torch, tensors)
            if not gate.carries(pair):
                if kind == "recv":
                    received = self._front_end.receive(tensors, peer, tag, size)
                    return torch._C._distributed_c10d._create_work_from_future(received)
                self._front_end.send(tensors, peer, tag, size)
                return _completed(torch, tensors)
            number = gate.begin(kind, pair, size)
            future = torch.futures.Future()
            started.put((getattr(self._inner, kind)(tensors, peer, tag), number, future, tensors))
            return Handle(number, future)

        def _carried(self, out: Any, rows: Any, taken: Any, given: Any, *_: Any, **__: Any) -> Any:
            """Hand an all-to-all to `carrier`; without counts all ranks get as many rows."""
            counts = self._shares(out, taken), self._shares(rows, given)
            ranks = self._members()
            rank = ranks[self.rank()]
            future = carrier.begin(world[0]._group_on, rank, ranks, out, rows, *counts)
            return torch._C._distributed_c10d._create_work_from_future(future)

        def _shares(self, tensor: Any, counts: Any) -> list[int]:
            return list(counts or [tensor.shape[0] // self.size()] * self.size())

        def _is_carried(self, _: Any, rows: Any, taken: Any, given: Any, *__: Any) -> bool:
            """Whether `carrier` takes an all-to-all."""
            del taken
            return bool(carrier.takes(rows, self._members(), self._shares(rows, given)))

        def _is_added(self, tensors: Any, options: Any = None) -> bool:
            """Whether `carrier` adds up these tensors: one, over all ranks."""
            if len(tensors) != 1 or self.size() != distributed.get_world_size():
                return False
            sums = options is None or options.reduceOp == distributed.ReduceOp.SUM
            return sums and bool(getattr(carrier, "adds", lambda _: False)(tensors[0]))

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
                self._within = self._group_on("lo", "scale-up")
            return self._within

        def _group_on(self, device: str, name: str, ranks: Sequence[int] = ()) -> Any:
            """Return a group of Gloo's on a network device: of `ranks`, or with the same ranks."""
            place, size = self.rank(), self.size()
            if ranks:
                name = f"{name} of {ranks}"
                place, size = [self._members().index(one) for one in ranks].index(place), len(ranks)
            options = distributed.ProcessGroupGloo._Options()
            options._timeout = self._timeout
            options._devices = [distributed.ProcessGroupGloo.create_device(interface=device)]
            store = distributed.PrefixStore(name, self._store)
            return distributed.ProcessGroupGloo(store, place, size, options)

    def collective(kind: str, method: str) -> Callable[..., Any]:
        def begin(group: Any, given: Sequence[Any], more: dict[str, Any]) -> Any:
            run = getattr(group, method)
            if method == kind or not kind.endswith("coalesced"):
                return run(*given, **more)
            out, tensors, *options = given
            return _Works([run(*pair, *options, **more) for pair in zip(out, tensors, strict=True)])

        def operate(self: Any, *given: Any, **more: Any) -> Any:
            ranks = self._members()
            if carrier is not None and method == "alltoall_base" and self._is_carried(*given):
                return self._carried(*given, **more)
            if carrier is not None and method == "allreduce" and self._is_added(*given, **more):
                future = carrier.add(self._group_on, self.rank(), given[0][0])
                return torch._C._distributed_c10d._create_work_from_future(future)
            if not gate.carries(ranks) and self._is_within(ranks):
                work = begin(self._scale_up(), given, more)
                if not isinstance(work, _Works):
                    return work
                work.wait()
                return _completed(torch, given[0])
            if not gate.carries(ranks) and len(ranks) > 1:
                self._front_end.run(kind, given, bytes_of(torch, given))
                return _completed(torch, given[0])
            number = gate.begin(kind, ranks, bytes_of(torch, given))
            future = torch.futures.Future()
            work = begin(self._inner, given, more)
            started.put((work, number, future, given[0]))
            return torch._C._distributed_c10d._create_work_from_future(future)

        return operate

    methods = {kind: collective(kind, method) for kind, method in _COLLECTIVES.items()}
    methods |= {kind: getattr(Group, kind) for kind in ("barrier", "send", "recv")}
    for kind, method in methods.items():
        # A script may call it from what it compiles, and Dynamo cannot trace threads and locks.
        setattr(Group, kind, torch.compiler.disable(method) if hasattr(torch, "optim") else method)
    return Group


def _completed(torch: Any, result: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def device_of(torch: Any, given: Any) -> Any:
    """Return the device of the first tensor of an operation's arguments."""
    while not isinstance(given, torch.Tensor):
        given = given[0]
    return given.device


def bytes_of(torch: Any, given: Any) -> int:
    """Return the size of an operation: of its largest argument, a list summed up."""
    if isinstance(given, torch.Tensor):
        return int(given.numel() * given.element_size())
    if not isinstance(given, list | tuple):
        return 0
    sizes = [bytes_of(torch, each) for each in given]
    return sum(sizes) if isinstance(given, list) else max(sizes, default=0)


@contextlib.contextmanager
def wrapped_groups(
    torch: Any, gate: Gate, exchanges: Exchanges, request: dict[str, Any], carrier: Any = None
) -> Iterator[None]:
    """Replace PyTorch's factories of process groups, so that each group passes `gate`.

    carrier: carries all-to-alls of rows, see training_program.py.
    """
    distributed = torch.distributed
    module = distributed.distributed_c10d
    found = {name: getattr(module, name) for name in ("init_process_group", "new_group")}
    accelerated = torch.cuda.is_available()
    started: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stores: list[Any] = []  # PyTorch keeps only their part in C++
    arguments = (torch, gate, started, accelerated)
    follower = threading.Thread(target=_follow, args=arguments, name="ended", daemon=True)
    follower.start()

    def init(backend: str | None = None, *given: Any, **more: Any) -> Any:
        inner = str(backend or ("nccl" if accelerated else "gloo")).rpartition(":")[2].lower()
        if inner == "lightrig":
            inner = "nccl" if accelerated else "gloo"
        servers = [frozenset(ranks) for ranks in request["servers"]]
        maker = _backend(torch, gate, inner, started, servers, exchanges, carrier)
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

    def note_step(optimizer: Any, *_: Any) -> None:
        # PyTorch makes the state of a new optimizer, for a checkpoint, by a step without gradients.
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_name != "_init_optim_state":
            frame = frame.f_back
        if frame.f_back is None:
            gate.stepped(optimizer)

    steps = kind = make = None
    if hasattr(torch, "optim"):
        optimizer = importlib.import_module("torch.optim.optimizer")
        steps = optimizer.register_optimizer_step_post_hook(note_step)
        kind, make = optimizer.Optimizer, optimizer.Optimizer.__init__

        def note_optimizer(made: Any, *given: Any, **more: Any) -> None:
            gate.optimizers += 1
            make(made, *given, **more)

        kind.__init__ = note_optimizer
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
        if steps and kind:
            steps.remove()
            kind.__init__ = make
        for place, name in places:
            setattr(place, name, found[name])
