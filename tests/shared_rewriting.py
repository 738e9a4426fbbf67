"""Assertions of test files, rewritten once for all workers of pytest-xdist.

All workers collect all test files, in one order. Where pytest has not yet stored them with their
assertions rewritten, as in a new clone, each worker would rewrite each file at the same moment as
the others: 9 s of processor time a worker. Here each stores its share first.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _NotExecuted:
    """A module whose code pytest rewrites and stores, and does not get to execute."""

    def __init__(self, spec: importlib.machinery.ModuleSpec) -> None:
        self.__name__ = spec.name
        self.__spec__ = spec

    @property
    def __dict__(self) -> dict[str, object]:  # type: ignore[override]
        raise _StoredError


class _StoredError(Exception):
    """Pytest asks for a module's names to execute its code, which it has stored by then."""


def store_share(hook: Any, arguments: list[str], worker: int, workers: int) -> None:
    """Rewrite and store each `workers`-th of the test files that are not stored, from `worker`.

    A file that cannot be compiled is left to its collection, which reports it.

    hook: pytest's hook that rewrites; it has another where it is told not to rewrite.
    arguments: paths and ids of tests, those of the run.
    """
    if sys.dont_write_bytecode or not hasattr(hook, "exec_module"):
        return
    for file in sorted(set(_not_stored(arguments)))[worker::workers]:
        spec = hook.find_spec(file.stem, [str(file.parent)])
        if spec is not None:
            try:
                hook.exec_module(_NotExecuted(spec))
            except (_StoredError, SyntaxError, ValueError, OSError):
                continue


def _not_stored(arguments: list[str]) -> Iterator[Path]:
    """Test files of pytest's arguments without a stored one of the same name."""
    stored: dict[Path, set[str]] = {}
    for path in {Path(each.partition("::")[0]) for each in arguments}:
        for file in (path,) if path.is_file() else path.rglob("test_*.py"):
            cache = Path(importlib.util.cache_from_source(str(file.resolve()))).parent
            if cache not in stored:
                names = os.listdir(cache) if cache.is_dir() else []
                stored[cache] = {name.partition(".")[0] for name in names if "-pytest-" in name}
            if file.stem not in stored[cache]:
                yield file.resolve()
