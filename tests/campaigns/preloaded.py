"""Processes that begin with Lightrig loaded: campaigns of a thousand runs spare its imports."""

import contextlib
import gc
import importlib
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lightrig.testbeds import load

ROOT = Path(__file__).parents[2]

_FOREIGN = (
    "anyio", "cacheprovider", "html", "hypothesispytest", "metadata", "platformdirs",
    "threadexception", "timeout", "unraisableexception", "xdist", "xdist.looponfail",
)  # fmt: skip
"""Plugins that a run does not need, each of which costs it some time."""
RUN_OPTIONS = ("--assert=plain", *(f"-pno:{name}" for name in _FOREIGN))


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest with the plugins of Lightrig and what these need; return its status."""
    return int(pytest.main([*arguments, *RUN_OPTIONS]))


def preload(*, simulation: bool) -> None:
    """Import now what each run would import by itself; the `simulation` only where it would."""
    for package in ("lightrig.harness", "lightrig.instruments"):
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, package + "."):
            wanted = simulation or ".simulated" not in found.name
            # Programs run alone on servers; those of MPI would start it here.
            if wanted and not found.name.endswith(("__main__", "_program")):
                with contextlib.suppress(ImportError):
                    importlib.import_module(found.name)
    load(ROOT / "testbeds" / "mixnet.yaml")  # the first one makes pydantic's validators
    gc.freeze()


def forked(work: Callable[[], int], output: Path) -> int:
    """Run `work` in a process of its own, which prints into a file; returns its id."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        os.setpgid(0, 0)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        status = work()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def run_lanes(lanes: Sequence[Callable[[], int]]) -> None:
    """Run each lane in a process of its own, until all have ended; an interrupt ends them."""
    children = []
    for lane in lanes:
        child = os.fork()
        if not child:
            try:
                os._exit(lane())
            except KeyboardInterrupt:
                os._exit(2)
            except BaseException:
                traceback.print_exc()
                os._exit(99)
        children.append(child)
    try:
        for child in children:
            os.waitpid(child, 0)
    except KeyboardInterrupt:
        for child in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGINT)
                os.waitpid(child, 0)  # it ends what it has started
