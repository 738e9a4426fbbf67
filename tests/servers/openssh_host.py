"""This machine behind OpenSSH's server, for the account that runs the tests, and a cable to it."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import paramiko
import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.wire.ssh import SshLogin, SshShell

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PRIVILEGE_SEPARATION = Path("/run/sshd")
_CONFIGURATION = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin yes
SetEnv PATH={programs}:{path}
"""


class OpenSshHost:
    """An `sshd -i` for each connection to a port of loopback.

    Args:
        folder: for its files. A client has its key where `folder` is its home.
        programs: folder that comes first on the path of what is run.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_PATH}")
        if sshd is None:
            pytest.skip("no sshd on this machine")
        (folder / ".ssh").mkdir(mode=0o700)
        host_key, user_key = (paramiko.ECDSAKey.generate() for _ in range(2))
        host_key.write_private_key_file(str(folder / "host_key"))
        user_key.write_private_key_file(str(folder / ".ssh" / "id_ecdsa"))
        (folder / "authorized_keys").write_text(f"{user_key.get_name()} {user_key.get_base64()}\n")
        configuration = folder / "sshd_config"
        configuration.write_text(
            _CONFIGURATION.format(folder=folder, programs=programs, path=_PATH)
        )
        if os.geteuid() == 0:  # as the service of Debian's package does
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self._command = [sshd, "-i", "-f", str(configuration)]
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ends: list[socket.socket] = []
        self._carries = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        (folder / "known_hosts").write_text(
            f"[127.0.0.1]:{self.port} {host_key.get_name()} {host_key.get_base64()}\n"
        )
        self._carrying: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def shell(self) -> SshShell:
        """Log in, by the key in the home."""
        login = SshLogin(self.user, None, self._folder / "known_hosts")
        return SshShell("server0", "127.0.0.1", SystemClock(), port=self.port, login=login)

    def cut(self) -> None:
        """Close every connection at both ends, without a word of SSH."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stop_carrying(self) -> None:
        """Carry nothing any more, not even the end of a connection, as a cable that is pulled."""
        self._carries = False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.cut()
        for carrying in self._carrying:
            carrying.join()
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.terminate()
            process.wait()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with socket.create_server(("127.0.0.1", 0)) as listener:
                ours = socket.create_connection(listener.getsockname())
                theirs, _ = listener.accept()
            with theirs:
                number = theirs.fileno()
                self._processes.append(
                    subprocess.Popen(
                        self._command, stdin=number, stdout=number, stderr=subprocess.DEVNULL
                    )
                )
            self._ends += client, ours
            for pair in ((client, ours), (ours, client)):
                carrying = threading.Thread(target=self._carry, args=pair, daemon=True)
                carrying.start()
                self._carrying.append(carrying)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(1 << 16)) and self._carries:
                sink.sendall(data)
            if self._carries:
                sink.shutdown(socket.SHUT_RDWR)
