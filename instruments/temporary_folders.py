"""Folders for files of a run, which the next run of the account removes where one was killed.

A folder is locked as long as a process has its lock file open: the kernel gives the lock back when
that process ends, however it does, also one in another namespace of process numbers. So what can
be locked belongs to nobody. One with results stays until its maker's next run finds it useless.
The lock file is made first and removed last, so that a kill at any moment between leaves a folder
that the next run removes; one whose making was cut off, or the last step of its removal, has a
name that begins with a dot, and goes an hour later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from lightrig.instruments.clock import wall_time

_PREFIX, _LOCK, _RESULTS = "lightrig-", ".lock", ".results"
_NEW = f".{_PREFIX}new-"
"""Begins the name of a folder that is not locked yet, and so is not looked at for an hour."""
_MADE_S = 3600.0

_looked_at: set[tuple[int, int, str]] = set()
"""Processes, of which forks are others, their accounts and folders in which they have looked."""

_OPENED = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TemporaryFolder:
    """A new folder for this account alone; `name` is its path. Raises `OSError`.

    Those of runs that were killed are removed before the first one of a process.

    Args:
        about: stands in its name.
        has_results: whether it stays after a kill until `remove_abandoned` is asked for it.
    """

    def __init__(self, about: str = "", *, has_results: bool = False) -> None:
        looked_at = os.getpid(), os.geteuid(), tempfile.gettempdir()
        if looked_at not in _looked_at:  # there may be hundreds, and of a bench's folders too
            _looked_at.add(looked_at)
            remove_abandoned()
        made = Path(tempfile.mkdtemp(prefix=f"{_NEW}{about and f'{about}-'}"))
        if has_results:
            (made / _RESULTS).touch()
        self._lock = os.open(made / _LOCK, _OPENED | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.name = str(made.with_name(_PREFIX + made.name.removeprefix(_NEW)))
        made.rename(self.name)

    def cleanup(self) -> None:
        """Remove the folder."""
        with contextlib.suppress(OSError):
            _remove(Path(self.name))
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cleanup()


def remove_abandoned(is_useless: Callable[[Path], bool] = lambda _folder: False) -> None:
    """Remove the folders of this account that no process has locked.

    is_useless: asked for each one of those with results, which stays where it is not.
    """
    temporary = Path(tempfile.gettempdir())
    for folder in (*temporary.glob(f"{_PREFIX}*/"), *temporary.glob(f"{_NEW}*/")):
        with contextlib.suppress(OSError):  # of another account, or removed meanwhile
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if folder.name.startswith(_NEW) and wall_time().timestamp() - found.st_mtime < _MADE_S:
                continue
            _remove_unlocked(folder, is_useless)


def _remove_unlocked(folder: Path, is_useless: Callable[[Path], bool]) -> None:
    try:
        lock = os.open(folder / _LOCK, _OPENED)
    except FileNotFoundError:
        if folder.name.startswith(_NEW):  # else a person has made it
            folder.rmdir()
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (folder / _RESULTS).exists() or is_useless(folder):
            _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, its lock file last; where something cannot be removed, both stay."""
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        elif each.name != _LOCK:
            with contextlib.suppress(OSError):
                each.unlink()
    if [each.name for each in folder.iterdir()] == [_LOCK]:
        # A kill before the last step leaves it as one whose making was cut off.
        if not folder.name.startswith(_NEW):
            folder = folder.rename(folder.with_name(_NEW + folder.name.removeprefix(_PREFIX)))
        (folder / _LOCK).unlink()
        folder.rmdir()
