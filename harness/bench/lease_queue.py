"""Processes of this machine that wait for leased instruments, in the order in which they came.

A process that waits has a ticket in the folder of leases: a file `N.queue` that lists the keys of
the instruments it wants, and a lock of it by the kernel (`flock`). The lock ends with the process,
however that ends, so a killed process is passed over. Among tickets that share a key the lowest
number comes first. A run that does not queue takes what it finds free.
"""

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

from lightrig.harness.bench.assembly import spec_of
from lightrig.harness.bench.lab_folder import LabFolder, opened
from lightrig.harness.bench.lease import (
    YIELDS,
    LeaseConflictError,
    MachineLocks,
    address_keys,
    owner_text,
)
from lightrig.harness.machine_folder import machine_folder
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Testbed, format_duration
from lightrig.testbeds.json_text import from_json

T = TypeVar("T")

_SUFFIX = ".queue"
_LONGEST_TICKET = 1 << 20
_PAUSE = 200_000_000
"""Between two looks at the lease, in ns."""

_PAUSE_AFTER_A_TRY = 2_000_000_000
"""After one that found the address free and then something else in use, in ns: it asks the lab."""


class Ticket:
    """Place of this process among those that wait; `leave` gives it up.

    Args:
        folder: of leases, which all accounts share.
        keys: of the instruments that are waited for.

    Raises `LabFolderError`.
    """

    def __init__(self, folder: Path, keys: Iterable[str]) -> None:
        self._path = folder
        self._keys = frozenset(keys)
        with opened(folder) as shared:
            self._file, self._number = self._take(shared)

    def _take(self, folder: LabFolder) -> tuple[int, int]:
        draft = f".{uuid.uuid4().hex}.draft"
        file = folder.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            os.fchmod(file, folder.shared_mode)
            os.write(file, json.dumps(sorted(self._keys)).encode())
            # Locked before it has its name: nobody sees a ticket that nobody seems to hold.
            fcntl.flock(file, fcntl.LOCK_EX)
            while True:
                number = max((n for n, _ in _tickets(folder)), default=0) + 1
                with contextlib.suppress(FileExistsError):
                    descriptor = folder.descriptor
                    os.link(draft, _name(number), src_dir_fd=descriptor, dst_dir_fd=descriptor)
                    return file, number
        except BaseException:
            os.close(file)
            raise
        finally:
            folder.remove(draft)

    def waiting(self) -> tuple[int, int]:
        """Return how many processes wait for any of the same instruments before and after this."""
        before = after = 0
        with opened(self._path) as folder:
            for number, name in _tickets(folder):
                if number != self._number and (keys := _keys_of_living(folder, name)):
                    before += number < self._number and not self._keys.isdisjoint(keys)
                    after += number > self._number and not self._keys.isdisjoint(keys)
        return before, after

    def leave(self) -> None:
        """Give the place up."""
        with contextlib.suppress(OSError), opened(self._path) as folder:
            folder.remove(_name(self._number))
        os.close(self._file)


def waiting_for(folder: Path, keys: Collection[str]) -> int:
    """Return how many processes wait for any of the instruments with these keys.

    folder: of leases. Raises `LabFolderError`.
    """
    with opened(folder) as shared:
        living = [_keys_of_living(shared, name) for _, name in _tickets(shared)]
    return sum(not each.isdisjoint(keys) for each in living)


def _name(number: int) -> str:
    return f"{number:09d}{_SUFFIX}"


def _tickets(folder: LabFolder) -> list[tuple[int, str]]:
    names = folder.names(_SUFFIX)
    return [(int(n.removesuffix(_SUFFIX)), n) for n in names if n.removesuffix(_SUFFIX).isdigit()]


def _keys_of_living(folder: LabFolder, name: str) -> frozenset[str]:
    """Return the keys of a ticket; none of one whose process has ended, which is removed."""
    try:
        file = folder.open(name, os.O_RDONLY)
    except OSError:  # its process has left, or it is no ticket
        return frozenset()
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            found = from_json(os.pread(file, _LONGEST_TICKET, 0))
        except (OSError, ValueError):
            return frozenset()
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()
    else:
        # In a folder with the sticky bit that of another account is theirs to remove.
        with contextlib.suppress(OSError):
            folder.remove(name)
        return frozenset()
    finally:
        os.close(file)


def in_turn(
    testbed: Testbed,
    wait_ns: int,
    attempt: Callable[[], T],
    notify: Callable[[str], None],
    names: Collection[str] = (),
) -> T:
    """Return what `attempt` returns, once the instruments of `testbed` are free and it is our turn.

    names: of the instruments and servers that are wanted; empty for all of the testbed.
    notify: called with who has them, since when, and how many wait, now and when that changes.
    Raises `LeaseConflictError` after `wait_ns`, and what `attempt` raises otherwise.
    """
    clock = SystemClock()
    ends = clock.now() + wait_ns
    names = names or [*testbed.optical_switches, *testbed.servers, *testbed.instruments]
    keys = [key for name in names for key in address_keys(spec_of(testbed, name))]
    locks = MachineLocks(machine_folder())
    ticket = Ticket(machine_folder(), keys)
    shown: object = None
    try:
        while True:
            before, after = ticket.waiting()
            pause, holder = _PAUSE, _holder(locks, testbed, names)
            if not before and not holder:
                try:
                    return attempt()
                except LeaseConflictError as error:
                    pause, holder = _PAUSE_AFTER_A_TRY, str(error).splitlines()[0]
            holder = holder or f"{testbed.name} is free for those that wait before"
            if clock.now() >= ends:
                raise LeaseConflictError(
                    f"{holder}\n"
                    f"  waited    {format_duration(wait_ns)}, and {before} waited before this run\n"
                    "  try       ask them, or wait longer: --queue"
                )
            now = holder, before, after
            if now != shown:
                shown = now
                notify(
                    f"waits for {format_duration(max(0, ends - clock.now()))} at most: {now[0]}; "
                    f"{before + after + 1} wait for it, {before} of them before this run"
                )
            clock.sleep(min(pause, max(1, ends - clock.now())))
    finally:
        ticket.leave()
        clock.close()


def _holder(locks: MachineLocks, testbed: Testbed, names: Iterable[str]) -> str:
    """Return who has an instrument now, by the locks of this machine; empty where all are free."""
    for name in names:
        spec = spec_of(testbed, name)
        for key in sorted(address_keys(spec)):
            owner = locks.holder(key)
            if owner is not None and YIELDS not in owner:  # one that yields does so when asked
                return f"{name} ({spec.address}) is in use by {owner_text(owner)}"
    return ""
