"""Leases between hosts: numbered records in a folder that all of them share (NFS, SMB, CephFS).

The record of instrument K with the number N is the file `K.N.lease`. Making the next number is the
claim: a file system makes a file of one name once, also for two hosts at the same moment. The
number only grows; it is the fencing token. A record that says `released` is free. A host that was
cut off or crashed leaves a record that is no longer renewed: another host takes the next number
after it has watched the record unchanged for a whole term, by its own clock.

The holder renews its record and stops believing in it by its own clock, one margin before another
host may take over: time between hosts is never compared. Before each change of the lab it reads
its record again, and finds there if another host has taken over. No switch knows the number, so
a command that was already sent when the term ended cannot be called back; docs/ownership.md
says what this promises on NFS and what it cannot.
"""

import contextlib
import errno
import json
import os
import select
import signal
import stat
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightrig.harness.bench.lab_folder import explained, file_name, open_folder, opened
from lightrig.harness.bench.lease import LeaseConflictError, LeaseLostError, owner_text
from lightrig.instruments.clock import boot_time
from lightrig.testbeds.json_text import from_json

SECOND = 1_000_000_000
TERM = 30 * SECOND
"""A record that nobody renews for this long may be taken over."""

_RENEWALS = 6
"""Renewals in a term."""

_LONGEST_RECORD = 65_536
_OPENED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO is not waited for

_RECORDS_LEFT = 100
"""Records that are left: a host that looked that many numbers ago must not make one anew."""


@dataclass(frozen=True, slots=True)
class _Record:
    number: int
    path: Path
    data: bytes

    @property
    def fields(self) -> Mapping[str, Any]:
        try:
            found = from_json(self.data)
        except ValueError:  # being written at this moment
            return {}
        return found if isinstance(found, dict) else {}


class SharedFolder:
    """Claims among the hosts that share a folder.

    Args:
        folder: it must be the same one on all hosts, and not cached for writing.
        term: in ns; the same on all hosts.
        machine: this boot of this machine; by default the kernel's id of it.
        ends_stopped: whether a holder on this machine that runs, and has not renewed for a term, is
            ended (SIGKILL) and followed; it must belong to this account.
    """

    def __init__(
        self,
        folder: Path,
        term: int = TERM,
        machine: str | None = None,
        *,
        ends_stopped: bool = False,
    ) -> None:
        self._ends_stopped = ends_stopped
        self._folder = open_folder(folder)
        self._term = term
        self._here = _this_process(machine)

    def claim(self, key: str, owner: Mapping[str, str]) -> "SharedClaim":
        """See `Claimant`; waits for a term where the holder seems to be dead.

        An owner with a `service` follows a holder of that service at once: which one of its
        processes may claim is decided elsewhere.
        """
        name = file_name(key)
        with explained(self._folder):
            while True:
                latest = self._latest(name)
                if latest is not None:
                    self._check_free(latest, owner.get("service"))
                number = 1 if latest is None else latest.number + 1
                path = self._path(name, number)
                fields = {**owner, **self._here}
                # Before the record is there: another host counts its term from a later moment.
                began = boot_time()
                if not self._make(path, fields):
                    continue
                newest = self._latest(name)
                if newest is not None and newest.number > number:
                    continue  # the number had been used and removed long ago
                if latest is not None:
                    _supersede(latest, number)
                self._remove_old(name, number)
                return SharedClaim(path, self._path(name, number + 1), fields, began, self._term)

    def holder(self, key: str) -> Mapping[str, str] | None:
        """Return whose record of the instrument `key` is the last; None where it is free.

        Claims nothing. A host that was cut off may have left the record (see `claim`).
        """
        with explained(self._folder):
            latest = self._latest(file_name(key))
        if latest is None or not (fields := latest.fields):
            return None
        if fields.get("released") or self._runs(fields) is False:
            return None
        return {name: str(value) for name, value in fields.items()}

    def _path(self, name: str, number: int) -> Path:
        return self._folder / f"{name}.{number:09d}.lease"

    def _numbers(self, name: str) -> list[int]:
        found = (path.name.split(".")[-2] for path in self._folder.glob(f"{name}.*.lease"))
        return sorted(int(number) for number in found if number.isdigit())

    def _latest(self, name: str) -> _Record | None:
        numbers = self._numbers(name)
        if not numbers:
            return None
        number = numbers[-1]
        # A listing may be older than what other hosts have made since; a name that is looked
        # up may not.
        while self._path(name, number + 1).exists():
            number += 1
        path = self._path(name, number)
        try:
            return _Record(number, path, _read(path))
        except FileNotFoundError:
            return self._latest(name)

    def _check_free(self, record: _Record, service: str | None) -> None:
        """Return if the record's holder has released it or is dead; else raise the conflict."""
        fields = record.fields
        if fields.get("released") or (service and fields.get("service") == service):
            return
        conflict = LeaseConflictError(owner_text({k: str(v) for k, v in fields.items()}))
        runs = self._runs(fields)
        if runs is False:  # on this machine: nothing to wait for
            return
        if runs and not self._ends_stopped:
            raise conflict
        if runs and fields.get("process") == str(os.getpid()):
            return  # this process held it, and did not renew in time
        # A fresh record is refused at once. An old one, or one of a time to come, proves nothing: a
        # file server may set its clock. So it is watched.
        if 0 <= self._age(record) < self._term:
            raise conflict
        ended = boot_time() + self._term
        pause = threading.Event()
        while boot_time() < ended:
            pause.wait(self._term / _RENEWALS / SECOND / 4)
            try:
                if _read(record.path) != record.data:
                    raise conflict
            except FileNotFoundError:
                return  # another host has gone on; the next number decides
        if runs:
            self._end(fields, conflict)

    def _end(self, fields: Mapping[str, Any], conflict: LeaseConflictError) -> None:
        """End the process of a record, which is stopped; raises `conflict` where it may not be."""
        try:
            process = os.pidfd_open(int(fields["process"]))
        except ProcessLookupError:
            return
        try:
            # The number may be another process's by now; the descriptor stays with one.
            if self._runs(fields):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            # All of its threads end, and with the last one its locks.
            select.select([process], [], [])
        except PermissionError:
            raise conflict from None
        finally:
            os.close(process)

    def _age(self, record: _Record) -> int:
        """Return for how long a record was not written, in ns, by the clock of the file server."""
        probe = self._folder / f".{uuid.uuid4().hex}.now"
        try:
            probe.touch()
            return probe.stat().st_mtime_ns - record.path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0
        finally:
            probe.unlink(missing_ok=True)

    def _runs(self, fields: Mapping[str, Any]) -> bool | None:
        """Whether the process in a record runs; None where this machine cannot know."""
        if any(fields.get(name) != self._here[name] for name in ("boot", "processes")):
            return None
        return _started(str(fields.get("process"))) == fields.get("started")

    def _make(self, path: Path, fields: Mapping[str, Any]) -> bool:
        """Make a record; False if another host has made that number.

        It appears whole, by a link: also where old NFS makes O_EXCL unreliable.
        """
        draft = self._folder / f".{uuid.uuid4().hex}.draft"
        try:
            with opened(self._folder) as folder:
                _write(draft, fields, mode=folder.shared_mode)
            try:
                os.link(draft, path)
            except FileExistsError:
                # The reply to a link that was made may be lost, and the second try refused.
                return draft.stat().st_nlink == 2
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _remove_old(self, name: str, number: int) -> None:
        for old in self._numbers(name):
            if old <= number - _RECORDS_LEFT:
                # With the sticky bit, those of other accounts are theirs to remove.
                with contextlib.suppress(PermissionError):
                    self._path(name, old).unlink(missing_ok=True)


class SharedClaim:
    """The holder's side: a thread renews the record until it is released."""

    def __init__(
        self, path: Path, following: Path, fields: Mapping[str, Any], began: int, term: int
    ) -> None:
        self._path = path
        self._following = following
        self._fields = dict(fields)
        self._term = term
        self._valid_from = began
        self._lost = ""
        self._count = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._renewer = threading.Thread(target=self._renew_on, name="lease", daemon=True)
        self._renewer.start()

    @property
    def number(self) -> int:
        """The fencing token: greater than that of every earlier holder."""
        return int(self._path.name.split(".")[-2])

    def check(self) -> None:
        """See `Claim`."""
        with self._lock:
            if not self._lost:
                self._lost = self._superseded()
            if not self._lost and boot_time() >= self._valid_until():
                self._lost = "its record could not be renewed in time"
            if self._lost:
                raise LeaseLostError(
                    f"the lease {self._path} was lost: {self._lost}\n"
                    "  meaning   another host may use the instrument now, so this run changes "
                    "nothing more, and restores nothing"
                )

    def release(self) -> None:
        """See `Claim`."""
        self._over.set()
        self._renewer.join()
        with self._lock:
            if not self._lost and not self._superseded():
                self._fields["released"] = True
                try:
                    _write(self._path, self._fields)
                except OSError:  # others take it over after a term
                    self._lost = "it could not be released"

    def _valid_until(self) -> int:
        # Others wait for a whole term after the last renewal that they can see.
        return self._valid_from + self._term * (_RENEWALS - 1) // _RENEWALS

    def _renew_on(self) -> None:
        while not self._over.wait(self._term / _RENEWALS / SECOND):
            self.renew()
            if self._lost:
                return

    def renew(self) -> None:
        """Renew the record now, beside the renewals by itself; a lost lease stays lost."""
        with self._lock:
            if not self._lost:
                self._renew()

    def _renew(self) -> None:
        began = boot_time()
        if lost := self._superseded():
            self._lost = lost
            return
        if began >= self._valid_until():
            # Too late: another host may be taking over at this moment.
            self._lost = "its record could not be renewed in time"
            return
        self._count += 1
        self._fields["renewed"] = self._count
        try:
            _write(self._path, self._fields)
        except FileNotFoundError:
            self._lost = "its record was removed"
        except OSError:
            return  # tried again until the term ends
        else:
            self._valid_from = began  # not from now: the write may have taken most of a term

    def _superseded(self) -> str:
        """Return why another host is the holder now; empty if this one still is."""
        try:
            if self._following.exists():
                return f"{self._following.name} is newer"
            # Opened anew, an NFS client asks the server for it; a missing name it may remember.
            if "superseded" in from_json(_read(self._path)):
                return "its record says that another host has taken over"
        except FileNotFoundError:
            return "its record was removed"
        except (OSError, ValueError):
            return ""  # the folder is away, or the record is being written: the term decides
        return ""


def _read(path: Path) -> bytes:
    """Return a record; nothing for what is no regular file. Raises `OSError`."""
    file = os.open(path, os.O_RDONLY | _OPENED)
    try:
        is_record = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, _LONGEST_RECORD) if is_record else b""
    finally:
        os.close(file)


def _write(path: Path, fields: Mapping[str, Any], *, mode: int | None = None) -> None:
    """Write a record, a new one of `mode` if that is stated; raises `OSError`."""
    make = os.O_CREAT | os.O_EXCL if mode is not None else 0
    file = os.open(path, os.O_WRONLY | _OPENED | make, 0o600)
    try:
        facts = os.fstat(file)
        if mode is not None:
            os.fchmod(file, mode)
        elif not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
            raise OSError(errno.EPERM, "is no record of a lease")
        data = json.dumps(dict(fields)).encode()
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))
        os.fsync(file)  # an NFS client sends it to the server now
    finally:
        os.close(file)


def _supersede(record: _Record, number: int) -> None:
    """Tell the former holder, in case that it still runs."""
    fields = record.fields
    if fields and not fields.get("released"):
        with contextlib.suppress(OSError):  # the newer record tells as well
            _write(record.path, {**fields, "superseded": number})


def _this_process(machine: str | None) -> dict[str, str]:
    return {
        "boot": machine or Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "processes": os.readlink("/proc/self/ns/pid"),  # a container has numbers of its own
        "started": _started(str(os.getpid())) or "",
    }


def _started(process: str) -> str | None:
    """Return when a process began, in ticks since the boot; None if it has ended."""
    try:
        text = Path("/proc", process, "stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    if state in {"Z", "X"}:
        with contextlib.suppress(OSError):
            # Threads that end after the first one still hold the locks of the process.
            if len(os.listdir(f"/proc/{process}/task")) > 1:
                return fields[18]
        return None
    return fields[18]
