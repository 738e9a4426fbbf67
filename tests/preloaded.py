"""pytest, `lightrig` and other programs as processes of their own that need not load Lightrig.

A server process, one for all workers of pytest-xdist, imports Lightrig once; each run is a fork of
it and goes on as `python -m pytest`, `lightrig` or another Python would: with its own session,
folder, environment, arguments and exit. Imports are two thirds of the processor time of a short
run. A fork shares with the runs beside it the seed of Python's hashes, the environment that /proc
shows, and what was read of the installed packages: a test that needs its own of these starts
Python itself.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Self

ROOT = Path(__file__).parents[1]
NOT_LOADED = (".programs", "__main__", "_program")
"""Parts of names of modules that are other programs."""
PLUGINS = (
    "anyio.pytest_plugin",
    "pytest_html.plugin",
    "pytest_metadata.plugin",
    "pytest_timeout",
    "xdist.plugin",
)
"""Modules that pytest loads in every run."""
PACKAGES = {"lightrig", *(name.partition(".")[0] for name in PLUGINS)}
SHARED = "LIGHTRIG_PRELOADED"
"""The variable by which workers are told the folder of their server."""
_folders: list[str] = []


class Process:
    """A run that goes on, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        command: Sequence[object],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int = 1,
        stderr: int = 2,
    ) -> None:
        """Start a command as `Popen` does, with text.

        command: "pytest" or "lightrig" and its arguments, or "python" with `-c` or `-m`.

        stdout, stderr: file descriptors, or `subprocess.PIPE`, for stderr also `STDOUT`.
        """
        self.args = [str(each) for each in command]
        self.returncode: int | None = None
        self._status, theirs = socket.socketpair()
        self.stdout, out = _reader(stdout)
        self.stderr, err = (None, out) if stderr == subprocess.STDOUT else _reader(stderr)
        environment = os.environ if env is None else env
        request = {
            "command": self.args,
            "cwd": str(cwd or Path.cwd()),
            "env": {k: v for k, v in environment.items() if not k.startswith("PYTEST")},
        }
        with theirs:
            descriptors = [theirs.fileno(), out, err]
            socket.send_fds(_server(os.getpid()), [json.dumps(request).encode()], descriptors)
        if self.stdout:
            os.close(out)
        if self.stderr:
            os.close(err)
        self.pid = int(self._status.makefile("rb", buffering=0).readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(0.001)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status; raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                line = self._status.recv(64)
            except TimeoutError as error:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from error
            assert line, "the server of preloaded processes has ended"
            self.returncode = int(line)
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait until it has ended; returns what its pipes have carried since they were read."""
        streams = [each for each in (self.stdout, self.stderr) if each and not each.closed]
        with ThreadPoolExecutor(2) as readers:
            read = [readers.submit(stream.read) for stream in streams]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                raise
            out, err, *_ = [*(each.result() for each in read), "", ""]
        self._close()
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing is sent to a process that has ended, as by `subprocess`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)


def _reader(stream: int) -> tuple[IO[str] | None, int]:
    """A pipe's two ends if `stream` asks for one; or nothing, and the stream itself."""
    if stream != subprocess.PIPE:
        return None, stream
    ours, theirs = os.pipe()
    return os.fdopen(ours), theirs


def run(
    command: Sequence[object],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run a command of `Process` to its end, as `subprocess.run` does, with captured text."""
    process = Process(command, cwd, env, subprocess.PIPE, subprocess.PIPE)
    out, err = process.communicate(timeout)
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def share(folder: str) -> None:
    """Let processes that name the same folder share a server; at first each has its own."""
    _folders[:] = [folder]


@functools.cache
def _server(_process: int) -> socket.socket:
    """The connection of this process, which is its argument, to the server; starts that server."""
    if not _folders:
        made = tempfile.TemporaryDirectory(prefix="lightrig-preloaded-")
        atexit.register(made.cleanup)
        share(made.name)
    place = Path(_folders[0], "server")
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _alone(place):
        try:
            ours.connect(str(place))
        except (FileNotFoundError, ConnectionRefusedError):  # or it was killed
            server = _start(place)
            ours.connect(str(place))
            atexit.register(server.wait)  # it ends once nobody is connected
    atexit.register(ours.close)
    return ours


def _start(place: Path) -> "subprocess.Popen[bytes]":
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        return subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno()), str(place)],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST")},
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Within this block, no other process connects to the server of that place, or ends it."""
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ------------------------------------------------------------------------ in the server


def _preload() -> None:
    os.fsync = lambda file: os.fstat(file) and None  # see conftest.py
    gc.disable()  # next to nothing of what is loaded here is garbage
    for name in ("pytest", *PLUGINS, "pdb", "scipy.special", "networkx"):
        importlib.import_module(name)
    sys.modules["duckdb"] = None  # type: ignore[assignment]
    for package in ("lightrig.harness", "lightrig.instruments"):
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, package + "."):
            if not any(part in found.name for part in NOT_LOADED):
                with contextlib.suppress(ImportError):  # of DuckDB, or an extra
                    importlib.import_module(found.name)
    del sys.modules["duckdb"]  # which complains at the end of a process that did not close it
    importlib.import_module("lightrig.testbeds").load(ROOT / "testbeds" / "opus.yaml")  # validators
    for name, module in list(sys.modules.items()):  # or pytest warns that they are loaded already
        if name.startswith("lightrig.harness.plugin") or name in PACKAGES:
            module.__doc__ = f"{module.__doc__} PYTEST_DONT_REWRITE"
    # For good: a run's own exclusion would end with it, and pytest then looks for garbage twice.
    importlib.import_module("lightrig.harness.garbage").exclude_present()
    gc.enable()


def _serve(listener: socket.socket, place: Path) -> dict[str, object] | None:
    """Fork at each request; returns the request in the fork, and nothing after the last client."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    clients = [listener.accept()[0]]
    while not _ended(listener, clients, place):
        ready, _, _ = select.select([listener, *clients], [], [])
        for each in ready:
            if each is listener:
                clients.append(listener.accept()[0])
                continue
            message, descriptors, *_ = socket.recv_fds(each, 1 << 20, 3)
            if not message:
                clients.remove(each)
                each.close()
            elif not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for open_one in (listener, *clients):
                    open_one.close()
                return _begun(message, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
    return None


def _ended(listener: socket.socket, clients: list[socket.socket], place: Path) -> bool:
    """Whether there is no client left, and none that has just connected: nobody can any more."""
    if clients:
        return False
    try:
        with _alone(place):
            if select.select([listener], [], [], 0)[0]:
                return False
            place.unlink(missing_ok=True)
    except FileNotFoundError:  # with its folder
        pass
    return True


def _begun(message: bytes, descriptors: list[int]) -> dict[str, object]:
    """In a fork: another one, a session of its own, goes on with a request; this one waits."""
    status, *outputs = descriptors
    child = os.fork()
    if child:
        os.setsid()  # a signal to the server's group is none of its
        os.write(status, f"{child}\n".encode())
        _, ended = os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
        os._exit(0)
    os.setsid()
    for number, descriptor in enumerate(outputs, start=1):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    request: dict[str, object] = json.loads(message)
    return request


def _run(command: list[str], cwd: str, env: dict[str, str]) -> None:
    program, *arguments = command
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[0] = cwd
    sys.path[1:1] = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each]
    importlib.invalidate_caches()
    if program == "lightrig":
        from lightrig.harness.cli import main

        sys.argv = [program, *arguments]
        main()
        return
    option, what, *arguments = arguments if program == "python" else ["-m", program, *arguments]
    sys.argv = [option, *arguments]
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


if __name__ == "__main__":
    _preload()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    if asked is not None:
        ended: object = 1
        try:
            _run(**asked)  # type: ignore[arg-type]
            ended = 0
        except SystemExit as exit_:
            ended = exit_.code
        except BaseException:
            traceback.print_exc()
        # What the interpreter does at its end; neither has a public name.
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
        sys.stderr.flush()
        # To take down an interpreter that shares its memory would copy all of it.
        os._exit(ended if isinstance(ended, int) else ended is not None)
