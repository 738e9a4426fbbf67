"""The lease on instruments: one process at a time may use each of them.

The lease belongs to the instrument, whatever file or name it is used by, and lies where all
accounts of the machine meet (`harness.bench.lab_folder`). The lock is the kernel's (`flock`), so a
killed process leaves no stale lease. filelock is not used: its lock files belong to one account,
it cuts them to nothing before it has the lock, and it falls back to locks that outlive a kill.

Its key is the instrument's address before it is opened, then its serial: two files may give one
instrument different names, and one instrument may be reached at two addresses (TL1 and NETCONF of
one switch). So an address is leased before anything is contacted, and the serial as soon as it is
known, before anything is changed.

Between hosts, a folder that all of them share holds a record beside the lock: see
`harness.bench.shared_lease`.
"""

import contextlib
import datetime
import fcntl
import getpass
import json
import os
import socket
import stat
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from lightrig.harness.bench.lab_folder import (
    LabFolder,
    LabFolderError,
    account,
    file_name,
    open_folder,
    opened,
)
from lightrig.instruments.clock import wall_time
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.wire.tcp import is_placeholder
from lightrig.testbeds import InstrumentSpec, LightrigError, ServerSpec, SwitchSpec
from lightrig.testbeds.json_text import from_json

_LONGEST_RECORD = 4096
_UNKNOWN = "an unknown process"
_TRIES, _BETWEEN_TRIES = 3, 0.005
"""Of a lock that another process has; between them, in seconds."""

YIELDS = "yields"
"""Key of an owner's record: its process frees the instrument for any other within 2 s."""

_WISH = ".wanted"

_YIELD_TRIES, _BETWEEN_YIELD_TRIES = 160, 0.025
"""Of a lock whose owner yields; twice the time that the owner may take."""


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
        text = f"{text}, since {owner['since']}, for {owner['purpose']}"
        return f"{text}, until {owner['until']} as stated" if owner.get("until") else text
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
        """See `Claimant`. An owner that yields is asked to, unless `owner` yields as well."""
        name = f"{file_name(key)}.lock"
        tries = 0
        with opened(self._folder) as folder, contextlib.ExitStack() as stack:
            while True:
                file = _open_lock(folder, name)
                try:
                    # A lock of the kernel, not a file that exists: it ends with its process,
                    # however that ends.
                    _lock(file)
                except BlockingIOError:
                    found = parse_owner(os.pread(file, _LONGEST_RECORD, 0))
                    os.close(file)
                    if YIELDS not in found or YIELDS in owner or tries == _YIELD_TRIES:
                        raise LeaseConflictError(owner_text(found)) from None
                    if not tries:
                        wish = stack.enter_context(_open_wish(folder, key))
                    tries += 1
                    # Shared, as several may wait; it ends with its process, as the lock does.
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(wish, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    threading.Event().wait(_BETWEEN_YIELD_TRIES)
                    continue
                except BaseException:
                    os.close(file)
                    raise
                # A cleaner of temporary files may have removed it: then others lock another one.
                if _is_at(file, folder.path / name):
                    break
                os.close(file)
            _write_record(file, owner)
        return _MachineClaim(file, self._folder / name)

    def is_wanted(self, key: str) -> bool:
        """Whether a process waits for the owner of `key` to yield."""
        with opened(self._folder) as folder:
            try:
                file = folder.open(f"{file_name(key)}{_WISH}", os.O_RDONLY)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(file)
        return False

    def holder(self, key: str) -> Mapping[str, str] | None:
        """Return who has the instrument `key`; None where it is free. Claims nothing."""
        with opened(self._folder) as folder:
            try:
                file = folder.open(f"{file_name(key)}.lock", os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return parse_owner(os.pread(file, _LONGEST_RECORD, 0))
            finally:
                os.close(file)
        return None


@contextlib.contextmanager
def _open_wish(folder: LabFolder, key: str) -> Iterator[int]:
    """Open the file whose lock asks the owner of `key` to yield; it is unlocked at the end."""
    file = _open_lock(folder, f"{file_name(key)}{_WISH}")
    try:
        yield file
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Lock a file for this process alone; raises `BlockingIOError` where another has it locked.

    Those that wait look at it by a shared lock for some microseconds, so it is tried again.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        threading.Event().wait(_BETWEEN_TRIES)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_lock(folder: LabFolder, name: str) -> int:
    """Open the lock file of any account; raises `LabFolderError` for what is no lock file.

    Without O_CREAT first: Linux refuses that for files of others in some shared folders.
    """
    while True:
        try:
            file = folder.open(name, os.O_RDWR)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                _make_lock(folder, name)
            continue
        except OSError as error:
            facts = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
            raise _no_lock(folder, name, facts) from error
        if not stat.S_ISREG((facts := os.fstat(file)).st_mode):
            os.close(file)
            raise _no_lock(folder, name, facts)
        return file


def _no_lock(folder: LabFolder, name: str, facts: os.stat_result) -> LabFolderError:
    return LabFolderError(
        f"{folder.path / name}, which belongs to {account(facts.st_uid)}, is no lock that this "
        "account can take\n"
        "  try       ask them what it is; root may remove it while no run goes on"
    )


def _make_lock(folder: LabFolder, name: str) -> None:
    """Make a lock file, under another name first: nobody opens it before all accounts may."""
    draft = f".{uuid.uuid4().hex}.draft"
    file = folder.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.fchmod(file, folder.shared_mode)
        # A rename would replace the file of a process that was quicker, and its lock with it.
        os.link(draft, name, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
    finally:
        folder.remove(draft)
        os.close(file)


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(file), path.lstat())
    return False


def _write_record(file: int, owner: Mapping[str, str]) -> None:
    facts = os.fstat(file)
    if facts.st_nlink > 1:
        return  # it may be a file of other use, to which somebody has given this name too
    data = json.dumps(dict(owner)).encode()[:_LONGEST_RECORD]
    # It is for the message of a conflict only: a full disk does not refuse a lease. Spaces cover
    # the one before: ext4 writes what was emptied to the disk, and a later emptying waits for that.
    with contextlib.suppress(OSError):
        os.pwrite(file, data.ljust(min(facts.st_size, _LONGEST_RECORD)), 0)


class _MachineClaim:
    def __init__(self, file: int, path: Path) -> None:
        self._file: int | None = file
        self._path = path

    def check(self) -> None:
        """See `Claim`: the kernel's lock excludes no one who locks another file of that name."""
        if self._file is not None and not _is_at(self._file, self._path):
            raise LeaseLostError(
                f"the lock {self._path} was removed or replaced by somebody\n"
                "  meaning   another process may use the instrument now, so this run changes "
                "nothing more, and restores nothing"
            )

    def release(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


class Lease:
    """Exclusive use of instruments, until released or until the process ends.

    Args:
        claimants: where instruments are claimed, nearest first: this machine, then other hosts.
        purpose: what the instruments are used for, for the message that others get.
        service: of several processes, one of which holds the lease; empty for none.
        hold_ns: for how long the instruments will be held, as others are told; 0 where that is not
            known.
        yields: whether the process frees the instruments within 2 s for any other (`is_wanted`).
    """

    def __init__(
        self,
        claimants: Iterable[Claimant],
        purpose: str,
        service: str = "",
        hold_ns: int = 0,
        *,
        yields: bool = False,
    ) -> None:
        self._claimants = tuple(claimants)
        self._owner = this_owner(purpose) | ({"service": service} if service else {})
        if yields:
            self._owner[YIELDS] = "to any other process"
        if hold_ns:
            until = wall_time() + datetime.timedelta(seconds=hold_ns / 1e9)
            self._owner["until"] = f"{until:%F %T} UTC"
        self._claims: dict[str, list[Claim]] = {}

    def take(self, instrument: str, keys: Iterable[str]) -> list[str]:
        """Claim the keys of an instrument that are not claimed already, and return these.

        `instrument` is its name and address, for the message. Raises `LeaseConflictError`, which
        names the owner; what was claimed before stays claimed.
        """
        # In one order everywhere: two processes that want the same two keys do not get one each.
        new = sorted(set(keys) - self._claims.keys())
        for key in new:
            claims = self._claims[key] = []
            try:
                for claimant in self._claimants:
                    claims.append(claimant.claim(key, self._owner))  # noqa: PERF401 - see below
            except BaseException as error:
                del self._claims[key]
                # This machine's claim was made first and ends last, so that no process here asks
                # other hosts in between.
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

    def is_wanted(self) -> bool:
        """Whether a process of this machine waits for this lease, which yields, to be released."""
        return any(
            place.is_wanted(key)
            for place in self._claimants
            if isinstance(place, MachineLocks)
            for key in tuple(self._claims)
        )

    def check(self) -> None:
        """Raise `LeaseLostError` unless every claim still holds; before each change."""
        for claims in self._claims.values():
            for claim in claims:
                claim.check()

    def release(self) -> None:
        """Free all instruments."""
        self.give_back(list(self._claims))


_PORTS = {
    "tl1": 3082,
    "ssh": 22,
    "netconf": 830,
    "restconf": 80,
    "gnmi": 8080,
    "scpi": 5025,
    "simserv": 2049,
}
"""Usual ports, so that an address with and one without its port are the same."""

_NO_SERIAL = frozenset(("", "0", "unknown", "n/a", "none"))


def address_keys(spec: SwitchSpec | InstrumentSpec | ServerSpec) -> frozenset[str]:
    """Return the keys of an instrument's address; none for a placeholder.

    Names are looked up, so that a name, an alias and the number are one address.
    """
    if not spec.address:
        return frozenset()
    try:
        endpoint = Endpoint.parse(spec.address, None)
    except AddressError:  # opening it will say so
        return frozenset()
    if endpoint.scheme == "netns" or (endpoint.host and is_placeholder(endpoint.host)):
        return frozenset()
    if endpoint.scheme == "serial":
        return frozenset({f"serial {os.path.realpath(endpoint.resource)}"})
    if endpoint.scheme == "visa":
        return frozenset({f"visa {endpoint.resource.upper()}"})
    port = endpoint.port or _PORTS.get(endpoint.scheme, 0)
    return frozenset(f"address {host} port {port}" for host in _resolved(endpoint.host))


def _resolved(host: str) -> Iterable[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return {host.lower().rstrip(".")}  # connecting to it will say what is wrong
    return {str(address[4][0]) for address in found}


def identity_key(identity: Identity, address: str | None) -> str:
    """Return the key of the instrument that reports `identity`.

    An instrument without a serial number is known by its address. So are simulated ones, whose
    serial numbers repeat: each lab that is served is another one.
    """
    made = f"{identity.manufacturer} {identity.model}"
    if identity.serial.strip().lower() in _NO_SERIAL:
        return f"{made} at {address or 'no address'}"
    if identity.simulated:
        return f"{made} serial {identity.serial} at {address or 'no address'}"
    return f"{made} serial {identity.serial}"
