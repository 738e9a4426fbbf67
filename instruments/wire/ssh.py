"""SSH to a server (paramiko); its host key must be known beforehand."""

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial

import paramiko

from lightrig.instruments.clock import Clock, Flight
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.supervisor import BEAT_SECONDS, guard, login_line, needs_guard
from lightrig.instruments.wire.shell import (
    LONGEST_STDERR,
    LineListener,
    LineSplitter,
    end_of_stderr,
)
from lightrig.instruments.wire.ssh_connection import ENDED, SshConnection, SshLogin
from lightrig.testbeds.parts import SshTimeouts

__all__ = ["SshChannel", "SshLogin", "SshShell"]


class SshShell:
    """Programs on a host behind SSH.

    Args:
        instrument: its name in the testbed.
        host: address, or an alias of the configuration of OpenSSH's client.
        clock: the bench's clock.
        port: None for the one that the configuration names, or 22.
        login: credentials and files.
        timeouts: time limits of the connection.
        python: the Python interpreter there.

    Raises:
        UnreachableError: no connection, a host key that is not to be trusted, or no login.
        KnownHostsError: the known host keys cannot be read.
        SshConfigError: the configuration cannot be read.
    """

    def __init__(
        self,
        instrument: str,
        host: str,
        clock: Clock,
        *,
        port: int | None = None,
        login: SshLogin,
        timeouts: SshTimeouts | None = None,
        python: str = "python3",
    ) -> None:
        self.python = python
        self._instrument = instrument
        self._clock = clock
        self._forwarded: dict[int, Callable[[socket.socket], None]] = {}
        self._guard: _Guard | None = None
        self._connect = partial(
            SshConnection,
            *(instrument, host, clock),
            port=port,
            login=login,
            timeouts=timeouts or SshTimeouts(),
        )
        self._connection = self._connect()
        self._further: list[SshConnection] = []
        # Two threads that opened sessions at once could send their requests in another order than
        # that of the numbers, by which a simulated host knows a session too.
        self._opening = threading.Lock()

    def reconnect(self) -> None:
        """Open a connection that has ended anew; programs that were started over it are gone.

        Nothing else does: who goes on has to know that. Raises as the constructor does.
        """
        if self.lost:
            self.close()
            self._guard = None
            self._connection = self._connect()

    @property
    def lost(self) -> bool:
        """Whether the connection has ended; `reconnect` alone opens it again."""
        return not self._connection.transport.is_active()

    def start(self, command: Sequence[str], listener: LineListener) -> "SshChannel":
        transport = self._connection.transport
        text = login_line(command).encode()
        channel = flight = None
        try:
            connection, channel = self._open_session()
            # A simulated host counts the command as landed when it has scheduled its outcome.
            flight = self._clock.flight((connection.ends, channel.get_id()))
            flight.sent(len(text))
            channel.exec_command(text)
        except ENDED as error:
            # A quick program may have ended before the host confirmed that it was started.
            if channel is None or flight is None or not _has_ended(channel):
                if flight is not None:
                    flight.close()
                raise self._unreachable(
                    f"started no program: {error or 'it hung up'}",
                    f"`{self._connection.by_hand}` by hand",
                ) from error
        if self._guard is None and not self._clock.virtual and needs_guard(command):
            self._guard = _Guard(transport)
        return SshChannel(channel, flight, listener)

    def _open_session(self) -> tuple[SshConnection, paramiko.Channel]:
        """Open a session; where sshd permits no more (MaxSessions) the guard gives its own up.

        sshd counts a session for a moment more after its end. Where all are taken, as by programs
        at each of many ports, a further connection has some.
        """
        for _ in range(_MOST_TRIES):
            for connection in (self._connection, *self._further):
                with contextlib.suppress(paramiko.ChannelException), self._opening:
                    return connection, connection.transport.open_session()
            if self._guard is not None:
                self._guard.end()
            self._clock.sleep(_TRY_AGAIN)
        with self._opening:
            if len(self._further) < _MOST_FURTHER:
                self._further.append(self._connect())
            connection = (self._connection, *self._further)[-1]
            return connection, connection.transport.open_session()

    def forward(self, accept: Callable[[socket.socket], None]) -> int:
        transport = self._connection.transport
        try:
            port: int = transport.request_port_forward("127.0.0.1", 0, self._accept)
        except ENDED as error:
            raise self._unreachable(
                f"forwards no port: {error}", "is AllowTcpForwarding on in its sshd_config?"
            ) from error
        self._forwarded[port] = accept
        return port

    def _accept(
        self, channel: paramiko.Channel, origin: tuple[str, int], server: tuple[str, int]
    ) -> None:
        """Take a connection to any forwarded port: a transport has one handler for all of them."""
        self._forwarded[server[1]](channel)

    def close(self) -> None:
        if self._guard is not None:
            self._guard.over.set()
        for connection in (*self._further, self._connection):
            connection.close()
        self._further.clear()

    def _unreachable(self, problem: str, advice: str) -> UnreachableError:
        self.close()
        return UnreachableError(self._instrument, problem, details=[("try", advice)])


def _has_ended(channel: paramiko.Channel) -> bool:
    """Whether the host has sent the exit status of the channel's program."""
    return bool(channel.status_event.is_set() and channel.exit_status >= 0)


_MOST_TRIES, _TRY_AGAIN = 20, 50_000_000
_MOST_FURTHER = 7
"""Connections to a host beside the first; sshd usually permits ten sessions of each."""


class _Guard:
    """Tells the server that this machine is there, which else ends the connection; see `guard`.

    Its thread does without where the server starts no further program.

    Attributes:
        over: whether no more is told.
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self.over = threading.Event()
        self._transport = transport
        self._thread = threading.Thread(target=self._run, name="ssh guard", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, for its session."""
        self.over.set()
        self._thread.join(_STATUS_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            channel = self._transport.open_session()
            channel.exec_command(login_line(guard()).encode())
            while not self.over.wait(BEAT_SECONDS):
                channel.sendall(b"\n")
            channel.shutdown_write()
            channel.status_event.wait(_STATUS_SECONDS)
            channel.close()
        self.over.set()


_STATUS_SECONDS = 2.0
"""Time allowed for the exit status after the end of a program's output, in s."""


class SshChannel:
    """One program on the host."""

    def __init__(self, channel: paramiko.Channel, flight: Flight, listener: LineListener) -> None:
        self._channel = channel
        self._flight = flight
        self._listener = listener
        self._errors = _Stderr(channel)
        self.status: int | None = None
        threading.Thread(target=self._read, name="ssh", daemon=True).start()

    @property
    def stderr(self) -> str:
        return self._errors.end.decode("utf-8", "backslashreplace")

    def send(self, text: str) -> None:
        data = text.encode() + b"\n"
        self._flight.sent(len(data))
        try:
            self._channel.sendall(data)
        except (OSError, EOFError) as error:  # EOFError: the connection is just being lost
            self._flight.landed(len(data))
            raise BrokenPipeError(str(error) or "the connection has ended") from error

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()

    def _read(self) -> None:
        splitter = LineSplitter()
        reason = "the server closed the connection"
        while True:
            try:
                data = self._channel.recv(1 << 16)
            except OSError as error:
                reason = str(error)
                break
            except EOFError:  # the connection is lost as the window is given back
                break
            if not data:
                break
            for line in splitter.lines(data):
                self._listener.line(line)
            self._flight.landed(len(data))
        for line in splitter.rest():
            self._listener.line(line)
        self._errors.finish()
        self._channel.status_event.wait(_STATUS_SECONDS)
        if _has_ended(self._channel):
            self.status = self._channel.exit_status
        self._listener.ended(end_of_stderr(self.stderr) or reason)
        self._flight.close()


class _Stderr(threading.Event):
    """The end of a channel's standard error, read whatever its standard output does.

    A program that fills the window of its standard error would wait for ever, and its caller with
    it. Most programs write nothing there, so that the thread starts with the first bytes: paramiko
    sets this event, on its own thread, when there are some or when there will be none.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        super().__init__()
        self.end = b""
        self._channel = channel
        self._reader: threading.Thread | None = None
        channel.in_stderr_buffer.set_event(self)

    def set(self) -> None:
        super().set()
        if self._reader is None and not (self._channel.eof_received or self._channel.closed):
            self._reader = threading.Thread(target=self._read, name="ssh stderr", daemon=True)
            self._reader.start()

    def finish(self) -> None:
        """Read the rest; called when the channel has ended."""
        if self._reader is not None:
            self._reader.join()
        self._read()

    def _read(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while data := self._channel.recv_stderr(1 << 16):
                self.end = (self.end + data)[-LONGEST_STDERR:]
