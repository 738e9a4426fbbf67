"""The program that runs a rank of a training job on a server; it is sent there as source.

It needs Python and PyTorch there, and nothing of ours. The script that it runs is sent as well,
is not changed, and says what it would say anywhere: `init_process_group`, `new_group`, then
collectives, `send` and `recv`. Requests and answers are those of the probe (docs/probe.md); what
nobody has asked for is told as `{"tell": ..., "at": [stamp, stamp]}`.

- `hello`: `torch` (its version, or null and `why` not), `boot`; the first one loads it.
- `train` with `script`, `name`, `argv`, `environment`, `control`, `rank`, `ranks`, `groups`,
  `store`: run the script to its end; answered by its `failure` (or null) and its `operations`,
  `[group, index, kind, bytes, asked, began, ended]` of each.
- `go` with `number`, and `refused` where it must not: an operation that was announced may run.

`control` is "none": the script has PyTorch to itself; "watched": its operations are recorded;
"held": each is announced, and waits until it may run. Told are `wants` (a number, group, index,
kind and bytes), `ended` (a number) and `said` (a line that the script has printed).
"""

# A Work is made from a future nowhere but in PyTorch's own module.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import queue
import sys
import threading
import time  # noqa: TID251 - this runs alone on a server, with nothing of ours
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["Gate", "main"]

_VERSION = 1

_now = time.monotonic_ns

_COLLECTIVES = {
    # What a process group is asked for, and what its backend calls that.
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


class RefusedError(RuntimeError):
    """An operation may not run: nothing carries it, or it was not expected."""


class Gate:
    """Where a rank's operations are counted, and wait until they may run. It knows no PyTorch.

    The sends and receives between two ranks that a script begins before it waits for one of
    them are one operation: a stage that sends on and takes back at once would otherwise wait for
    itself.

    Args:
        groups: name and ranks of each group whose operations the rail carries.
        tell: says something to the harness.
        held: whether operations wait until they may run.
    """

    def __init__(
        self,
        groups: dict[str, Sequence[int]],
        tell: Callable[[dict[str, Any]], None],
        *,
        held: bool,
    ) -> None:
        self._names = {frozenset(ranks): name for name, ranks in groups.items()}
        self._tell, self._held = tell, held
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._waiting: dict[int, threading.Event] = {}
        self._refused: dict[int, str] = {}
        self._joined: tuple[str, int] | None = None
        self._running: Counter[int] = Counter()
        self.operations: list[list[Any]] = []

    def begin(self, kind: str, ranks: Sequence[int], size: int) -> int:
        """Wait until an operation of `size` bytes among `ranks` may run; returns its number.

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
            self._part()
            number = len(self.operations)
            index = self._counts[group]
            self._counts[group] += 1
            asked = _now()
            self.operations.append([group, index, kind, size, asked, asked, 0])
            self._running[number] = 1
            if pair:
                self._joined = group, number
            allowed = self._waiting[number] = threading.Event()
        if self._held:
            self._tell({"wants": number, "operation": [group, index, kind, size]})
            allowed.wait()
            if number in self._refused:
                raise RefusedError(self._refused[number])
            self.operations[number][5] = _now()
        return number

    def go(self, number: int, refused: str | None) -> None:
        """Let the operation of that number run, or not."""
        if refused is not None:
            self._refused[number] = refused
        self._waiting[number].set()

    def waited_for(self, number: int) -> None:
        """The script waits for it: what it begins from now on is another operation."""
        with self._lock:
            if self._joined is not None and self._joined[1] == number:
                self._part()

    def done(self, number: int) -> None:
        """One of an operation's parts has ended on this rank."""
        with self._lock:
            self._running[number] -= 1
            self._end(number)

    def _part(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            self._end(joined[1])

    def _end(self, number: int) -> None:
        joined = self._joined is not None and self._joined[1] == number
        if self._running[number] == 0 and not joined and not self.operations[number][6]:
            self.operations[number][6] = _now()
            if self._held:
                self._tell({"ended": number})


class _Said(io.TextIOBase):
    """What a script prints, line by line."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell, self._line = tell, ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._tell({"said": line})
        return len(text)


def _follow(torch: Any, gate: Gate, begun: queue.SimpleQueue[Any]) -> None:
    """See operations end, until None is begun; nothing else waits for what does them.

    What is begun comes as its work, its number, and a future with what that will have as result.
    """
    while (each := begun.get()) is not None:
        work, number, future, result = each
        try:
            work.wait()
            if torch.cuda.is_available():
                # NCCL's wait is one of the stream's; the end is told when it is one here.
                torch.cuda.current_stream(_device(torch, result)).synchronize()
        except Exception as error:  # whatever it is, the script is told
            gate.done(number)
            future.set_exception(error)
        else:
            gate.done(number)
            future.set_result(result)


def _backend(
    torch: Any, gate: Gate, inner: str, begun: queue.SimpleQueue[Any]
) -> Callable[..., Any]:
    """What makes a process group whose operations pass `gate` and are done by `inner`."""
    distributed = torch.distributed

    class Handle(distributed.Work):  # type: ignore[misc, name-defined, unused-ignore]
        """A send or a receive that was begun."""

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
        """A process group that asks before it sends."""

        def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
            super().__init__(rank, size)
            kind = {"gloo": "ProcessGroupGloo", "nccl": "ProcessGroupNCCL"}[inner]
            if inner == "gloo":
                self._inner = getattr(distributed, kind)(store, rank, size, timeout)
            else:
                options = getattr(distributed, kind).Options()
                options._timeout = timeout  # as PyTorch itself sets it
                self._inner = getattr(distributed, kind)(store, rank, size, options)
            self._store, self._barriers = store, 0

        def getBackendName(self) -> str:  # noqa: N802 - the name that PyTorch asks for
            return "lightrig"

        def barrier(self, *_: Any, **__: Any) -> Any:
            """Over the store, which is no rail: a barrier carries no data."""
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
            number = gate.begin(kind, pair, _bytes(torch, tensors))
            future = torch.futures.Future()
            begun.put((getattr(self._inner, kind)(tensors, peer, tag), number, future, tensors))
            return Handle(number, future)

        def _members(self) -> list[int]:
            return list(distributed.get_process_group_ranks(self))

    def collective(kind: str, called: str) -> Callable[..., Any]:
        def operate(self: Any, *given: Any, **more: Any) -> Any:
            number = gate.begin(kind, self._members(), _bytes(torch, given))
            future = torch.futures.Future()
            work = getattr(self._inner, called)(*given, **more)
            begun.put((work, number, future, given[0]))
            return torch._C._distributed_c10d._create_work_from_future(future)

        return operate

    for kind, called in _COLLECTIVES.items():
        setattr(Group, kind, collective(kind, called))
    return Group


def _completed(torch: Any, result: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def _device(torch: Any, given: Any) -> Any:
    """Where the first tensor is of those that an operation was given."""
    while not isinstance(given, torch.Tensor):
        given = given[0]
    return given.device


def _bytes(torch: Any, given: Any) -> int:
    """How much an operation carries: the largest of what it was given, a list as a whole."""
    if isinstance(given, torch.Tensor):
        return int(given.numel() * given.element_size())
    if not isinstance(given, list | tuple):
        return 0
    sizes = [_bytes(torch, each) for each in given]
    return sum(sizes) if isinstance(given, list) else max(sizes, default=0)


@contextlib.contextmanager
def _wrapped(torch: Any, gate: Gate, request: dict[str, Any]) -> Iterator[None]:
    """Meanwhile every process group is one of ours, whichever backend the script asks for."""
    distributed = torch.distributed
    module = distributed.distributed_c10d
    found = {name: getattr(module, name) for name in ("init_process_group", "new_group")}
    accelerated = torch.cuda.is_available()
    begun: queue.SimpleQueue[Any] = queue.SimpleQueue()
    arguments = (torch, gate, begun)
    threading.Thread(target=_follow, args=arguments, name="ended", daemon=True).start()

    def init(backend: str | None = None, *given: Any, **more: Any) -> Any:
        inner = str(backend or ("nccl" if accelerated else "gloo")).rpartition(":")[2].lower()
        if inner == "lightrig":
            inner = "nccl" if accelerated else "gloo"
        maker = _backend(torch, gate, inner, begun)
        distributed.Backend.register_backend("lightrig", maker, devices=["cpu", "cuda"])
        if request["store"] and not given and "store" not in more:
            # Ranks find each other over the management network: the rail's circuits move.
            store = distributed.FileStore(request["store"], request["ranks"])
            more |= {"store": store, "rank": request["rank"], "world_size": request["ranks"]}
            more.pop("init_method", None)
        return found["init_process_group"]("lightrig", *given, **more)

    def group(ranks: Any = None, timeout: Any = None, backend: Any = None, **more: Any) -> Any:
        del backend  # ours, which does what the first one asked for
        return found["new_group"](ranks, timeout=timeout, backend="lightrig", **more)

    ours = {"init_process_group": init, "new_group": group}
    for place in (distributed, module):
        for name, function in ours.items():
            setattr(place, name, function)
    try:
        yield
    finally:
        begun.put(None)
        for place in (distributed, module):
            for name, function in found.items():
                setattr(place, name, function)


class _Worker:
    """Answers the requests of one harness; the script runs on a thread of its own."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._gate: Gate | None = None
        self._writing = threading.Lock()
        # What a script or a library writes must never be taken for an answer.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def serve(self) -> None:
        """Answer until stdin ends."""
        for line in iter(sys.stdin.buffer.readline, b""):
            received, request = _now(), json.loads(line)
            if request["do"] == "go" and self._gate is not None:
                self._gate.go(request["number"], request.get("refused"))
                self._reply(request["id"], received, "ok", {})
            else:
                arguments = (request, received)
                threading.Thread(target=self._answer, args=arguments, daemon=True).start()
        # An operation that waits for others would hold up a normal exit.
        os._exit(0)

    def _answer(self, request: dict[str, Any], received: int) -> None:
        verbs = {"hello": self._hello, "train": self._train}
        try:
            verb = verbs.get(request["do"])
            if verb is None:
                raise ValueError(f"there is no request {request['do']!r} now")
            self._reply(request["id"], received, "ok", verb(request))
        except Exception as error:  # whatever it is, the harness is told
            text = str(error) or type(error).__name__
            content = {"kind": type(error).__name__, "text": text}
            self._reply(request["id"], received, "error", content)

    def _reply(self, number: Any, received: int, word: str, content: Any) -> None:
        self._write({"id": number, "at": [received, _now()], word: content})

    def _tell(self, content: dict[str, Any]) -> None:
        at = _now()
        self._write({"tell": content, "at": [at, at]})

    def _write(self, line: dict[str, Any]) -> None:
        with self._writing:
            try:
                self._out.write(json.dumps(line) + "\n")
                self._out.flush()
            except BrokenPipeError:
                os._exit(0)

    # ---------------------------------------------------------------------- requests

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        if self._torch is None:
            # Only now, so that a server without it can say so.
            try:
                torch = importlib.import_module("torch")
            except ImportError as error:
                return {"torch": None, "why": str(error)}
            torch.set_num_threads(1)
            self._torch = torch
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return {"torch": str(self._torch.__version__), "boot": file.read().strip()}

    def _train(self, request: dict[str, Any]) -> dict[str, Any]:
        control = request["control"]
        self._gate = gate = Gate(request["groups"], self._tell, held=control == "held")
        os.environ.update(request["environment"])
        sys.argv = [request["name"], *request["argv"]]
        code = compile(request["script"], request["name"], "exec")
        failure = None
        wrapped = contextlib.nullcontext() if control == "none" else None
        with contextlib.redirect_stdout(_Said(self._tell)):
            try:
                with wrapped or _wrapped(self._torch, gate, request):
                    exec(code, {"__name__": "__main__", "__file__": request["name"]})  # noqa: S102
            except BaseException as error:  # a script may also exit
                if not isinstance(error, SystemExit) or error.code:
                    failure = "".join(traceback.format_exception(error)[-3:])
        if failure is not None and self._torch.distributed.is_initialized():
            with contextlib.suppress(Exception):
                self._torch.distributed.destroy_process_group()
        return {"failure": failure, "operations": gate.operations}


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-training", str(_VERSION)]):
        print(f"this is lightrig-training {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    _Worker().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
