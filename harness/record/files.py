"""Files that appear whole or not at all, and stay after a power failure."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A hidden path to write to, which becomes `path` at the end; an exception removes it.

    Readers and other writers meanwhile see what was there before: nothing, or the file that
    is replaced. The hidden name is this writer's own, also among hosts that share the folder.
    Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield hidden
        _sync(hidden)
        hidden.replace(path)
        _sync(path.parent)
    finally:
        hidden.unlink(missing_ok=True)


def left_by_the_killed(folder: Path, name: str) -> Iterator[Path]:
    """Hidden files in `folder` of writers of `name` that were killed, or that still write."""
    return folder.glob(f".{name}.*.tmp")


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
