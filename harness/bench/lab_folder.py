"""The folder that all accounts of a machine share: leases, and states to be restored.

A lease in an account's home would exclude nobody else, and a state there could not be restored by
the colleague who comes first in the morning. The folder is `$LIGHTRIG_STATE` where that is set,
else `/var/lib/lightrig` where an administrator has made it, else `/var/tmp/lightrig`, which is
made on first use. It survives a restart of the machine, as `/run` and `/tmp` may not.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from lightrig.testbeds import LightrigError

VARIABLE = "LIGHTRIG_STATE"
PREPARED = Path("/var/lib/lightrig")
FALLBACK = Path("/var/tmp/lightrig")  # noqa: S108 - shared on purpose; see docs/ownership.md

_READABLE = 80


class LabFolderError(LightrigError):
    """The shared folder of leases and saved states cannot be used."""


def machine_folder() -> Path:
    """Return the folder of this machine; `open_folder` makes it."""
    if stated := os.environ.get(VARIABLE):
        return Path(stated)
    return PREPARED if PREPARED.is_dir() else FALLBACK


def open_folder(folder: Path) -> Path:
    """Make `folder` where it does not exist, for all accounts, and check that it can be written.

    A folder that exists keeps its permissions: an administrator may give it to a group. Raises
    `LabFolderError` with what to try.
    """
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Open to all accounts from the first moment: another one may come at the same time.
        mask = os.umask(0)
        try:
            folder.mkdir(exist_ok=True)
        finally:
            os.umask(mask)
        if not stat.S_ISDIR(folder.lstat().st_mode) and not folder.is_dir():
            raise NotADirectoryError(20, "is not a folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LabFolderError(_sentence(folder, "no permission to write"))
    return folder


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Within, an `OSError` becomes a `LabFolderError` that says what to try."""
    try:
        yield
    except OSError as error:
        raise LabFolderError(_sentence(folder, error.strerror or str(error))) from error


def _sentence(folder: Path, why: str) -> str:
    return (
        f"the folder of leases and saved states {folder} cannot be used: {why}\n"
        f"  try       make room or give this account access to it, or name a folder that all "
        f"accounts of this machine share as {VARIABLE}"
    )


def file_mode(folder: Path) -> int:
    """Return the mode of files in `folder`: whoever may write the folder may write them."""
    return 0o666 if folder.stat().st_mode & stat.S_IWOTH else 0o660


def file_name(key: str) -> str:
    """Return a name for files about `key`: readable, and different for different keys."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "_", key).strip("_.")[:_READABLE]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def write_whole(path: Path, text: str, *, durable: bool) -> None:
    """Write a file so that a reader sees all of it or the former one; raises `OSError`.

    durable: whether it survives a power failure. The folder is flushed as well: until then a
    crash of the machine may undo the rename.
    """
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        with open(file, "w", encoding="utf-8") as opened:
            os.fchmod(file, file_mode(path.parent))
            opened.write(text)
            opened.flush()
            if durable:
                os.fsync(file)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        parent = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
