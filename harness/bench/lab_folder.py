"""The folder that all accounts of a machine share: leases, and states to be restored.

A lease in an account's home would exclude nobody else. Where the folder is:
`harness.machine_folder`.

Three kinds of folder are used: one of this account or of root that others may not write; one
prepared for a group, whose members trust each other; one with the sticky bit, in which every
account may make files and remove its own alone. Files are opened relative to the folder's
descriptor, and links are not followed.
"""

import contextlib
import hashlib
import os
import pwd
import re
import stat
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from lightrig.harness.machine_folder import FALLBACK, PREPARED, VARIABLE, stated_folder
from lightrig.testbeds import LightrigError

SUFFIX = ".found.json"
"""Ending of the names of saved states."""

_READABLE = 80
_LARGEST = 16 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO does not wait for a writer.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LabFolderError(LightrigError):
    """The shared folder of leases and saved states cannot be used."""


class UntrustedFileError(LightrigError):
    """Raised for a file that another account may have written, or that is no regular file.

    Attributes:
        owner: number of the account that it belongs to.
        foreign: whether that it belongs to another account is all that is wrong.
    """

    def __init__(self, why: str, owner: int, *, foreign: bool) -> None:
        self.owner, self.foreign = owner, foreign
        super().__init__(why)


class LabFolder:
    """A folder of leases and saved states that was checked, used by its descriptor."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._facts = os.fstat(descriptor)

    @property
    def of_group(self) -> bool:
        """Whether the folder was prepared for a group."""
        return self._facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) == stat.S_IWGRP

    @property
    def shared_mode(self) -> int:
        """Mode of locks and leases: who may write the folder may write them."""
        if self._facts.st_mode & stat.S_IWOTH:
            return 0o666
        return 0o660 if self.of_group else 0o600

    def open(self, name: str, flags: int) -> int:
        """Open a file of the folder, not through a link, and do not wait; raises `OSError`."""
        return os.open(name, flags | _FILE, 0o600, dir_fd=self.descriptor)

    def names(self, suffix: str) -> list[str]:
        """Return the sorted names that end with `suffix`."""
        return sorted(name for name in os.listdir(self.descriptor) if name.endswith(suffix))

    def read(self, name: str, owners: Collection[int] = ()) -> bytes:
        """Return the content of a file that this account, root or one of `owners` has written.

        In a folder prepared for a group, also a file of that group. owners: numbers of accounts.
        Raises `UntrustedFileError`, and `OSError` for one that is not there or cannot be read.
        """
        try:
            file = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._untrusted_by_name(name, error) from error
        try:
            facts = os.fstat(file)
            if (why := self._distrust(facts, owners)) is not None:
                foreign = why.startswith("belongs")
                raise UntrustedFileError(why, facts.st_uid, foreign=foreign)
            with open(file, "rb", closefd=False) as opened_file:
                data = opened_file.read(_LARGEST + 1)
        finally:
            os.close(file)
        if len(data) > _LARGEST:
            raise UntrustedFileError("is too large", facts.st_uid, foreign=False)
        return data

    def _distrust(self, facts: os.stat_result, owners: Collection[int]) -> str | None:
        """Return why what a file says is not believed; None if it is."""
        if not stat.S_ISREG(facts.st_mode):
            return "is no regular file"
        if facts.st_nlink > 1:
            return "has another name too (more than one hard link)"
        of_group = self.of_group and facts.st_gid == self._facts.st_gid
        if facts.st_mode & (stat.S_IWOTH if of_group else stat.S_IWOTH | stat.S_IWGRP):
            return f"can be written by other accounts (mode {stat.S_IMODE(facts.st_mode):04o})"
        if (
            of_group
            or facts.st_uid in {0, os.geteuid(), *owners}
            or self._is_this_account(facts.st_uid)
        ):
            return None
        return f"belongs to {account(facts.st_uid)}"

    def _untrusted_by_name(self, name: str, error: OSError) -> UntrustedFileError:
        facts = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        owner = facts.st_uid
        if stat.S_ISLNK(facts.st_mode):
            return UntrustedFileError("is a link", owner, foreign=False)
        if isinstance(error, PermissionError):
            why = f"belongs to {account(owner)} and cannot be read by this account"
            return UntrustedFileError(why, owner, foreign=True)
        return UntrustedFileError(f"cannot be opened: {error.strerror}", owner, foreign=False)

    def _is_this_account(self, owner: int) -> bool:
        """Whether `owner` is how a server of files shows this account: NFS may map root."""
        name = f".{uuid.uuid4().hex}.now"
        try:
            file = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except OSError:
            return False
        try:
            return os.fstat(file).st_uid == owner
        finally:
            os.close(file)
            self.remove(name)

    def write_whole(self, name: str, text: str, *, durable: bool) -> None:
        """Write a file so that a reader sees all of it or the former one; raises `OSError`.

        Only this account may write it, in a folder prepared for a group also its members.

        durable: whether it survives a power failure. The folder is flushed as well: until then a
        crash of the machine may undo the rename.
        """
        draft = f".{uuid.uuid4().hex}.draft"
        file = self.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with open(file, "w", encoding="utf-8") as opened_file:
                os.fchmod(file, self._state_mode(file))
                opened_file.write(text)
                opened_file.flush()
                if durable:
                    os.fsync(file)
            os.replace(draft, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError:
            self.remove(draft)
            raise
        if durable:
            os.fsync(self.descriptor)

    def _state_mode(self, file: int) -> int:
        if not self.of_group:
            return 0o600
        if os.fstat(file).st_gid != self._facts.st_gid:  # a folder without set-group-ID
            try:
                os.fchown(file, -1, self._facts.st_gid)
            except PermissionError:  # this account is no member
                return 0o600
        return 0o660

    def remove(self, name: str) -> None:
        """Remove a file if it is there; raises `OSError`."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def check(self) -> None:
        """Raise `LabFolderError` for a folder in which accounts can undo each other's work."""
        mode, owner = self._facts.st_mode, self._facts.st_uid
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise LabFolderError(
                f"the folder of leases and saved states {self.path} is not used: every account may "
                f"remove and replace files of others in it (mode {stat.S_IMODE(mode):04o}, without "
                f"the sticky bit, as older versions made it){self._remaining()}\n"
                f"  try       {self._mend('chmod 1777')}, while no run goes on"
            )
        # An administrator, or who names the folder, may have given a group one of a member.
        if owner in {0, os.geteuid()} or (self.of_group and self.path != FALLBACK):
            return
        if not self._is_this_account(owner):
            raise LabFolderError(
                f"the folder of leases and saved states {self.path} is not used: it belongs to "
                f"{account(owner)}, who may remove files of others in it{self._remaining()}\n"
                f"  try       {self._mend('chown root')}; or have {PREPARED} made for a group:\n"
                f"            `install -d -m 2770 -g GROUP {PREPARED}`"
            )

    def _mend(self, command: str) -> str:
        also = "" if self._facts.st_uid == 0 or "chown" in command else ", then `chown root` it"
        who = "as its owner" if self._facts.st_uid == os.geteuid() else "as root"
        return f"`{command} {self.path}` {who}{also if who == 'as root' else ''}"

    def _remaining(self) -> str:
        """Return how many saved states are in the folder, and whose."""
        owners = []
        for name in self.names(SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                facts = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
                owners.append(account(facts.st_uid))
        if not owners:
            return ""
        whose = ", ".join(f"{owners.count(owner)} of {owner}" for owner in sorted(set(owners)))
        return (
            f"\n  meaning   it has saved states, {whose}: instruments that may not be as they were "
            "found; they stay there"
        )


@contextlib.contextmanager
def opened(path: Path, *, make: bool = True) -> Iterator[LabFolder]:
    """Open a folder and check it; within, an `OSError` becomes a `LabFolderError`.

    make: whether a folder that does not exist is made, with the sticky bit, for all accounts. One
    that exists keeps its permissions. Raises `LabFolderError` with what to try.
    """
    with explained(path):
        if make:
            _make(path)
        descriptor = _open_folder(path)
        try:
            folder = LabFolder(path, descriptor)
            folder.check()
            yield folder
        finally:
            os.close(descriptor)


def open_folder(path: Path) -> Path:
    """Make `path` where it does not exist, and check that it can be used and written."""
    with opened(path):
        if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
            raise LabFolderError(_sentence(path, "no permission to write"))
    return path


def make_stated_folder() -> None:
    """Make the folder that the environment names, where it names one that does not exist.

    Commands about runs refuse it as mistyped until then. Raises `LabFolderError`.
    """
    if (folder := stated_folder()) is not None and not folder.exists():
        open_folder(folder)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        # Open to all accounts only with the sticky bit, which mkdir may leave out.
        descriptor = _open_folder(path)
        try:
            os.fchmod(descriptor, 0o1777)
        finally:
            os.close(descriptor)


def _open_folder(path: Path) -> int:
    if path.is_symlink():
        raise LabFolderError(
            f"the folder of leases and saved states {path} is not used: it is a link\n"
            f"  try       remove the link, or name the folder itself, {os.path.realpath(path)}"
        )
    return os.open(path, _FOLDER)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Within, an `OSError` becomes a `LabFolderError` that says what to try."""
    try:
        yield
    except OSError as error:
        raise LabFolderError(_sentence(folder, error.strerror or str(error))) from error


def _sentence(folder: Path, why: str) -> str:
    return (
        f"the folder of leases and saved states {folder} cannot be used: {why}\n"
        f"  try       make room or give this account access to it, or name a folder that all "
        f"accounts of this machine share as {VARIABLE}"
    )


def account(number: int) -> str:
    """Return the name of an account, or its number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"account {number}"


def file_name(key: str) -> str:
    """Return a name for files about `key`: readable, and different for different keys."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "_", key).strip("_.")[:_READABLE]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
