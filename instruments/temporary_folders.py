"""Folders for files of a run, which the next run of the account removes where one was killed.

A folder is locked as long as a process has its lock file open: the kernel gives the lock back when
that process ends, however it does, also one in another namespace of process numbers. So what can
be locked belongs to nobody. One with results stays until its maker's next run finds it useless.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_PREFIX, _LOCK, _RESULTS = "lightrig-", ".lock", ".results"
_NEW = f".{_PREFIX}new-"
"""Begins the name of a folder that is not locked yet, and so is not looked at."""

_OPENED = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TemporaryFolder:
    """A new folder for this account alone; `name` is its path. Raises `OSError`.

    Those of runs that were killed are removed first.

    Args:
        about: stands in its name.
        has_results: whether it stays after a kill until `remove_abandoned` is asked for it.
    """

    def __init__(self, about: str = "", *, has_results: bool = False) -> None:
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
        shutil.rmtree(self.name, ignore_errors=True)
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
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/"):
        with contextlib.suppress(OSError):  # of another account, or removed meanwhile
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, _OPENED)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not (folder / _RESULTS).exists() or is_useless(folder):
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
