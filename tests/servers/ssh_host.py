"""A host behind real SSH on loopback that really executes what it is asked to."""

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping

import paramiko

from lightrig.instruments.supervisor import is_guard

LOGIN = ("bench", "correct-horse-battery")
_DISCONNECTED = (OSError, EOFError, paramiko.SSHException)


class SshHost:
    """One host: its key, the login it accepts, and what becomes of a command.

    `rewrite` turns the command of a client into what the host's shell executes.
    """

    def __init__(
        self,
        rewrite: Callable[[str], str] = str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.rewrite = rewrite
        self.environment = dict(os.environ if environment is None else environment)
        self.key = paramiko.ECDSAKey.generate()
        self.programs: list[subprocess.Popen[bytes]] = []
        self.guards: list[subprocess.Popen[bytes]] = []
        self.commands: list[str] = []
        self._transports: list[paramiko.Transport] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def known_hosts_line(self, key: paramiko.PKey | None = None) -> str:
        shown = key or self.key
        return f"[127.0.0.1]:{self.port} {shown.get_name()} {shown.get_base64()}\n"

    def hang_up(self) -> None:
        """Every connection ends, as when the host loses its power."""
        for transport in self._transports:
            transport.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for program in (*self.programs, *self.guards):
            with contextlib.suppress(OSError):
                os.killpg(program.pid, 9)
            program.wait()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.key)
            self._transports.append(transport)
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                transport.start_server(server=_Service(self))

    def execute(self, channel: paramiko.Channel, command: str) -> None:
        guard = is_guard(command)  # it may come at any time
        if not guard:
            self.commands.append(command)
        program = subprocess.Popen(
            ["/bin/sh", "-c", command if guard else self.rewrite(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            bufsize=0,
            start_new_session=True,
        )
        (self.guards if guard else self.programs).append(program)
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        entry = threading.Thread(target=self._feed, args=(channel, program), daemon=True)
        complaints = threading.Thread(
            target=self._pump, args=(program.stderr, channel.sendall_stderr), daemon=True
        )
        entry.start()
        complaints.start()
        self._pump(program.stdout, channel.sendall)
        complaints.join()
        status = program.wait()
        with contextlib.suppress(*_DISCONNECTED):
            channel.send_exit_status(status % 256)
            channel.close()
        entry.join(5)
        program.stdout.close()
        program.stderr.close()

    @staticmethod
    def _feed(channel: paramiko.Channel, program: "subprocess.Popen[bytes]") -> None:
        assert program.stdin is not None
        with contextlib.suppress(*_DISCONNECTED):
            while data := channel.recv(1 << 16):
                program.stdin.write(data)
        with contextlib.suppress(OSError):
            program.stdin.close()

    @staticmethod
    def _pump(source: "object", sink: Callable[[bytes], None]) -> None:
        with contextlib.suppress(*_DISCONNECTED):
            while data := os.read(source.fileno(), 1 << 16):  # type: ignore[attr-defined]
                sink(data)


class _Service(paramiko.ServerInterface):
    def __init__(self, host: SshHost) -> None:
        self._host = host

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        right = (username, password) == LOGIN
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(
            target=self._host.execute, args=(channel, command.decode()), daemon=True
        ).start()
        return True
