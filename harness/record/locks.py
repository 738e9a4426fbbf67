"""Who writes a journal now: a lock on its file, which the kernel ends with its holder.

A few network file systems know no locks. There every run seems to have ended, and recovering
one that has not does no harm: it does the same again when it ends.
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from harness.record.errors import JournalInUseError, RecordError


def lock(file: int) -> None:
    """Take the lock of an open journal, where its file system knows locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_written(journal: Path) -> bool:
    """Whether a process, on this host or another, has `journal` open to write."""
    try:
        with journal.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def locked(journal: Path) -> Iterator[None]:
    """Hold a journal that nobody writes; raises `JournalInUseError` if somebody does."""
    try:
        file = journal.open("rb+")
    except OSError as error:
        raise RecordError(f"{journal}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalInUseError(f"{journal}: its run still goes on") from error
        except OSError:  # no locks here
            pass
        yield
