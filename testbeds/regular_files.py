"""Files from outside: read only where they are regular ones, of a size that can be read.

Below a folder that other accounts can write, no link is followed: it could name any file that the
reader may read, and the reader may copy that to where they can read it.
"""

import errno
import io
import os
import stat
from pathlib import Path

MOST_BYTES = 1 << 26
"""No description, list or record of a run that is read as a whole is longer."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Linux opens a folder that may be passed through, also where it may not be listed."""


class LinkError(OSError):
    """A file, or a folder above it, is a link where none is followed."""


def open_regular(path: str | Path, below: str | Path | None = None) -> io.BufferedReader:
    """Open a file for reading, without waiting for the writer of a named pipe.

    below: a folder that `path` is relative to; no link below it is followed.

    Raises:
        LinkError: a part of the path below the folder is a link.
        OSError: it cannot be opened, or is a folder, a named pipe or a device.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags) if below is None else _open_below(below, path, flags)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(0, "is no regular file", str(path))


def _open_below(folder: str | Path, path: str | Path, flags: int) -> int:
    """Open `path` below `folder`, each part relative to the folder that was opened before it.

    The parts are opened one by one because O_NOFOLLOW concerns the last part alone.
    """
    *parents, last = Path(path).parts
    within = os.open(folder, _FOLDER)
    try:
        for number, part in enumerate([*parents, last]):
            if part == os.pardir:
                raise OSError(0, "leads out of its folder", str(Path(folder, path)))
            kind = flags if number == len(parents) else _FOLDER
            try:
                opened = os.open(part, kind | os.O_NOFOLLOW, dir_fd=within)
            except OSError as error:
                at = Path(folder, *Path(path).parts[: number + 1])
                if error.errno in (errno.ELOOP, errno.ENOTDIR) and at.is_symlink():
                    text = "is no regular file but a link, and none is followed here"
                    raise LinkError(0, text, str(at)) from error
                raise OSError(error.errno, error.strerror, str(at)) from error
            os.close(within)
            within = opened
    except BaseException:
        os.close(within)
        raise
    return within


def read_regular(
    path: str | Path, most: int | None = MOST_BYTES, below: str | Path | None = None
) -> bytes:
    """Return the content of a file of at most `most` bytes, or of any size.

    below: as for `open_regular`.

    Raises:
        LinkError: a part of the path below the folder is a link.
        OSError: it cannot be read, is no regular file, or is longer.
    """
    with open_regular(path, below) as file:
        content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise OSError(0, f"is longer than {most >> 20} MiB", str(path))
    return content
