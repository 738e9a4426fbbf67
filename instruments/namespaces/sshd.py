"""SSH servers of network namespaces: OpenSSH's `sshd`, reached over a port of loopback.

The port is listened on outside of the namespace. Each connection is handed to an `sshd -i`, which
runs inside; so nothing connects the namespace's network with this machine's.
"""

import contextlib
import ctypes
import os
import secrets
import shlex
import shutil
import socket
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from lightrig.instruments.loopback import LoopbackListener
from lightrig.instruments.namespaces import machine
from lightrig.instruments.namespaces.machine_setup import MachineError, prepare_machine
from lightrig.instruments.namespaces.namespaces import enter_command, is_root
from lightrig.testbeds.errors import LightrigError

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIBCRYPT = ("libcrypt.so.1", "libcrypt.so.2")
_SALT_LENGTH = 16
_BANNER_SECONDS = 30.0
"""How long a server may take to greet a client; 0.05 s is usual."""
_END_SECONDS = 5.0


class SshdError(LightrigError):
    """A namespace cannot have an SSH server here."""


def sshd_program() -> str:
    """Return the path of `sshd`; `SshdError` says why there can be no SSH server here."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
    if program is None:
        raise SshdError(
            "no sshd on this machine\n  try       apt install openssh-server (its service need "
            "not run)"
        )
    if not is_root():
        raise SshdError(
            "the sshd of a namespace needs root with CAP_SYS_ADMIN: it logs users in\n"
            "  try       sudo"
        )
    return program


class NamespaceSshd:
    """An SSH server of a namespace, until closed or until the namespace ends.

    Args:
        pid: a process in the namespace.
        host: its host name.
        login: the one user and the password; the user has root's rights there.
        port: TCP port on loopback, 0 for any free one.

    Attributes:
        address: host and port of the server on this machine.
        host_key: type and public part of the host key, as known_hosts files write it.

    Raises:
        SshdError: without root or `sshd`, a step of the setup failed, or a first client got no
            greeting; with the last line that the server wrote.
        OSError: the port is taken.
    """

    def __init__(self, pid: int, host: str, login: tuple[str, str], port: int = 0) -> None:
        program = sshd_program()
        self.host_key = _prepare(pid, host, login, program)
        command = [program, "-i", "-f", str(machine.SSHD_CONFIG), "-E", str(machine.SSHD_LOG)]
        self._command = enter_command(pid, command, host)
        self._connections: list[subprocess.Popen[bytes]] = []
        self._try_client(pid, host)
        self._listener = LoopbackListener(self._serve, port)
        self.address = self._listener.address

    def known_hosts_line(self) -> str:
        """Return the line of a client's known_hosts file that trusts this server."""
        host, port = self.address
        return f"[{host}]:{port} {self.host_key}"

    def close(self) -> None:
        """End the connections and stop listening."""
        self._listener.close()
        for process in self._connections:
            process.terminate()
        for process in self._connections:
            _wait_or_kill(process)

    def _start(self, connection: socket.socket, stderr: int) -> "subprocess.Popen[bytes]":
        with connection:
            return subprocess.Popen(
                self._command,
                stdin=connection.fileno(),
                stdout=connection.fileno(),
                stderr=stderr,
                # Ctrl-C reaches the whole process group; clients may still need the server.
                start_new_session=True,
            )

    def _try_client(self, pid: int, host: str) -> None:
        """Connect once without the port; `SshdError` unless the server sends a greeting."""
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile() as stderr:
            process = self._start(theirs, stderr.fileno())
            ours.settimeout(_BANNER_SECONDS)
            try:
                if ours.recv(1):
                    return
                end = "closed the connection"
            except TimeoutError:
                end = f"sent nothing for {_BANNER_SECONDS:.0f} s"
            finally:
                ours.close()
                _wait_or_kill(process)
            stderr.seek(0)
            written = stderr.read()
        with contextlib.suppress(OSError):
            written = Path(f"/proc/{pid}/root{machine.SSHD_LOG}").read_bytes() + written
        lines = written.decode("utf-8", "backslashreplace").splitlines()
        last = next(filter(str.strip, reversed(lines)), f"exit status {process.returncode}")
        raise SshdError(
            f"the SSH server of {host} {end} before it greeted a client: {last}\n"
            f"  started as {shlex.join(self._command)}"
        )

    def _serve(self, connection: socket.socket) -> None:
        process = self._start(connection, subprocess.DEVNULL)
        self._connections = [each for each in self._connections if each.poll() is None]
        self._connections.append(process)


def _wait_or_kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _prepare(pid: int, host: str, login: tuple[str, str], sshd: str) -> str:
    """Give the namespace a machine's files; return the public host key."""
    user, password = login
    interpreter = str(Path(sys.executable).parent)
    try:
        return prepare_machine(
            pid,
            host=host,
            user=user,
            password=_crypt(password),
            sshd={"program": sshd, "path": f"{interpreter}:{_SYSTEM_PATH}"},
        )
    except MachineError as error:
        raise SshdError(f"{host} cannot have an SSH server: {error}") from error


def _crypt(password: str) -> str:
    """Return the SHA-512 hash of a password as crypt(3) writes it, with the library of `sshd`."""
    for name in _LIBCRYPT:
        try:
            function = ctypes.CDLL(name).crypt
            break
        except OSError:
            continue
    else:
        raise SshdError(f"this machine has none of {', '.join(_LIBCRYPT)}, which sshd uses")
    alphabet = string.ascii_letters + string.digits
    salt = "".join(secrets.choice(alphabet) for _ in range(_SALT_LENGTH))
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    hashed: bytes | None = function(password.encode(), f"$6${salt}$".encode())
    if hashed is None or not hashed.startswith(b"$6$"):
        raise SshdError("the crypt library of this machine has no SHA-512")
    return hashed.decode("ascii")
