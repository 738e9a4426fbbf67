"""The lease on a testbed: one process at a time may change it."""

import getpass
import os
from pathlib import Path

import filelock

from lightrig.instruments.clock import wall_time
from lightrig.testbeds import LightrigError


class LeaseConflictError(LightrigError):
    """The testbed is in use by another process."""


class Lease:
    """Exclusive use of a testbed, until released or until the process ends.

    The lock is the kernel's (`flock`), so a killed process leaves no stale lease. The note beside
    it is for the error message only; it may be older than the lock.

    Raises `LeaseConflictError`, naming the owner, if another process has the lease.
    """

    def __init__(self, testbed: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = filelock.FileLock(folder / f"{testbed}.lock")
        note = folder / f"{testbed}.holder"
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            owner = note.read_text() if note.exists() else "an unknown process"
            raise LeaseConflictError(f"testbed {testbed} is in use by {owner}") from error
        note.write_text(
            f"{getpass.getuser()}, process {os.getpid()}, since {wall_time():%F %T} UTC"
        )

    def release(self) -> None:
        """Free the testbed for other processes."""
        self._lock.release()
