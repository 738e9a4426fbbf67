"""A simulated server's SSH service: real SSH, whose programs are the probe and a host's tools."""

import contextlib
import logging
import shlex
import socket
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import paramiko

from instruments.clock import Clock, Flight

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


class Waiting:
    """A program that ends when something else happens, such as a server's when its client does."""

    def __init__(self) -> None:
        self._end: Callable[[Outcome], None] | None = None

    def on_end(self, end: "Callable[[Outcome], None]") -> None:
        """Say whom to tell of its end."""
        self._end = end

    def ends(self, outcome: "Outcome") -> None:
        """It ends with `outcome`, `outcome.took` ns from now."""
        if self._end is not None:
            self._end(outcome)


class Outcome(NamedTuple):
    """What a program printed and with what it ended, `took` ns after it was asked for.

    hangs_up: whether the connection ends with it, so that its end is never told.
    waits: told of the end of a program that waits; all else here does not count then.
    """

    stdout: str
    stderr: str = ""
    status: int = 0
    took: int = 0
    hangs_up: bool = False
    waits: Waiting | None = None


CommandRunner = Callable[[Sequence[str]], Outcome]
"""Runs a program to its end; called in the clock's time, so it must not wait."""


def no_such_program(argv: Sequence[str]) -> Outcome:
    """What a shell makes of a program that is not there."""
    return Outcome("", f"sh: {argv[0]}: not found\n", 127)


def another_key() -> str:
    """The public part of a key that nobody has, as a known_hosts file writes it."""
    return str(paramiko.ECDSAKey.generate().get_base64())


class SshPeer:
    """One simulated host behind SSH on loopback.

    Args:
        name: the server's name.
        login: the user and password it accepts.
        start_probe: makes the program that `... lightrig-probe 1` names; None on a host that
            is no server.
        run_command: what becomes of every other command.
        port: where it listens, 0 for any free port.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        login: tuple[str, str],
        start_probe: ProgramFactory | None,
        run_command: CommandRunner = no_such_program,
        *,
        port: int = 0,
    ) -> None:
        self.name = name
        self.host_key = paramiko.ECDSAKey.generate()
        self.login = login
        self.start_probe = start_probe
        self.run_command = run_command
        self.clock = clock
        self._transports: list[paramiko.Transport] = []
        self._listener = socket.create_server(("127.0.0.1", port))
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
        # Both sides number a connection's channels alike: from zero, as they are opened. The
        # client has counted the command; it lands when what follows from it is scheduled.
        flight = self._peer.clock.flight((self._ends, channel.get_id()))
        probe = command.endswith(b"lightrig-probe 1") and self._peer.start_probe is not None
        target = self._probe if probe else self._tool
        threading.Thread(target=target, args=(channel, command, flight), daemon=True).start()
        return True

    def _probe(self, channel: paramiko.Channel, command: bytes, flight: Flight) -> None:
        def write(text: str) -> None:
            data = text.encode() + b"\n"
            flight.sent(len(data))
            try:
                channel.sendall(data)
            except OSError:
                flight.landed(len(data))

        assert self._peer.start_probe is not None
        program = self._peer.start_probe(write)
        flight.landed(len(command))
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

    def _tool(self, channel: paramiko.Channel, command: bytes, flight: Flight) -> None:
        """Run a program in the clock's time, one after another with all that happens there."""
        peer = self._peer

        def end(outcome: Outcome) -> None:
            over = peer.clock.now() + outcome.took
            peer.clock.schedule(over, peer.name, lambda: self._end(channel, flight, outcome))

        def run() -> None:
            outcome = peer.run_command(shlex.split(command.decode()))
            if outcome.waits is None:
                end(outcome)
            else:
                outcome.waits.on_end(end)

        peer.clock.schedule(peer.clock.now(), peer.name, run)
        flight.landed(len(command))

    @staticmethod
    def _end(channel: paramiko.Channel, flight: Flight, outcome: Outcome) -> None:
        """Hand over what a program printed, and its end, which counts as one byte in flight.

        The client discounts the end, and what was printed as a complaint, by closing its flight.
        """
        stdout, stderr = outcome.stdout.encode(), outcome.stderr.encode()
        flight.sent(len(stdout) + len(stderr) + 1)
        try:
            channel.sendall(stdout)
            if outcome.hangs_up:
                channel.get_transport().close()
                return
            channel.sendall_stderr(stderr)
            channel.send_exit_status(outcome.status)
            channel.close()
        except (OSError, EOFError, paramiko.SSHException):
            flight.close()  # the client is gone, and will count nothing any more
