"""Program that transfers the files of a simulated server: SFTP on stdin and stdout.

    sftp_program.py ROOT HOME

It runs in the server's sealed namespace. Once its modules are loaded it makes ROOT its root, so
that the kernel keeps every request below it: `..` ends there, and a link that leads elsewhere finds
nothing. Its working directory is HOME.

It is run as a file of its own and imports nothing of ours, so that it starts in 0.2 s.
"""

import os
import sys

from paramiko import Message, SFTPAttributes, SFTPHandle, SFTPServer, SFTPServerInterface
from paramiko.sftp import SFTP_FAILURE, SFTP_OK


class _Pipes:
    """The standard streams, as the part of an SSH channel that an `SFTPServer` uses."""

    def get_transport(self) -> "_Pipes":
        return self

    def get_name(self) -> str:
        return "stdio"

    def get_log_channel(self) -> str:
        return "sftp"

    def get_hexdump(self) -> bool:
        return False

    def recv(self, size: int) -> bytes:
        return os.read(0, size)

    def send(self, data: bytes) -> int:
        return os.write(1, data)


class _OpenFile(SFTPHandle):
    def __init__(self, descriptor: int, flags: int) -> None:
        super().__init__(flags)
        self._descriptor = descriptor

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes) -> int:
        while data:
            written = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + written, data[written:]
        return SFTP_OK

    def stat(self) -> SFTPAttributes:
        return SFTPAttributes.from_stat(os.fstat(self._descriptor))

    def chattr(self, attr: SFTPAttributes) -> int:
        return _set_attributes(self._descriptor, attr)


class _Files(SFTPServerInterface):
    """The files below the root, each path as the kernel resolves it."""

    def open(self, path: str, flags: int, attr: SFTPAttributes) -> SFTPHandle:
        mode = 0o666 if attr.st_mode is None else attr.st_mode
        return _OpenFile(os.open(path, flags, mode), flags)

    def list_folder(self, path: str) -> list[SFTPAttributes]:
        with os.scandir(path) as entries:
            return [
                SFTPAttributes.from_stat(entry.stat(follow_symlinks=False), entry.name)
                for entry in entries
            ]

    def stat(self, path: str) -> SFTPAttributes:
        return SFTPAttributes.from_stat(os.stat(path))

    def lstat(self, path: str) -> SFTPAttributes:
        return SFTPAttributes.from_stat(os.lstat(path))

    def chattr(self, path: str, attr: SFTPAttributes) -> int:
        return _set_attributes(path, attr)

    def canonicalize(self, path: str) -> str:
        return os.path.realpath(path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def symlink(self, target_path: str, path: str) -> int:
        os.symlink(target_path, path)
        return SFTP_OK

    def remove(self, path: str) -> int:
        os.unlink(path)
        return SFTP_OK

    def rename(self, oldpath: str, newpath: str) -> int:
        # The protocol's own renaming never replaces a file.
        return SFTP_FAILURE if os.path.lexists(newpath) else self.posix_rename(oldpath, newpath)

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        os.replace(oldpath, newpath)
        return SFTP_OK

    def mkdir(self, path: str, attr: SFTPAttributes) -> int:
        os.mkdir(path, 0o777 if attr.st_mode is None else attr.st_mode)
        return SFTP_OK

    def rmdir(self, path: str) -> int:
        os.rmdir(path)
        return SFTP_OK


class _Server(SFTPServer):
    def _process(self, t: int, request_number: int, msg: Message) -> None:
        """Answer a request; where the system refuses it, with that reason."""
        try:
            super()._process(t, request_number, msg)
        except OSError as error:
            self._send_status(request_number, self.convert_errno(error.errno))


def _set_attributes(file: str | int, attributes: SFTPAttributes) -> int:
    """Set what `attributes` names of a file, which is a path or a descriptor."""
    if attributes.st_size is not None:
        os.truncate(file, attributes.st_size)
    if attributes.st_uid is not None and attributes.st_gid is not None:
        os.chown(file, attributes.st_uid, attributes.st_gid)
    if attributes.st_mode is not None:
        os.chmod(file, attributes.st_mode)
    if attributes.st_atime is not None and attributes.st_mtime is not None:
        os.utime(file, (attributes.st_atime, attributes.st_mtime))
    return SFTP_OK


def main() -> None:
    """Answer requests until stdin ends."""
    root, home = sys.argv[1:]
    os.chroot(root)
    os.chdir(home)
    pipes = _Pipes()
    _Server(pipes, "sftp", None, _Files).start_subsystem("sftp", None, pipes)


if __name__ == "__main__":
    main()
