"""Folders for files of a run, which the next run of the account removes where one was killed.

A folder is locked as long as a process has its lock file open: the kernel gives the lock back when
that process ends, however it does, also one in another namespace of process numbers. So what can
be locked belongs to nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

_PREFIX, _LOCK = "lightrig-", ".lock"
_NEW = f".{_PREFIX}new-"
"""Begins the name of a folder that is not locked yet, and so is not looked at."""

_OPENED = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TemporaryFolder:
    """A new folder for this account alone; `name` is its path. Raises `OSError`.

    Those of runs that were killed are removed first.
    """

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix=_NEW))
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


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this account that no process has locked."""
    for folder in place.glob(f"{_PREFIX}*/"):
        with contextlib.suppress(OSError):  # of another account, or removed meanwhile
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, _OPENED)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
