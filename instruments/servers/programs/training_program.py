"""The program that runs a rank of a training job on a server; it is sent there as source.

It needs Python and PyTorch there and no Lightrig. The script is sent as well and runs unchanged: it
calls `init_process_group`, `new_group`, then collectives, `send` and `recv`. Requests and replies
are those of the probe (docs/probe.md); events are lines `{"event": ..., "at": [stamp, stamp]}`.

- `hello`: `torch` (its version, or null and `why` not), `boot`; the first one loads it.
- `train` with `script`, `name`, `argv`, `environment`, `control`, `rank`, `ranks`, `groups`,
  `servers` (the ranks of each), `phases` (or null): run the script to its end; answered by its
  `failure` (or null) and its `operations`, `[group, index, kind, bytes, asked, began, ended]` of
  each.
- `go` with `number`, and `refused` with a reason if it must not run: permits an operation.
- `tell` with `message`: hand it to the module that scripts may import.

`module` of `train`, or null, is one more module that the script may import: its `name`, `source`
and `settings`. It defines `connect(emit, settings)`, called before the script begins, and
`receive(message)`, called on another thread; what it emits becomes the event `message`.

`control` is "none": PyTorch is not wrapped; "watched": operations are recorded; "gated": each is
announced and waits for `go`. Events are `wants` (a number, group, index, kind and bytes), `ended`
(a number) and `printed` (a line of the script's output).

With `phases`, a gated rank decides by itself: `phases` lists, for the operations of the `first`
step and of each step `then`, the group and whether to ask. An operation that need not ask begins at
once in what was granted before. Once all that was granted has ended, and before the next `wants`,
the event `ran` reports what has begun and ended meanwhile, in that order: `["began", number,
operation, asked, began]` and `["ended", number, stamp]`; there is no `ended` then.

Where PyTorch is wrapped, ranks find each other through a store of the harness, over this
connection: the event `store` with a `number` and what to `do` is answered by the request `stored`
with that `number` and its `result`.

Operations of `groups` are the rail's. Those among ranks of one server stay within it, over its
loopback. Whatever else is collective, such as a loss of all ranks, is small and goes over the
rendezvous' store, as a front end would carry it; neither waits for circuits.
"""

# Only a private function of PyTorch makes a Work from a future.
# ruff: noqa: SLF001

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import queue
import sys
import threading
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lightrig.instruments.servers.programs.replies import Replies, load_torch
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["Gate", "main"]

_VERSION = 1


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

_STORE_TIMEOUT = 300.0
"""Default timeout of a store's operations, in s, as PyTorch's."""


class RefusedError(RuntimeError):
    """An operation must not run: no rail carries it, or it was not expected."""


class Gate:
    """Counts a rank's operations and holds them back until they are permitted; without PyTorch.

    Sends and receives between two ranks that a script starts before it waits for one of them are
    joined into one operation: a pipeline stage that sends and receives at once would otherwise
    deadlock, waiting for permission to receive before it could wait for its send.

    Args:
        groups: name and ranks of each group whose operations the rail carries.
        emit: sends an event to the harness.
        gated: whether operations wait for permission.
        phases: by which the rank decides itself about those that need not ask.
    """

    def __init__(
        self,
        groups: dict[str, Sequence[int]],
        emit: Callable[[dict[str, Any]], None],
        *,
        gated: bool,
        phases: dict[str, list[Any]] | None = None,
    ) -> None:
        self._names = {frozenset(ranks): name for name, ranks in groups.items()}
        self._emit, self._gated = emit, gated
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._waiting: dict[int, threading.Event] = {}
        self._refused: dict[int, str] = {}
        self._joined: tuple[str, int] | None = None
        self._running: Counter[int] = Counter()
        self._phases = phases if gated else None
        self._granted = False
        self._begun = 0
        self._in_flight: set[int] = set()
        self._unreported: list[list[Any]] = []
        self.operations: list[list[Any]] = []

    def carries(self, ranks: Sequence[int]) -> bool:
        """Whether operations among `ranks` are the rail's."""
        return frozenset(ranks) in self._names

    def begin(self, kind: str, ranks: Sequence[int], size: int) -> int:
        """Wait until an operation of `size` bytes among `ranks` may run; return its number.

        Raises `RefusedError`.
        """
        group = self._names.get(frozenset(ranks))
        if group is None:
            raise RefusedError(
                f"{kind} among ranks {sorted(ranks)}: the rail carries "
                + ", ".join(f"{name} {sorted(each)}" for each, name in self._names.items())
            )
        pair = kind in ("send", "recv")
        with self._lock:
            if self._joined is not None and pair and self._joined[0] == group:
                number = self._joined[1]
                self._running[number] += 1
                self.operations[number][3] += size
                return number
            self._leave_joined()
            number = len(self.operations)
            index = self._counts[group]
            self._counts[group] += 1
            asked = now()
            self.operations.append([group, index, kind, size, asked, asked, 0])
            self._running[number] = 1
            if pair:
                self._joined = group, number
            operation = [group, index, kind, size]
            if self._granted and not self._asks(number, group):
                self._unreported.append(["began", number, operation, asked, asked])
                self._begin(number)
                return number
            allowed = self._waiting[number] = threading.Event()
            if self._gated:
                self._report()
                self._emit({"wants": number, "operation": operation})
        if self._gated:
            allowed.wait()
            if number in self._refused:
                raise RefusedError(self._refused[number])
            with self._lock:
                self.operations[number][5] = now()
                self._granted = self._phases is not None
                self._begin(number)
        return number

    def _begin(self, number: int) -> None:
        self._in_flight.add(number)
        self._begun = number + 1

    def _asks(self, position: int, group: str | None = None) -> bool:
        """Whether the operation at a position must ask: also where another group was profiled."""
        if self._phases is None:
            return True
        first, then = self._phases["first"], self._phases["then"]
        late = position - len(first)
        profiled, asks = first[position] if late < 0 else then[late % len(then)]
        return bool(asks) or group not in (None, profiled)

    def _report(self) -> None:
        if self._unreported:
            ran, self._unreported = self._unreported, []
            self._emit({"ran": ran})

    def go(self, number: int, refused: str | None) -> None:
        """Permit the operation of that number, or refuse it."""
        if refused is not None:
            self._refused[number] = refused
        self._waiting[number].set()

    def waited_for(self, number: int) -> None:
        """Note that the script waits for it: later sends and receives are another operation."""
        with self._lock:
            if self._joined is not None and self._joined[1] == number:
                self._leave_joined()

    def done(self, number: int) -> None:
        """Note that a part of an operation has ended on this rank."""
        with self._lock:
            self._running[number] -= 1
            self._end(number)

    def _leave_joined(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            self._end(joined[1])

    def _end(self, number: int) -> None:
        joined = self._joined is not None and self._joined[1] == number
        if self._running[number] == 0 and not joined and not self.operations[number][6]:
            ended = self.operations[number][6] = now()
            self._in_flight.discard(number)
            if self._phases is not None:
                self._unreported.append(["ended", number, ended])
                if not self._in_flight and self._asks(self._begun):
                    self._granted = False
                    self._report()
            elif self._gated:
                self._emit({"ended": number})


class _Printed(io.TextIOBase):
    """Standard output of a script, sent line by line as events."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit, self._line = emit, ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._emit({"printed": line})
        return len(text)


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


class Exchanges:
    """Operations on the harness's store, each of which waits for its result; without PyTorch."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}

    def ask(self, do: str, *given: Any, timeout: float | None = None) -> Any:
        """Do an operation and return its result; raises `TimeoutError` after `timeout` s."""
        with self._lock:
            number = self._count
            self._count += 1
            answered = self._waiting[number] = queue.SimpleQueue()
        self._emit({"store": number, "do": [do, *given]})
        try:
            return answered.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"{do} of {given[:1]} was not answered in {timeout:g} s") from None
        finally:
            del self._waiting[number]

    def stored(self, number: int, result: Any) -> None:
        """Take the result of an operation."""
        if number in self._waiting:
            self._waiting[number].put(result)


def _harness_store(torch: Any, exchanges: Exchanges) -> Any:
    """Return a store of PyTorch's whose keys and values are the harness's."""

    def packed(value: Any) -> str:
        return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()

    class HarnessStore(torch.distributed.Store):  # type: ignore[misc, name-defined, unused-ignore]
        """A store over the control connection."""

        def __init__(self) -> None:
            super().__init__()
            self._timeout = _STORE_TIMEOUT

        def set(self, key: str, value: Any) -> None:
            exchanges.ask("set", key, packed(value))

        def get(self, key: str) -> bytes:
            return base64.b64decode(exchanges.ask("get", key, timeout=self._timeout))

        def add(self, key: str, amount: int) -> int:
            return int(exchanges.ask("add", key, amount))

        def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
            limit = self._timeout if timeout is None else timeout.total_seconds()
            exchanges.ask("wait", list(keys), timeout=limit)

        def check(self, keys: Sequence[str]) -> bool:
            return bool(exchanges.ask("check", list(keys)))

        def delete_key(self, key: str) -> bool:
            return bool(exchanges.ask("delete", key))

        def num_keys(self) -> int:
            return int(exchanges.ask("count"))

        # C++ calls these two by its own names.
        deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            return base64.b64decode(exchanges.ask("swap", key, packed(expected), packed(desired)))

        def set_timeout(self, timeout: Any) -> None:
            self._timeout = timeout.total_seconds()

    return HarnessStore()


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
def _wrapped(
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
    threading.Thread(target=_follow, args=arguments, name="ended", daemon=True).start()

    def init(backend: str | None = None, *given: Any, **more: Any) -> Any:
        inner = str(backend or ("nccl" if accelerated else "gloo")).rpartition(":")[2].lower()
        if inner == "lightrig":
            inner = "nccl" if accelerated else "gloo"
        servers = [frozenset(ranks) for ranks in request["servers"]]
        maker = _backend(torch, gate, inner, started, servers)
        distributed.Backend.register_backend("lightrig", maker, devices=["cpu", "cuda"])
        if not given and "store" not in more:
            # Rendezvous over the control connection: circuits of the rail may move meanwhile.
            stores.append(_harness_store(torch, exchanges))
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
    finally:
        started.put(None)
        for place, name in places:
            setattr(place, name, found[name])


class _Worker:
    """Answers the requests of one harness; the script runs on a second thread."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._gate: Gate | None = None
        self._module: Any = None
        # Output of a script or a library must not be taken for a reply: redirect stdout.
        self._replies = Replies(os.fdopen(os.dup(1), "w", encoding="utf-8"))
        self._exchanges = Exchanges(self._replies.event)
        os.dup2(2, 1)

    def serve(self) -> None:
        """Answer requests until stdin ends."""
        for line in iter(sys.stdin.buffer.readline, b""):
            received, request = now(), json.loads(line)
            if request["do"] == "go" and self._gate is not None:
                self._gate.go(request["number"], request.get("refused"))
                self._replies.reply(request["id"], received, {})
            elif request["do"] == "stored":
                self._exchanges.stored(request["number"], request["result"])
                self._replies.reply(request["id"], received, {})
            elif request["do"] == "tell" and self._module is not None:
                self._module.receive(request["message"])
                self._replies.reply(request["id"], received, {})
            else:
                arguments = (request, received)
                threading.Thread(target=self._answer, args=arguments, daemon=True).start()
        # A normal exit would wait for operations that wait for other ranks.
        os._exit(0)

    def _answer(self, request: dict[str, Any], received: int) -> None:
        verbs = {"hello": self._hello, "train": self._train}
        try:
            verb = verbs.get(request["do"])
            if verb is None:
                raise ValueError(f"there is no request {request['do']!r} now")
            self._replies.reply(request["id"], received, verb(request))
        except Exception as error:  # of any type: the harness gets it
            self._replies.fail(request["id"], received, error)

    # ---------------------------------------------------------------------- requests

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        if self._torch is None:
            try:
                self._torch = load_torch()
            except ImportError as error:
                return {"torch": None, "why": str(error)}
        return {"torch": str(self._torch.__version__), "boot": boot_id()}

    def _train(self, request: dict[str, Any]) -> dict[str, Any]:
        control = request["control"]
        self._gate = gate = Gate(
            request["groups"],
            self._replies.event,
            gated=control == "gated",
            phases=request.get("phases"),
        )
        os.environ.update(request["environment"])
        sys.argv = [request["name"], *request["argv"]]
        code = compile(request["script"], request["name"], "exec")
        failure = None
        wrapped = contextlib.nullcontext() if control == "none" else None
        module = request.get("module")
        self._module = self._connected(module) if module else None
        with contextlib.redirect_stdout(_Printed(self._replies.event)):
            try:
                with wrapped or _wrapped(self._torch, gate, self._exchanges, request):
                    exec(code, {"__name__": "__main__", "__file__": request["name"]})  # noqa: S102
            except BaseException as error:  # a script may also exit
                if not isinstance(error, SystemExit) or error.code:
                    failure = "".join(traceback.format_exception(error)[-3:])
        # Many scripts leave that to the end of their process, which this one outlives.
        if self._torch.distributed.is_initialized():
            with contextlib.suppress(Exception):
                self._torch.distributed.destroy_process_group()
        if module:
            sys.modules.pop(module["name"], None)
        return {"failure": failure, "operations": gate.operations}

    def _connected(self, described: dict[str, Any]) -> Any:
        module: Any = types.ModuleType(described["name"])
        exec(compile(described["source"], described["name"], "exec"), vars(module))  # noqa: S102
        module.connect(
            lambda message: self._replies.event({"message": message}), described["settings"]
        )
        sys.modules[described["name"]] = module
        return module


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-training", str(_VERSION)]):
        print(f"this is lightrig-training {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    _Worker().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
