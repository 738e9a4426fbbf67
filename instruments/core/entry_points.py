"""Entry points of installed packages."""

import functools
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lightrig.packs import declared


def entries(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of `group` by name, in alphabetic order."""
    return _of_group(group, tuple(sys.path))


@functools.cache
def _of_group(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    if not declared(group):
        return {}
    return {entry.name: entry for entry in sorted(_installed(path).select(group=group))}


# Reading them parses the metadata of every installed package: once, for all groups.
@functools.cache
def _installed(path: tuple[str, ...]) -> Any:
    """Read all entry points, whose class Python 3.12 changed; `path` may have other packages."""
    return entry_points()
