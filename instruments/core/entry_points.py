"""Entry points of installed packages."""

import functools
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points


def entries(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of `group` by name, in alphabetic order."""
    return _read(group, tuple(sys.path))


# Reading them parses the metadata of every installed package, for each instrument that is opened.
@functools.cache
def _read(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Read a group's entry points; another search path may have other packages."""
    return {entry.name: entry for entry in sorted(entry_points(group=group))}
