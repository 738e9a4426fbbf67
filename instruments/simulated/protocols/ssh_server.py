"""SSH service of simulated hosts: their commands are the probe and the host's tools."""

import contextlib
import os
import re
import shlex
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple, Protocol

import paramiko

from lightrig.instruments.clock import Clock, Flight
from lightrig.instruments.simulated.protocols.channel_reader import PROBES
from lightrig.instruments.simulated.protocols.ssh_listener import (
    CLIENT_LEFT,
    SshListener,
    SshService,
)
from lightrig.instruments.supervisor import plain_line
from lightrig.testbeds.errors import LightrigError


class Program(Protocol):
    """A running program that reads lines."""

    def line(self, text: str) -> None:
        """Take a line; what follows from it is scheduled before this returns."""

    def close(self) -> None:
        """End, since the client has left."""


ProgramFactory = Callable[[Callable[[str], None]], Program]
"""Starts the probe; its argument writes a line to the client."""


class PendingOutcome:
    """End of a program that depends on another one, such as a server's on its client's."""

    def __init__(self) -> None:
        self._on_end: Callable[[ProgramOutcome], None] | None = None

    def on_end(self, callback: "Callable[[ProgramOutcome], None]") -> None:
        """Call `callback` with the outcome."""
        self._on_end = callback

    def end(self, outcome: "ProgramOutcome") -> None:
        """End the program with `outcome`, `outcome.took` ns from now."""
        if self._on_end is not None:
            self._on_end(outcome)


class ProgramOutcome(NamedTuple):
    """Output and status of a program, `took` ns after it was started.

    hangs_up: whether the connection ends with it, so that its status never arrives.
    pending: the end of a program that waits; then every other field is ignored.
    """

    stdout: str
    stderr: str = ""
    status: int = 0
    took: int = 0
    hangs_up: bool = False
    pending: PendingOutcome | None = None


class LoginShell(Protocol):
    """A real shell of a simulated host, for command lines that are not of the simulated world."""

    def answers(self, argv: Sequence[str]) -> bool:
        """Whether a command is one of the simulated world, and not for this shell."""

    def start(
        self,
        command: str,
        environment: Mapping[str, str],
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
    ) -> "subprocess.Popen[bytes]":
        """Start a command line, or an interactive shell for an empty one."""

    def open_terminal(self) -> tuple[int, int]:
        """Return the descriptors of a new terminal: the client's end, the shell's end."""


CommandRunner = Callable[[Sequence[str]], ProgramOutcome]
"""Runs a program to its end; called in the clock's time, so it must not wait."""


def no_such_program(argv: Sequence[str]) -> ProgramOutcome:
    """Return what a shell prints for a program that does not exist."""
    return ProgramOutcome("", f"sh: {argv[0]}: not found\n", 127)


def unknown_host_key() -> str:
    """Return the public part of a key that no server has, as a known_hosts file writes it."""
    return str(paramiko.ECDSAKey.generate().get_base64())


class SshServer(SshListener):
    """One simulated host behind SSH on loopback.

    Args:
        name: name of the host.
        login: user and password that it accepts.
        start_probe: starts the program of `... lightrig-probe 1`; None on a host that is no
            server.
        run_command: runs every other command.
        port: TCP port, 0 for any free one.
        shell: runs the command lines that are not of the simulated world; None for no shell.
        host_key: as of `SshListener`.
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
        shell: LoginShell | None = None,
        host_key: paramiko.PKey | None = None,
    ) -> None:
        self.name = name
        self.shell = shell
        self.start_probe = start_probe
        self.run_command = run_command
        self.clock = clock
        super().__init__(
            lambda connection: _HostService(self, login, connection),
            port,
            host_key,
        )


_LAST_OUTPUT_S = 2.0
"""Time for the output of children that outlive a program, in s."""

_SFTP = b"exec sftp-server"


_PLAIN = re.compile(r"[\w@%+=:,./ -]*", re.ASCII)
"""A line whose characters, as those of `shlex.quote`, a shell takes as they are."""


def _arguments(line: str) -> list[str]:
    """Split a command line as a shell does; raises ValueError for an open quotation."""
    return line.split() if _PLAIN.fullmatch(line) else shlex.split(line)


class _HostService(SshService):
    def __init__(self, host: SshServer, login: tuple[str, str], connection: socket.socket) -> None:
        super().__init__(login, connection)
        self._host = host
        self._environments: dict[int, dict[str, str]] = {}
        self._terminals: set[int] = set()

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Start a program."""
        # Both sides number a connection's channels alike: from zero, as they are opened. The
        # client has counted the command; it lands when what follows from it is scheduled.
        flight = self._host.clock.flight((self.ends, channel.get_id()))
        # A program of the simulated world ends with its channel.
        program = plain_line(command)
        flight.landed(len(command) - len(program))
        command = program
        probe = command.endswith(b"lightrig-probe 1") and self._host.start_probe is not None
        target = self._probe if probe else self._tool if self._is_tool(command) else self._shell
        self.start_when_accepted(channel, target, channel, command, flight)
        return True

    def check_channel_env_request(
        self, channel: paramiko.Channel, name: bytes, value: bytes
    ) -> bool:
        """Accept what sshd accepts as it is usually installed: the language."""
        if name != b"LANG" and not name.startswith(b"LC_"):
            return False
        environment = self._environments.setdefault(channel.get_id(), {})
        environment[name.decode()] = value.decode()
        return True

    def check_channel_pty_request(self, channel: paramiko.Channel, *_: object) -> bool:
        """Accept a terminal where there is a shell."""
        self._terminals.add(channel.get_id())
        return self._host.shell is not None

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        """Start an interactive shell."""
        return self._start_shell(channel, b"")

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        """Start the file transfer."""
        return name == "sftp" and self._start_shell(channel, _SFTP)

    def _start_shell(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._host.shell is None:
            return False
        flight = self._host.clock.flight((self.ends, channel.get_id()))
        self.start_when_accepted(channel, self._shell, channel, command, flight)
        return True

    def _is_tool(self, command: bytes) -> bool:
        """Whether a command line is one program of the simulated world, and nothing else."""
        if self._host.shell is None:
            return True
        try:
            argv = _arguments(command.decode())
        except ValueError:
            return False
        # Quoting it anew changes a line in which a character has a meaning to the shell.
        plain = shlex.join(argv).encode() == command
        return plain and bool(argv) and self._host.shell.answers(argv)

    def _shell(self, channel: paramiko.Channel, command: bytes, flight: Flight) -> None:
        """Run a command line in the host's shell."""
        flight.landed(len(command))
        environment = self._environments.pop(channel.get_id(), {})
        try:
            _relay(channel, self._host.shell, command.decode(), environment, self._terminals)
        except LightrigError as error:
            with contextlib.suppress(*CLIENT_LEFT):
                channel.sendall_stderr(f"{error}\n".encode())
                channel.send_exit_status(127)
        finally:
            with contextlib.suppress(*CLIENT_LEFT):
                channel.close()
            flight.close()

    def _probe(self, channel: paramiko.Channel, command: bytes, flight: Flight) -> None:
        def write(text: str) -> None:
            data = text.encode() + b"\n"
            flight.sent(len(data))
            try:
                channel.sendall(data)
            except OSError:
                flight.landed(len(data))

        assert self._host.start_probe is not None
        program = self._host.start_probe(write)
        flight.landed(len(command))
        rest = b""
        program_was_sent = False

        def received(data: bytes) -> None:
            nonlocal rest, program_was_sent
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if program_was_sent:
                    program.line(line.decode())
                program_was_sent = True  # the first line is the real probe's source
            flight.landed(len(data))

        def ended() -> None:
            program.close()
            flight.close()

        PROBES.add(channel, received, ended)

    def _tool(self, channel: paramiko.Channel, command: bytes, flight: Flight) -> None:
        """Run a program in the clock's time, like everything else that happens in the world."""
        host = self._host

        def end(outcome: ProgramOutcome) -> None:
            over = host.clock.now() + outcome.took
            host.clock.schedule(over, host.name, lambda: self._end(channel, flight, outcome))

        def run() -> None:
            outcome = host.run_command(_arguments(command.decode()))
            if outcome.pending is None:
                end(outcome)
            else:
                outcome.pending.on_end(end)

        host.clock.schedule(host.clock.now(), host.name, run)
        flight.landed(len(command))

    @staticmethod
    def _end(channel: paramiko.Channel, flight: Flight, outcome: ProgramOutcome) -> None:
        """Send a program's output, and its end, which counts as one byte in flight.

        The client discounts the end, and the standard error, by closing its flight.
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
        except CLIENT_LEFT:
            flight.close()  # the client has left, and will count nothing any more


def _relay(
    channel: paramiko.Channel,
    shell: LoginShell | None,
    command: str,
    environment: Mapping[str, str],
    terminals: set[int],
) -> None:
    """Run a command line and carry its data between its pipes, or its terminal, and the client."""
    assert shell is not None
    writing: IO[bytes]
    reading: list[tuple[IO[bytes], Callable[[bytes], None]]]
    if channel.get_id() in terminals:
        terminals.discard(channel.get_id())
        ours, theirs = shell.open_terminal()
        try:
            process = shell.start(command, environment, theirs, theirs, theirs)
        finally:
            os.close(theirs)
        writing = os.fdopen(os.dup(ours), "wb", 0)
        reading = [(os.fdopen(ours, "rb", 0), channel.sendall)]
    else:
        pipe = subprocess.PIPE
        process = shell.start(command, environment, pipe, pipe, pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        writing = process.stdin
        reading = [
            (process.stdout, channel.sendall),
            (process.stderr, channel.sendall_stderr),
        ]
    threading.Thread(target=_feed, args=(channel, writing, process), daemon=True).start()
    readers = [threading.Thread(target=_carry, args=each, daemon=True) for each in reading]
    for reader in readers:
        reader.start()
    status = process.wait()
    for reader in readers:
        reader.join(_LAST_OUTPUT_S)
    with contextlib.suppress(*CLIENT_LEFT):
        channel.send_exit_status(status if status >= 0 else 128 - status)


def _feed(
    channel: paramiko.Channel, writing: IO[bytes], process: "subprocess.Popen[bytes]"
) -> None:
    """Write what the client sends to the program, until the client ends it or leaves."""
    with contextlib.suppress(*CLIENT_LEFT, ValueError), writing:
        while data := channel.recv(1 << 16):
            writing.write(data)
            writing.flush()
    transport = channel.get_transport()
    if transport is None or not transport.is_active():
        process.kill()


def _carry(stream: IO[bytes], send: Callable[[bytes], None]) -> None:
    """Send what the program writes, until it closes its end."""
    # The end of a terminal is an OSError.
    with contextlib.suppress(*CLIENT_LEFT), stream:
        while data := os.read(stream.fileno(), 1 << 16):
            send(data)
