"""The lease on instruments: one process at a time may use each of them.

The lease belongs to the instrument, whatever file or name it is used by, and lies where all
accounts of the machine meet (`harness.bench.lab_folder`). The lock is the kernel's (`flock`), so a
killed process leaves no stale lease. filelock is not used: its lock files belong to one account,
it cuts them to nothing before it has the lock, and it falls back to locks that outlive a kill.

Between hosts, a folder that all of them share holds a record beside the lock: see
`harness.bench.shared_lease`.
"""

import contextlib
import fcntl
import getpass
import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from lightrig.harness.bench.lab_folder import explained, file_mode, file_name, open_folder
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import LightrigError
from lightrig.testbeds.json_text import from_json

_LONGEST_RECORD = 4096
_UNKNOWN = "an unknown process"


class LeaseConflictError(LightrigError):
    """An instrument is in use by another process."""


class LeaseLostError(LightrigError):
    """The lease on an instrument has ended: another host may use it now."""


class Claim(Protocol):
    """Exclusive use of one instrument at one place."""

    def check(self) -> None:
        """Raise `LeaseLostError` unless the claim still holds."""

    def release(self) -> None:
        """Free the instrument for others."""


class Claimant(Protocol):
    """A place at which instruments are claimed."""

    def claim(self, key: str, owner: Mapping[str, str]) -> Claim:
        """Claim the instrument `key` at once; raises `LeaseConflictError` with its owner."""


def this_owner(purpose: str) -> dict[str, str]:
    """Return the record of this process as an owner."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        user = f"account {os.getuid()}"
    return {
        "user": user,
        "process": str(os.getpid()),
        "host": socket.gethostname(),
        "since": f"{wall_time():%F %T} UTC",
        "purpose": purpose,
    }


def owner_text(owner: Mapping[str, str]) -> str:
    """Return an owner as part of a sentence."""
    try:
        text = f"{owner['user']}, process {owner['process']} on {owner['host']}"
        return f"{text}, since {owner['since']}, for {owner['purpose']}"
    except KeyError:
        return _UNKNOWN


def parse_owner(data: bytes) -> Mapping[str, str]:
    """Return the owner in a record; empty for a record that cannot be read."""
    try:
        found = from_json(data)
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


class MachineLocks:
    """Claims among the processes of this machine, of all accounts.

    Args:
        folder: that all accounts share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = open_folder(folder)

    def claim(self, key: str, owner: Mapping[str, str]) -> Claim:
        """See `Claimant`."""
        path = self._folder / f"{file_name(key)}.lock"
        with explained(self._folder):
            while True:
                file = self._open(path)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found = parse_owner(os.pread(file, _LONGEST_RECORD, 0))
                    os.close(file)
                    raise LeaseConflictError(owner_text(found)) from None
                except BaseException:
                    os.close(file)
                    raise
                # A cleaner of temporary files may have removed it: then others lock another one.
                with contextlib.suppress(FileNotFoundError):
                    if os.fstat(file).st_ino == path.stat().st_ino:
                        break
                os.close(file)
            _write_record(file, owner)
        return _MachineClaim(file)

    def _open(self, path: Path) -> int:
        """Open the lock file of any account.

        Without O_CREAT first: Linux refuses that for files of others in some shared folders.
        """
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags)
            with contextlib.suppress(FileExistsError):
                # Made under another name: nobody opens it before all accounts may.
                draft = path.with_suffix(f".{os.getpid()}.draft")
                file = os.open(draft, flags | os.O_CREAT, 0o666)
                try:
                    os.fchmod(file, file_mode(self._folder))
                    os.link(draft, path)
                finally:
                    draft.unlink(missing_ok=True)
                    os.close(file)


def _write_record(file: int, owner: Mapping[str, str]) -> None:
    data = json.dumps(dict(owner)).encode()[:_LONGEST_RECORD]
    # It is for the message of a conflict only: a full disk does not refuse a lease.
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, data, 0)


class _MachineClaim:
    def __init__(self, file: int) -> None:
        self._file: int | None = file

    def check(self) -> None:
        """Do nothing: the kernel's lock ends with this process only."""

    def release(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


class Lease:
    """Exclusive use of instruments, until released or until the process ends.

    Args:
        claimants: where instruments are claimed, nearest first: this machine, then other hosts.
        purpose: what the instruments are used for, for the message that others get.
    """

    def __init__(self, claimants: Iterable[Claimant], purpose: str) -> None:
        self._claimants = tuple(claimants)
        self._owner = this_owner(purpose)
        self._claims: dict[str, list[Claim]] = {}

    def take(self, instrument: str, keys: Iterable[str]) -> list[str]:
        """Claim the keys of an instrument that are not claimed already, and return these.

        `instrument` is its name and address, for the message. Raises `LeaseConflictError`, which
        names the owner; what was claimed before stays claimed.
        """
        new = sorted(set(keys) - self._claims.keys())
        for key in new:
            claims = self._claims[key] = []
            try:
                for claimant in self._claimants:
                    claims.append(claimant.claim(key, self._owner))  # noqa: PERF401 - see below
            except BaseException as error:
                del self._claims[key]
                for claim in reversed(claims):
                    claim.release()
                if isinstance(error, LeaseConflictError):
                    raise LeaseConflictError(
                        f"{instrument} is in use by {error}\n"
                        f"  try       ask them, or wait until it is free"
                    ) from None
                raise
        return new

    def give_back(self, keys: Iterable[str]) -> None:
        """Free some keys."""
        for key in keys:
            for claim in reversed(self._claims.pop(key, [])):
                claim.release()

    def check(self) -> None:
        """Raise `LeaseLostError` unless every claim still holds; before each change."""
        for claims in self._claims.values():
            for claim in claims:
                claim.check()

    def release(self) -> None:
        """Free all instruments."""
        self.give_back(list(self._claims))
