"""The program that runs a rank of a training job on a server; it is sent there as source.

It needs Python and PyTorch there and no Lightrig. The script is sent as well and runs unchanged: it
calls `init_process_group`, `new_group`, then collectives, `send` and `recv`. Requests and replies
are those of the probe (docs/appendix/probe.md); events are lines
`{"event": ..., "at": [stamp, stamp]}`.

- `hello`: `torch` (its version, or null and `why` not), `boot`, and its process `group`; the first
  one loads PyTorch.
- `train` with `script`, `name`, `argv`, `environment`, `control`, `rank`, `ranks`, `groups`,
  `servers` (the ranks of each), `phases` (or null): run the script to its end; answered by its
  `failure` (or null), its `operations`, `[group, index, kind, bytes, asked, began, ended, line,
  parts]` of each that the rails carry (`line` of the script or null; `parts` the directions, s or
  r, of sends and receives that are joined), those of the `front_end` without `parts`, `steps`, how
  many operations were begun before the end of each step of an optimizer, and `optimizers`, how many
  of PyTorch's the script has made.
- `go` with `number`, and `refused` with a reason if it must not run: permits an operation.
- `script_ended` with `rank` and `counts`: the script of that rank has ended, after that many
  collectives of each group.
- `tell` with `message`: hand it to the module that carries all-to-alls.

`module` of `train`, or null, is the `source` of a module that carries all-to-alls of the script,
and its `settings`. It defines `connect(torch, emit, settings)`, called before the script begins;
what it emits becomes the event `message`. `connect` returns an object with `takes(rows, ranks,
given)`, whether it carries the all-to-all of a tensor among ranks, with the rows to each of them,
`begin(group_on, rank, ranks, out, rows, taken, given)`, which begins it and returns the future of
its end (`group_on` makes a process group by its network device, a name and the ranks, without these
of all), and `receive(message)`, called on another thread. It
may have `adds(tensor)`, whether it adds up a tensor over all ranks, and `add(group_on, rank,
tensor)`, which begins that in place.

`control` is "none": PyTorch is not wrapped; "watched": operations are recorded; "gated": each is
announced and waits for `go`. Events are `wants` (a number, group, index, kind and bytes), `ended`
(a number), `printed` (a line of the script's output), `stepped` (how many steps of the first
optimizer have ended), and `alone`, `[kind, group, index, line, rank, count]` of a collective that
cannot end, since the script of `rank` has ended after `count` of its group.

With `phases`, a gated rank decides by itself: `phases` lists, for the operations of the `first`
step and of each step `then`, the group, whether to ask, and how many sends and receives are joined
in it; an operation beyond them asks. An operation that need not ask begins at once in what was
granted before. Once all that was granted has ended, at the end of an optimizer's step, and before
the next `wants`, the event `ran` reports what has begun and ended meanwhile, in that order:
`["began", number, operation, asked, began]` and `["ended", number, stamp]`; there is no `ended`
then. At the end of a step the event `stepped` has such a `ran` as well: what happened before it.

Where PyTorch is wrapped, ranks find each other through a store of the harness, over this
connection: the event `store` with a `number` and what to `do` is answered by the request `stored`
with that `number` and its `result`.

Operations of `groups` are the rail's; one without ranks stands for all groups that are not within
a server. Those among ranks of one server stay within it, over its
loopback. Whatever else ranks exchange, such as a loss of all ranks or a checkpoint, goes over this
connection, as a front-end network would carry it; neither waits for circuits.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import io
import json
import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

from lightrig.instruments.jobs.programs.training_gate import Gate
from lightrig.instruments.jobs.programs.training_groups import wrapped_groups
from lightrig.instruments.jobs.programs.training_store import Exchanges
from lightrig.instruments.servers.programs.replies import Replies, load_torch
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["main"]

_VERSION = 1

_PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphans among its descendants become its children, so that it finds them."""

_ROUNDS = 100
"""Times to look for processes of the script, which may start others meanwhile."""


class _Printed(io.TextIOBase):
    """Standard output of a script, sent line by line as events."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit, self._line = emit, ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._emit({"printed": line})
        return len(text)


class _Worker:
    """Answers the requests of one harness; the script runs on a second thread."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._gate: Gate | None = None
        self._ended_ranks: dict[int, dict[str, int]] = {}
        self._module: Any = None
        # Output of a script or a library must not be taken for a reply: redirect stdout.
        # A script forks workers: each closes its sys.stdin, which waits for ever where a thread of
        # its parent was reading there, and would keep both ends of the connection open.
        self._requests = sys.stdin.buffer
        replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._replies = Replies(replies)
        self._exchanges = Exchanges(self._replies.event)
        os.dup2(2, 1)
        self._stdin = sys.stdin  # kept, or it would close the connection
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")

        def leave_connection() -> None:
            sys.stdout = sys.stderr
            os.dup2(sys.stdin.fileno(), 0)
            os.close(replies.fileno())

        os.register_at_fork(after_in_child=leave_connection)

    def serve(self) -> None:
        """Answer requests until stdin ends."""
        for line in iter(self._requests.readline, b""):
            received, request = now(), json.loads(line)
            if request["do"] == "go" and self._gate is not None:
                self._gate.go(request["number"], request.get("refused"))
                self._replies.reply(request["id"], received, {})
            elif request["do"] == "script_ended":
                self._ended_ranks[request["rank"]] = request["counts"]
                if self._gate is not None:
                    self._gate.report_alone()
                self._replies.reply(request["id"], received, {})
            elif request["do"] == "stored":
                self._exchanges.stored(request["number"], request["result"])
                self._replies.reply(request["id"], received, {})
            elif request["do"] == "tell" and self._module is not None:
                self._module.receive(request["message"])
                self._replies.reply(request["id"], received, {})
            else:
                if request["do"] == "train":
                    self._gate, self._ended_ranks = None, {}
                arguments = (request, received)
                threading.Thread(target=self._answer, args=arguments, daemon=True).start()
        # A normal exit would wait for operations that wait for other ranks.
        _kill_descendants()
        if _folder.cache_info().currsize:
            _remove_folder(_folder())
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
        version = str(self._torch.__version__)
        return {"torch": version, "boot": boot_id(), "group": os.getpgrp()}

    def _train(self, request: dict[str, Any]) -> dict[str, Any]:
        control = request["control"]
        os.environ.update(request["environment"])
        sys.argv = [request["name"], *request["argv"]]
        failure = None
        wrapped = contextlib.nullcontext() if control == "none" else None
        module = request.get("module")
        self._module = self._connected(module) if module else None
        with (
            contextlib.redirect_stdout(_Printed(self._replies.event)),
            _script_file(request["name"], request["script"]) as path,
        ):
            self._gate = gate = Gate(
                request["groups"],
                self._replies.event,
                gated=control == "gated",
                phases=request.get("phases"),
                script=path,
                servers=request["servers"],
                ended=self._ended_ranks,
            )
            try:
                arguments = (self._torch, gate, self._exchanges, request, self._module)
                with wrapped or wrapped_groups(*arguments):
                    _run(path, request["script"])
            except BaseException as error:  # a script may also exit
                if not isinstance(error, SystemExit) or error.code:
                    failure = "".join(traceback.format_exception(error))
        # Many scripts leave that to the end of their process, which this one outlives.
        if self._torch.distributed.is_initialized():
            with contextlib.suppress(Exception):
                self._torch.distributed.destroy_process_group()
        gate.finish()
        return {
            "failure": failure,
            "operations": gate.operations,
            "front_end": gate.front_end,
            "steps": gate.steps,
            "optimizers": gate.optimizers,
        }

    def _connected(self, described: dict[str, Any]) -> Any:
        module: Any = types.ModuleType("carrier")
        exec(compile(described["source"], "carrier", "exec"), vars(module))  # noqa: S102
        return module.connect(
            self._torch,
            lambda message: self._replies.event({"message": message}),
            described["settings"],
        )


@functools.cache
def _folder() -> str:
    """Return the folder of this process, which it removes when it ends.

    It is named and locked as folders of runs are: the next run removes it where both were killed.
    The name is short, since sockets of workers lie in it, whose paths have 107 bytes at most.
    """
    made = tempfile.mkdtemp(prefix=".lightrig-new-")
    lock = os.open(os.path.join(made, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    named = made.replace(".lightrig-new-", "lightrig-")
    os.rename(made, named)
    usual, tempfile.tempdir = tempfile.tempdir, named
    try:
        multiprocessing.util.get_temp_dir()  # else each worker of the script makes one in /tmp
    finally:
        tempfile.tempdir = usual
    return named


def _remove_folder(folder: str) -> None:
    """Remove this process's folder; where that fails, the next run finds its lock file and does.

    Threads of the script go on until this process ends, and may write into it. A kill amid the last
    steps leaves it as one whose making was cut off, which a run removes an hour later.
    """
    lock = os.path.join(folder, ".lock")
    parent, named = os.path.split(folder)
    hidden = os.path.join(parent, ".lightrig-new-" + named[len("lightrig-") :])
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if path != lock:
                shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.unlink(path)
        os.rename(folder, hidden)
        os.unlink(os.path.join(hidden, ".lock"))
        try:
            os.rmdir(hidden)
        except OSError:
            os.close(os.open(os.path.join(hidden, ".lock"), os.O_RDWR | os.O_CREAT, 0o600))
            os.rename(hidden, folder)


@contextlib.contextmanager
def _script_file(name: str, source: str) -> Iterator[str]:
    """A file with the script: spawned workers import it, and tracebacks show its lines."""
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        path = os.path.join(folder, os.path.basename(name))
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        yield path


def _run(path: str, source: str) -> None:
    """Run a script as Python runs a file: as `__main__`, which its workers look for."""
    module, program = types.ModuleType("__main__"), sys.modules["__main__"]
    module.__file__ = path
    sys.modules["__main__"] = module
    sys.path.insert(0, os.path.dirname(path))
    try:
        exec(compile(source, path, "exec"), vars(module))  # noqa: S102
    finally:
        sys.path.remove(os.path.dirname(path))
        sys.modules["__main__"] = program


def _kill_descendants() -> None:
    """Kill what the script has started, also what has left its session or its parent."""
    for _ in range(_ROUNDS):
        parents: dict[int, int] = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8") as file:
                # proc(5): after the name in parentheses come the state and the parent's number.
                state, parent = file.read().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(name)] = int(parent)
        found = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        if found == {os.getpid()}:
            return
        for pid in found - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-training", str(_VERSION)]):
        print(f"this is lightrig-training {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    with contextlib.suppress(PermissionError):  # leads a group of its own already
        os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _Worker().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
