"""Lines of the kernel's log (/dev/kmsg), each with two times between which the kernel wrote it.

A record has a stamp of the kernel's local clock, in whole microseconds, which is not
CLOCK_MONOTONIC: the two differ by an offset that all records of a session bound together (see
`instruments.servers.host.kernel_messages`). One record alone was written after the last read that
found nothing, and before it was read.

Not so a line that its author did not end with a newline: the kernel shows it when the next one
comes, since it may be continued (kernel/printk/printk_ringbuffer.c, `prb_commit`). It comes with
others then, as their first, which has no earliest time for this reason.
"""

from __future__ import annotations

import errno
import os
import re
import select
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from lightrig.instruments.servers.programs.probe_events import Refused
from lightrig.instruments.servers.programs.server_clock import now, slewed

__all__ = ["KernelLog", "KernelLogFile", "KernelRecord", "masked"]

_PATH = "/dev/kmsg"
_LONGEST_RECORD = 8192  # CONSOLE_EXT_LOG_MAX of kernel/printk/internal.h
_PERIOD_MS = 10
_MOST_RECORDS = 1 << 14
_LONGEST_TEXT = 1000

_HINT = re.compile(
    "(?i)://|token|pass|secret|key|credential|bearer|basic|_|eyJ|AKIA|ASIA|glpat|xox"
)
_SECRET = re.compile(
    r"""(?ix)
    (?<= :// ) [^\s/@:]* : [^\s/@]+ (?= @ )                        # login in an address
    | \b (?: gh[pousr]_ | glpat- | xox[abprs]- | hf_ ) [\w-]{8,}   # tokens by their beginning
    | \b (?-i: AKIA | ASIA ) [0-9A-Z]{16} \b
    | \b eyJ [\w-]+ \. [\w-]+ (?: \. [\w-]* )?                    # JSON Web Token, RFC 7519
    | (?<= bearer \s ) \S+ | (?<= basic \s ) [\w+/=]{8,}
    | (?P<name> [\w.-]* (?: token | passw(?:or)?d | passphrase | passwd | secret | api[_-]?key
        | access[_-]?key | credential ) s? (?: [_-] \w+ )* ["']? \s* [=:] \s* )
        (?: "[^"]*" | '[^']*' | \S+ )
    """
)


class KernelRecord(NamedTuple):
    """A line of the kernel's log; sent as a JSON list.

    `stamp_us` is the kernel's. It was written between `earliest`, null where that is not known,
    and `latest`, when `slewed` was what replies report under this name.
    """

    sequence: int
    priority: int
    stamp_us: int
    earliest: int | None
    latest: int
    slewed: int
    text: str


def masked(text: str) -> str:
    """Return a text with `***` for what looks like a secret.

    Anybody may write into the log who may write /dev/kmsg, and drivers print their parameters.
    """
    if _HINT.search(text) is None:
        return text
    return _SECRET.sub(lambda found: (found.group("name") or "") + "***", text)


class KernelLog:
    """Records since the log was opened, until they are taken.

    Args:
        read: returns the next record; raises `BlockingIOError` where there is none, and `OSError`
            with EPIPE where the ring has overwritten the next ones.
    """

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._reading = threading.Lock()
        self._records: list[KernelRecord] = []
        self._sequence: int | None = None
        self._empty: int | None = None
        self._lost = self._left_out = 0
        self._skipping = False
        self._since = now()

    def skip(self) -> None:
        """Read what is there already: the number of its last record tells later losses."""
        self._skipping = True
        self.read()
        self._skipping = False
        self._since = self._empty or self._since

    def read(self) -> None:
        """Read all records that are there."""
        with self._reading:
            came: list[KernelRecord] = []
            while True:
                before = now()
                try:
                    record = self._read()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno != errno.EPIPE:
                        raise
                    continue  # the next record's number says how many were lost
                self._add(record, came)
            if len(came) > 1:
                came[0] = came[0]._replace(earliest=None)
            space = max(_MOST_RECORDS - len(self._records), 0)
            self._records += came[:space]
            self._left_out += len(came) - len(came[:space])
            self._empty = before

    def take(self) -> dict[str, Any]:
        """Return the records since the last call, and how many are missing; forget them."""
        with self._reading:
            taken = {
                "records": self._records,
                "lost": self._lost,
                "left_out": self._left_out,
                "since": self._since,
                "read": self._empty,
            }
            self._records, self._lost, self._left_out = [], 0, 0
            self._since = self._empty or self._since
            return taken

    def _add(self, record: bytes, came: list[KernelRecord]) -> None:
        arrived = now()
        head, _, body = record.decode("utf-8", "replace").partition(";")
        priority, sequence, stamp_us = (int(each) for each in head.split(",")[:3])
        previous, self._sequence = self._sequence, sequence
        if self._skipping:
            return
        if previous is not None:
            self._lost += max(sequence - previous - 1, 0)
        text = masked(body.partition("\n")[0])[:_LONGEST_TEXT]
        times = (self._empty, arrived, slewed())
        came.append(KernelRecord(sequence, priority, stamp_us, *times, text))


class KernelLogFile:
    """The kernel's log of this machine, read by a thread until it is closed.

    Raises `Refused` where this account may not read it.
    """

    def __init__(self, path: str = _PATH) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Refused("not_readable", str(error)) from None
        self.log = KernelLog(lambda: os.read(self._file, _LONGEST_RECORD))
        self._stop = threading.Event()
        try:
            self.log.skip()
        except OSError as error:  # Linux checks dmesg_restrict at the opening or here
            os.close(self._file)
            raise Refused("not_readable", str(error)) from None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def messages(self) -> dict[str, Any]:
        """Return what has come since the last call."""
        self.log.read()
        return self.log.take()

    def close(self) -> None:
        """End the thread, and close the file."""
        self._stop.set()
        self._thread.join()
        os.close(self._file)

    def _follow(self) -> None:
        waiting = select.poll()
        waiting.register(self._file, select.POLLIN)
        while not self._stop.is_set():
            waiting.poll(_PERIOD_MS)
            self.log.read()
