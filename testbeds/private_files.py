"""Files that hold a secret: read only where no other account can."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lightrig.testbeds.errors import LightrigError

_LONGEST = 1 << 20
"""Bytes; what is longer is no login and no key."""


class PrivateFileError(LightrigError):
    """A file that holds a secret cannot be read, or can be read by accounts that must not."""


def read_private(path: Path, *, group: bool) -> bytes:
    """Return the content of a file that holds a secret.

    group: whether accounts of the file's group may read and write it. Where they may not, the file
    must belong to root or to this account. Raises `PrivateFileError`, without the content.
    """
    try:
        # A FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check(path, os.fstat(descriptor), group=group)
            content = os.read(descriptor, _LONGEST + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror}") from error
    if len(content) > _LONGEST:
        raise PrivateFileError(f"{path} is longer than 1 MiB: it holds no login and no key")
    return content


def _check(path: Path, found: os.stat_result, *, group: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PrivateFileError(f"{path} is no file")
    mode = stat.S_IMODE(found.st_mode)
    if mode & (0o007 if group else 0o077):
        raise PrivateFileError(
            f"other accounts can use {path} (mode {mode:04o}): chmod 600 {path}; for a mounted "
            "Kubernetes secret, defaultMode: 0400"
        )
    if not group and found.st_uid not in {0, os.geteuid()}:
        raise PrivateFileError(
            f"{path} belongs to account {found.st_uid}, neither to this one ({os.geteuid()}) nor "
            f"to root: chown {os.geteuid()} {path}"
        )
