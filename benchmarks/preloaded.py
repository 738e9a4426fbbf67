"""Processes that begin with Lightrig loaded: campaigns of a thousand runs spare its imports."""

import contextlib
import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path


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
