"""Notes which files of a tree a process reads and which of its folders it lists.

Loaded where READ_FILES is set: by tests/mutants/trees.py in the process that runs tests, and as
`sitecustomize` in those that it starts. Lines of code are coverage.py's: of files that are
imported, those of tests alone are noted.
"""

import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

VARIABLE = "READ_FILES"
"""Names the tree and the file to which names are added, with a colon between."""


def note(root: str, log: str) -> None:
    """Add the name of each file below `root` that is read to `log`; a folder's ends with "/".

    Not what is read or listed for tracebacks, by coverage.py, by pytest as it looks for tests, or
    for versions of packages.
    """
    seen = set[object]()

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"open", "os.listdir", "os.scandir"} or not arguments:
            return
        name = arguments[0]
        if not isinstance(name, str | os.PathLike):
            return
        name = os.fspath(name)
        if not isinstance(name, str) or (name, event) in seen:
            return
        if os.path.isabs(name):
            seen.add((name, event))
        path = os.path.realpath(name)
        # A name that is relative to another folder's descriptor is not known.
        if not path.startswith(f"{root}/") or not os.path.exists(path):
            return
        found = path.removeprefix(f"{root}/")
        callers = list(_callers(inspect.currentframe()))
        if _is_import(callers):
            if event != "open" or not found.startswith("tests/"):
                return
            found = _source(found)
        elif event != "open":
            found += "/"
            if any("/coverage/" in by or "/importlib/metadata/" in by for by in callers):
                return
            if "/_pytest/" in callers[0]:
                return
        elif callers[0].endswith(("/linecache.py", "/tokenize.py")):
            return
        if "__pycache__" not in found and found not in seen:
            seen.add(found)
            _add(log, found)

    sys.addaudithook(opened)


def _callers(frame: Any) -> Iterator[str]:
    """Yield the file of each frame that has called this one, the innermost first."""
    frame = frame.f_back
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def _is_import(callers: list[str]) -> bool:
    rewrites = any(by.endswith("/_pytest/assertion/rewrite.py") for by in callers[:3])
    return callers[0].startswith("<frozen importlib") or rewrites


def _source(name: str) -> str:
    """Return the source of a file of bytecode; other names as they are."""
    folder, _, file = name.rpartition("/__pycache__/")
    return f"{folder}/{file.partition('.')[0]}.py" if folder else name


def _add(log: str, name: str) -> None:
    try:
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError:  # in a namespace that cannot see it
        return
    os.write(file, f"{name}\n".encode())
    os.close(file)


if VARIABLE in os.environ:
    note(*os.environ[VARIABLE].split(":", 1))
