"""A simulated server's SSH service: real SSH, whose only program is the probe."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Protocol

import paramiko

from instruments.clock import Clock

_QUIET = "lightrig.simulated.ssh"
"""A log that nobody reads: clients hanging up on a simulated host are no news."""

logging.getLogger(_QUIET).disabled = True


class Program(Protocol):
    """What a client started."""

    def line(self, text: str) -> None:
        """The client wrote a line; what follows from it is scheduled before this returns."""

    def close(self) -> None:
        """The client is gone."""


ProgramFactory = Callable[[Callable[[str], None]], Program]
"""Starts the probe; told how to write a line to the client."""


class SshPeer:
    """One simulated host behind SSH on loopback.

    Args:
        name: the server's name.
        login: the user and password it accepts.
        start_probe: makes the program that `... lightrig-probe 1` names.
    """

    def __init__(
        self, name: str, clock: Clock, login: tuple[str, str], start_probe: ProgramFactory
    ) -> None:
        self.name = name
        self.host_key = paramiko.ECDSAKey.generate()
        self.login = login
        self.start_probe = start_probe
        self.clock = clock
        self._transports: list[paramiko.Transport] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, name=f"sshd {name}", daemon=True).start()

    def known_hosts_line(self) -> str:
        """What a client's known_hosts file must say to trust this host."""
        host, port = self.address
        return f"[{host}]:{port} {self.host_key.get_name()} {self.host_key.get_base64()}"

    def close(self) -> None:
        """Hang up on everybody and stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for transport in self._transports:
            transport.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = paramiko.Transport(connection)
            transport.set_log_channel(_QUIET)
            transport.add_server_key(self.host_key)
            self._transports.append(transport)
            try:
                transport.start_server(server=_Service(self, connection))
            except (paramiko.SSHException, EOFError, OSError):
                transport.close()


class _Service(paramiko.ServerInterface):
    def __init__(self, peer: SshPeer, connection: socket.socket) -> None:
        self._peer = peer
        self._ends = frozenset((connection.getsockname(), connection.getpeername()))

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        accepted = (username, password) == self._peer.login
        return paramiko.AUTH_SUCCESSFUL if accepted else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        wanted = kind == "session"
        return (
            paramiko.OPEN_SUCCEEDED if wanted else paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        )

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(
            target=self._run, args=(channel, command.decode()), name="exec", daemon=True
        ).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        if not command.endswith("lightrig-probe 1"):
            channel.sendall_stderr(f"sh: {command.split(maxsplit=1)[0]}: not found\n".encode())
            channel.send_exit_status(127)
            channel.close()
            return

        # Both sides number a connection's channels alike: from zero, as they are opened.
        flight = self._peer.clock.flight((self._ends, channel.get_id()))

        def write(text: str) -> None:
            data = text.encode() + b"\n"
            flight.sent(len(data))
            try:
                channel.sendall(data)
            except OSError:
                flight.landed(len(data))

        program = self._peer.start_probe(write)
        rest = b""
        program_was_sent = False
        while data := channel.recv(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if program_was_sent:
                    program.line(line.decode())
                program_was_sent = True  # the first line is the real probe's source
            flight.landed(len(data))
        program.close()
        flight.close()
