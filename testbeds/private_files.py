"""Files that hold a secret: read only where no other account can."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from lightrig.testbeds.errors import LightrigError

_LONGEST = 1 << 20
"""Bytes; what is longer is no login and no key."""

_MOST_LINKS = 8


class PrivateFileError(LightrigError):
    """A file that holds a secret cannot be read, or can be read by accounts that must not."""


def read_private(path: Path, *, group: bool, links: bool = True) -> bytes:
    """Return the content of a file that holds a secret.

    group: whether accounts of the file's group may read and write it. Where they may not, the file
    must belong to root or to this account. links: whether the file may be a link, as in a mounted
    Kubernetes secret; each link and the file then belong to root or to this account, since another
    account could have any file of its reader sent as the secret. Raises `PrivateFileError`, without
    the content.
    """
    try:
        descriptor, is_link = _opened(path, links=links)
        try:
            _check(path, os.fstat(descriptor), group=group, owned=is_link or not group)
            content = os.read(descriptor, _LONGEST + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror}") from error
    if len(content) > _LONGEST:
        raise PrivateFileError(f"{path} is longer than 1 MiB: it holds no login and no key")
    return content


def _opened(path: Path, *, links: bool) -> tuple[int, bool]:
    """Open a file without waiting; return its descriptor and whether links led to it.

    Each link is read by a descriptor of its own, so none that takes its place meanwhile.
    """
    place = path
    for count in range(_MOST_LINKS):
        try:
            # A FIFO would wait for a writer.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            return os.open(place, flags), count > 0
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        link = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            owner = os.fstat(link).st_uid
            if not links:
                raise PrivateFileError(f"{path} is a link, and none is followed here: remove it")
            if owner not in {0, os.geteuid()}:
                raise PrivateFileError(
                    f"{path} is a link of account {owner}, neither of this one ({os.geteuid()}) "
                    "nor of root: name the file itself"
                )
            place = place.parent / os.readlink("", dir_fd=link)
        finally:
            os.close(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _check(path: Path, found: os.stat_result, *, group: bool, owned: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PrivateFileError(f"{path} is no file")
    mode = stat.S_IMODE(found.st_mode)
    if mode & (0o007 if group else 0o077):
        raise PrivateFileError(
            f"other accounts can use {path} (mode {mode:04o}): chmod 600 {path}; for a mounted "
            "Kubernetes secret, defaultMode: 0400"
        )
    if owned and found.st_uid not in {0, os.geteuid()}:
        raise PrivateFileError(
            f"{path} belongs to account {found.st_uid}, neither to this one ({os.geteuid()}) nor "
            f"to root: chown {os.geteuid()} {path}"
        )
