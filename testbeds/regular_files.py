"""Files from outside: read only where they are regular ones, of a size that can be read."""

import errno
import io
import os
import stat
from pathlib import Path

MOST_BYTES = 1 << 26
"""No description, list or record of a run that is read as a whole is longer."""


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a file for reading, without waiting for the writer of a named pipe.

    Raises:
        OSError: it cannot be opened, or is a folder, a named pipe or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(0, "is no regular file", str(path))


def read_regular(path: str | Path, most: int | None = MOST_BYTES) -> bytes:
    """Return the content of a file of at most `most` bytes, or of any size.

    Raises:
        OSError: it cannot be read, is no regular file, or is longer.
    """
    with open_regular(path) as file:
        content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise OSError(0, f"is longer than {most >> 20} MiB", str(path))
    return content
