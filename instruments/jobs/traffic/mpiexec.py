"""Ranks that a launcher of MPI on this machine starts: each connects back to this program.

A launcher connects the stdin of rank 0 only. So the first thing that a rank does is to connect its
stdin and stdout to a socket: a Unix socket, which network namespaces share, or a port that its
server forwards to this machine.
"""

import contextlib
import os
import pty
import queue
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.core.collectives import CollectiveFailedError
from lightrig.instruments.jobs.traffic.rank_launcher import RankPlace, RankProgram, last_lines
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program, ProgramRun
from lightrig.instruments.supervisor import supervised
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.instruments.wire.shell import ForwardingShell, LineListener
from lightrig.instruments.wire.trace import Trace

STARTING = 30_000_000_000
"""Time allowed for all ranks of a lane to start, in ns."""

_LOOK_AGAIN_S = 0.2
_END, _POLL = 2_000_000_000, 10_000_000
"""Time in which it ends by itself, and then by its supervisor, in ns."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a rank connects to this program.

    Attributes:
        attach: first action of the rank, as Python: connect its stdin and stdout.
        connection: waits that many seconds for its connection; None if there is none yet.
        close: has no further connection accepted.
    """

    attach: str
    connection: Callable[[float], socket.socket | None]
    close: Callable[[], None] = lambda: None


def _attach(connect: str) -> str:
    return f"import os,socket;s={connect};os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);s.close();"


def local_meeting(path: str) -> Meeting:
    """Return a Unix socket for a rank in a namespace of this machine."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(1)

    def connection(seconds: float) -> socket.socket | None:
        listening.settimeout(seconds)
        with contextlib.suppress(TimeoutError, BlockingIOError):
            return listening.accept()[0]
        return None

    connect = f"socket.socket(socket.AF_UNIX);s.connect({path!r})"
    return Meeting(_attach(connect), connection, listening.close)


def forwarded_meeting(shell: ForwardingShell) -> Meeting:
    """Return a port of a server behind SSH that is forwarded to this program."""
    came: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()

    def connection(seconds: float) -> socket.socket | None:
        with contextlib.suppress(queue.Empty):
            return came.get(timeout=seconds)
        return None

    port = shell.forward(came.put)
    return Meeting(_attach(f"socket.create_connection(('127.0.0.1',{port}))"), connection)


class Mpiexec(ABC):
    """A launcher on this machine, and the connections of its ranks; see `RankLauncher`.

    Args:
        program: of each rank.
        launcher: `mpiexec` or `mpirun`.
        settings: variables of the environment of all ranks.
        clock: the bench's clock.
    """

    together = True

    def __init__(
        self, program: Program, launcher: Path, settings: Mapping[str, str], clock: Clock
    ) -> None:
        self._program, self._launcher, self._clock = program, launcher, clock
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: list[str] = []
        self._meetings: list[Meeting] = []

    # ---------------------------------------------------------------- a library's words

    @abstractmethod
    def _options(self, places: Sequence[RankPlace]) -> list[str]:
        """Return the launcher's options for all ranks."""

    def _rank_options(self, place: RankPlace) -> list[str]:
        """Return the launcher's options for a rank."""
        return []

    def _command(self, place: RankPlace, attach: str) -> list[str]:
        """Return the command of a rank of this machine that does `attach` first."""
        shell = place.server.local_shell()
        assert shell is not None
        return shell.local_command(self._rank(shell.python, attach))

    def _meeting(self, place: RankPlace, number: int) -> Meeting:
        """Return where rank `number` connects to this program."""
        return local_meeting(str(Path(self._folder.name) / str(number)))

    def _took(self, line: str) -> None:
        """Take a line that the launcher has printed."""
        self._printed.append(line)

    def _advice(self) -> list[tuple[str, str]]:
        """Return further details of an error: not all ranks have started."""
        return []

    # --------------------------------------------------------------------------- common

    def start(self, places: Sequence[RankPlace]) -> dict[str, RankProgram]:
        """Start all ranks; see `RankLauncher`."""
        self._folder = TemporaryFolder()
        try:
            self._launch(places)
            sockets = self._connections(places)
        except BaseException:
            self.stop()
            raise
        return {
            place.rank: self._connected(place.rank, connection)
            for place, connection in zip(places, sockets, strict=True)
        }

    def stop(self) -> None:
        """End the launcher, and with it its helpers and ranks that have not ended yet."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            self._await_end(process)
            process.stdin.close()  # its supervisor ends it, and all that it has started
            self._await_end(process)
            if not _ended(process):  # what has ended still looks for what is left behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._reader.join(_END / 1e9)
        meetings, self._meetings = self._meetings, []
        for each in meetings:
            each.close()
        if meetings:
            self._folder.cleanup()

    def _await_end(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = self._clock.now() + _END
        while not _ended(process) and self._clock.now() < deadline:
            self._clock.sleep(_POLL)

    def _rank(self, python: str, attach: str) -> list[str]:
        return [
            *(python, "-u", "-c", attach + self._program.bootstrap),
            *(self._program.name, str(self._program.version)),
        ]

    def _launch(self, places: Sequence[RankPlace]) -> None:
        self._printed.clear()
        command = [str(self._launcher), *self._options(places)]
        for number, place in enumerate(places):
            meeting = self._meeting(place, number)
            self._meetings.append(meeting)
            command += [*([":"] if number else []), "-n", "1", *self._rank_options(place)]
            command += self._command(place, meeting.attach)
        # A launcher holds back what it prints to a pipe.
        lines, terminal = pty.openpty()
        try:
            self._process = subprocess.Popen(
                supervised(command),
                stdin=subprocess.PIPE,
                stdout=terminal,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._settings},
                # Ranks end with their sockets: Ctrl-C reaches this program first.
                start_new_session=True,
            )
        except BaseException:
            os.close(lines)
            raise
        finally:
            os.close(terminal)
        self._reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._reader.start()

    def _read(self, terminal: int) -> None:
        # The end of a terminal is an OSError.
        with (
            contextlib.suppress(OSError),
            open(terminal, encoding="utf-8", errors="backslashreplace") as lines,
        ):
            for line in lines:
                self._took(line.rstrip())

    def _connections(self, places: Sequence[RankPlace]) -> list[socket.socket]:
        deadline = self._clock.now() + STARTING * len({place.interface for place in places})
        assert self._process is not None
        found: dict[str, socket.socket] = {}
        for place, meeting in zip(places, self._meetings, strict=True):
            seconds = _LOOK_AGAIN_S
            while (connection := meeting.connection(seconds)) is None and seconds:
                if _ended(self._process):
                    self._reader.join(_END / 1e9)  # its last lines
                    seconds = 0
                elif self._clock.now() >= deadline:
                    seconds = 0
            if connection is not None:
                found[place.rank] = connection
        if missing := [place for place in places if place.rank not in found]:
            for each in found.values():
                each.close()
            raise CollectiveFailedError(
                ", ".join(dict.fromkeys(place.server.name for place in missing)),
                f"did not start {len(missing)} of {len(places)} ranks of MPI",
                details=[
                    ("ranks", ", ".join(place.rank for place in missing)),
                    *last_lines(self._printed, self._launcher.name),
                    *self._advice(),
                ],
            )
        return list(found.values())

    def _connected(self, name: str, connection: socket.socket) -> RankProgram:
        clocks = ClockMap(name=name)
        shell, trace = _Connected(connection), Trace(self._clock)
        return RankProgram(
            ProgramRun(name, shell, self._clock, trace, clocks, self._program), clocks
        )


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process has ended; it is not reaped, so its group's number stays its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def relay_to(port: int, channel: socket.socket) -> None:
    """Connect a forwarded connection with a port of this machine, on threads of its own."""

    def relay() -> None:
        with socket.create_connection(("127.0.0.1", port)) as here, channel:
            back = threading.Thread(target=_copy, args=(here, channel), daemon=True)
            back.start()
            _copy(channel, here)
            back.join()

    threading.Thread(target=relay, daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class _Connected:
    """A `Shell` for one program that runs already and has connected to a socket."""

    python = sys.executable

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def start(self, command: Sequence[str], listener: LineListener) -> "_SocketChannel":
        return _SocketChannel(self._connection, listener)

    def close(self) -> None:
        self._connection.close()


class _SocketChannel:
    """Lines over a connected socket; see `LineChannel`."""

    status: int | None = None
    stderr = ""

    def __init__(self, connection: socket.socket, listener: LineListener) -> None:
        self._connection = connection
        self._listener = listener
        self._reader = threading.Thread(target=self._read, name="mpi rank", daemon=True)
        self._reader.start()

    def send(self, text: str) -> None:
        self._connection.sendall(text.encode() + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def _read(self) -> None:
        with self._connection.makefile("rb") as lines, contextlib.suppress(ConnectionError):
            for line in lines:
                self._listener.line(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        self._listener.ended("the rank's program ended")
