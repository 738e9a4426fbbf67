"""SSH service of simulated hosts: their commands are the probe and the host's tools."""

import shlex
import socket
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import paramiko

from lightrig.instruments.clock import Clock, Flight
from lightrig.instruments.simulated.protocols.ssh_listener import (
    CLIENT_LEFT,
    SshListener,
    SshService,
)


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
        self.start_probe = start_probe
        self.run_command = run_command
        self.clock = clock
        super().__init__(
            f"sshd {name}", lambda connection: _HostService(self, login, connection), port
        )


class _HostService(SshService):
    def __init__(self, host: SshServer, login: tuple[str, str], connection: socket.socket) -> None:
        super().__init__(login, connection)
        self._host = host

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Start a program."""
        # Both sides number a connection's channels alike: from zero, as they are opened. The
        # client has counted the command; it lands when what follows from it is scheduled.
        flight = self._host.clock.flight((self.ends, channel.get_id()))
        probe = command.endswith(b"lightrig-probe 1") and self._host.start_probe is not None
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

        assert self._host.start_probe is not None
        program = self._host.start_probe(write)
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
        """Run a program in the clock's time, like everything else that happens in the world."""
        host = self._host

        def end(outcome: ProgramOutcome) -> None:
            over = host.clock.now() + outcome.took
            host.clock.schedule(over, host.name, lambda: self._end(channel, flight, outcome))

        def run() -> None:
            outcome = host.run_command(shlex.split(command.decode()))
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
