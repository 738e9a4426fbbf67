"""Files from outside: read only where they are regular ones, of a size that can be read.

A folder of a group, setgid and writable for it (mode 2770), has in it what all its members may
change, whatever the umask of each: a run of one member could not be published beside another's.

Below a folder that other accounts can write, no link is followed: it could name any file that the
reader may read, and the reader may copy that to where they can read it. A writer could replace or
remove any file of its own for them.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    return open(_regular(descriptor, path), "rb")


def _regular(descriptor: int, path: str | Path) -> int:
    """Return a descriptor of a regular file; close any other, and raise `OSError`."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(0, "is no regular file", str(path))


@contextmanager
def folder_below(root: str | Path, path: str | Path = "", *, make: bool = False) -> Iterator[Path]:
    """A folder below `root`, by a path that leads to it whatever takes its name's place meanwhile.

    The path is that of an open descriptor, for the time of the context: what is written, renamed
    or removed directly in it is in the folder that was looked at, and nowhere else.

    Args:
        root: the folder that `path` is relative to; it may be reached by links.
        path: of the folder; no link below `root` is followed.
        make: whether folders that are missing are made.

    Raises:
        LinkError: a part of the path below `root` is a link.
        OSError: it is not there, or is no folder; any error within names the folder's own path.
    """
    name = Path(root, path)
    if make:
        _make(root)
    descriptor = _open_below(root, path, _FOLDER, make=make)
    pinned = Path("/proc/self/fd", str(descriptor))
    try:
        yield pinned
    except OSError as error:
        if isinstance(error.filename, str) and Path(error.filename).is_relative_to(pinned):
            error.filename = str(name / Path(error.filename).relative_to(pinned))
        raise
    finally:
        os.close(descriptor)


def open_to_change(root: str | Path, path: str | Path) -> io.BufferedRandom:
    """Open a file below `root` for reading and writing; no link below `root` is followed.

    Raises:
        LinkError: a part of the path below `root` is a link.
        OSError: it cannot be opened, or is no regular file.
    """
    descriptor = _open_below(root, path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    return open(_regular(descriptor, Path(root, path)), "r+b")


def open_to_append(root: str | Path, path: str | Path, *, make: bool = False) -> io.BufferedWriter:
    """Open a file below `root` to lock or lengthen it, and make it where it is missing.

    make: whether folders that are missing are made too.

    Raises:
        LinkError: a part of the path below `root` is a link.
        OSError: it cannot be opened, or is no regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    if make:
        _make(root)
    descriptor = _open_below(root, path, flags, make=make)
    return open(_regular(descriptor, Path(root, path)), "ab")


def make_folder(folder: str | Path) -> None:
    """Make a folder and those above it that are missing; what a group shares, with its rights.

    Raises:
        OSError: it cannot be made, or is there and no folder.
    """
    path = Path(folder)
    for each in reversed([path, *path.parents]):
        if each.is_dir():
            continue
        try:
            each.mkdir()
        except FileExistsError:
            if not each.is_dir():
                raise
            continue
        descriptor = os.open(each, _FOLDER | os.O_NOFOLLOW)
        try:
            give_to_group(descriptor, os.stat(each.parent).st_mode)
        finally:
            os.close(descriptor)


def give_to_group(descriptor: int, folder: int) -> None:
    """Give the group of a shared folder the rights of the owner to a file or folder in it.

    folder: the mode of the folder. Nothing changes below another one, nor what another account
    owns, whose group may not be this one either.
    """
    if ~folder & (stat.S_ISGID | stat.S_IWGRP):
        return
    found = os.fstat(descriptor)
    wanted = stat.S_IMODE(found.st_mode) | (found.st_mode & stat.S_IRWXU) >> 3
    if found.st_uid == os.geteuid() and wanted != stat.S_IMODE(found.st_mode):
        os.chmod(f"/proc/self/fd/{descriptor}", wanted)  # fchmod takes no descriptor of a path


def _make(folder: str | Path) -> None:
    with suppress(FileExistsError):  # what is no folder is refused where it is opened
        make_folder(folder)


def _open_below(folder: str | Path, path: str | Path, flags: int, *, make: bool = False) -> int:
    """Open `path` below `folder`, each part relative to the folder that was opened before it.

    The parts are opened one by one because O_NOFOLLOW concerns the last part alone.
    make: whether folders that are missing are made.
    """
    if not Path(path).parts:
        return os.open(folder, flags)
    *parents, last = Path(path).parts
    within = os.open(folder, _FOLDER)
    try:
        for number, part in enumerate([*parents, last]):
            if part == os.pardir:
                raise OSError(0, "leads out of its folder", str(Path(folder, path)))
            kind = flags if number == len(parents) else _FOLDER
            made = False
            try:
                if make and kind & os.O_DIRECTORY:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=within)
                        made = True
                opened = os.open(part, kind | os.O_NOFOLLOW, 0o666, dir_fd=within)
            except OSError as error:
                at = Path(folder, *Path(path).parts[: number + 1])
                if error.errno in (errno.ELOOP, errno.ENOTDIR) and at.is_symlink():
                    text = "is no regular file but a link, and none is followed here"
                    raise LinkError(0, text, str(at)) from error
                raise OSError(error.errno, error.strerror, str(at)) from error
            if made or kind & os.O_CREAT:
                give_to_group(opened, os.fstat(within).st_mode)
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
