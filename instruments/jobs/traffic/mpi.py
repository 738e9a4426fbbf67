"""Collectives by MPICH: one `mpiexec` on this machine, and one program per rank.

MPICH and mpi4py come as wheels. In namespaces of this machine `mpiexec` starts every rank itself;
a rank takes requests over a Unix socket, which network namespaces share. On servers behind SSH
its helpers (`hydra_pmi_proxy`) are started over SSH; they and the ranks reach this machine
through forwarded ports, so that the fabric carries the ranks' own data only.
"""

import contextlib
import importlib
import importlib.metadata
import os
import pty
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO, Any, TypeAlias

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.core.collectives import CollectiveFailedError, Exchange
from lightrig.instruments.jobs.traffic.rank_programs import (
    OPERATION_TIMEOUT,
    RankProgram,
    RankPrograms,
    rank_shares,
)
from lightrig.instruments.jobs.traffic.server_routes import DEVICE
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program, ProgramRun
from lightrig.instruments.wire.shell import ForwardingShell, LineListener, end_of_stderr
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds.errors import LightrigError

MPI = Program(
    "lightrig-mpi",
    "the rank's program",
    1,
    ("server_clock", "replies", "checked_rounds", "gloo_program", "mpi_program"),
    "mpich and mpi4py",
    programs.__name__,
)

STARTING = 30_000_000_000
"""Time allowed for all ranks to start, in ns."""

_LOOK_AGAIN_S = 0.2
_END_S = 2.0
_LAST_LINES = 6

_ATTACH = (
    "import os,socket;s=socket.socket(socket.AF_UNIX);s.connect({path!r});"
    "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);s.close();"
)
"""First action of a rank: connect stdin and stdout; mpiexec connects the stdin of rank 0 only."""

_ATTACH_REMOTELY = (
    "import os,socket;s=socket.create_connection(('127.0.0.1',{port}));"
    "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);s.close();"
)

_LAUNCH = "HYDRA_LAUNCH: "
_ALL_LAUNCHED = "HYDRA_LAUNCH_END"
_CONTROL_PORT = "--control-port"
_FIRST_HOST = IPv4Address("127.0.1.1")

RankPlaces: TypeAlias = Sequence[tuple[LinuxServer, str]]


class NoMpiError(LightrigError):
    """MPI is unavailable on this machine."""


def mpiexec() -> Path:
    """Return the path of MPICH's launcher; `NoMpiError` names what to install."""
    advice = "try pip install 'lightrig[mpi]'"
    try:
        importlib.import_module("mpi4py")
        importlib.metadata.version("mpich")
    except ImportError as error:
        raise NoMpiError(f"there is no MPI ({error}); {advice}") from error
    found = Path(sys.executable).with_name("mpiexec")
    if not found.exists():
        raise NoMpiError(f"MPICH has no launcher at {found}; {advice}")
    return found


class MpiRunner(RankPrograms):
    """Collectives among namespaces of this machine; see `CollectiveRunner` and `TrafficSource`.

    Traffic survives links that are down for a while: TCP retransmits. If an operation takes longer
    than `OPERATION_TIMEOUT`, its ranks give up and are ended.

    MPICH's TCP has one device a process. So a server has a process for each lane: all take part in
    an exchange, and those of the first lane in everything else.

    Args:
        servers: by name.
        clock: the bench's clock.
        interface: the network device with each server's address.
        lanes: devices of further lanes, on which every server has an address as well.
        timeout: of one operation, in ns, after which its rank gives it up: MPI has none.
        launcher: by default MPICH's `mpiexec`.

    Raises `NoMpiError` if MPI is missing, or a server is not on this machine.
    """

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        clock: Clock,
        *,
        interface: str = DEVICE,
        lanes: Sequence[str] = (),
        timeout: int = OPERATION_TIMEOUT,
        launcher: Path | None = None,
    ) -> None:
        super().__init__(clock)
        self._timeout = timeout
        self._mpiexec = launcher or mpiexec()
        remote = [name for name, server in servers.items() if server.local_shell() is None]
        if remote and len(remote) < len(servers):
            raise NoMpiError(f"{', '.join(remote)} are not on this machine, the others are")
        if refused := [name for name in remote if servers[name].forwarding_shell() is None]:
            raise NoMpiError(f"{', '.join(refused)} cannot connect to this machine")
        self._start: Callable[..., MpiJob] = _RemoteJob if remote else LocalMpiJob
        self._servers = servers
        self._interfaces = (interface, *lanes)
        self._started: tuple[str, ...] = ()
        self._job: MpiJob | None = None
        self._settings = {
            # Otherwise ranks of one machine communicate through shared memory.
            "MPIR_CVAR_NOLOCAL": "1",
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            # Each rank sends only to its neighbour in the ring: circuits join no others.
            "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_ring",
        }

    def close(self) -> None:
        """End all ranks."""
        super().close()
        job, self._job = self._job, None
        if job is not None:
            job.close()

    def _exchange_bodies(self, what: Exchange) -> dict[str, dict[str, Any]]:
        shares = rank_shares(what)
        lanes = {(rank, each["lane"]): each for rank, used in shares.items() for each in used}
        return {
            _process(rank, lane): {"lane": lanes.get((rank, lane))}
            for rank in what.ranks
            for lane in range(len(self._interfaces))
        }

    def _join(self, ranks: tuple[str, ...]) -> None:
        """Form one group of `ranks` in this order; processes of the same servers are reused."""
        if any(worker.over for worker in self._workers.values()):
            self.close()
        if ranks == self._joined:
            return
        if set(self._started) != set(ranks) or not self._workers:
            self.close()
            self._start_ranks(ranks)
        self._joined = ()
        lanes = len(self._interfaces)
        members = {
            _process(rank, lane): [lanes * self._started.index(member) + lane for member in ranks]
            for rank in ranks
            for lane in range(lanes)
        }
        self._request_all(
            list(members),
            "join",
            lambda name: {"members": members[name], "timeout_ns": self._timeout},
            2 * self._timeout,
        )
        self._joined = ranks

    def _start_ranks(self, ranks: tuple[str, ...]) -> None:
        places = [(rank, lane) for rank in ranks for lane in range(len(self._interfaces))]
        self._job = job = self._start(
            self._mpiexec,
            [(self._servers[rank], self._interfaces[lane]) for rank, lane in places],
            self._settings,
            self._clock,
        )
        try:
            sockets = job.connections(STARTING * len(self._interfaces))
        except CollectiveFailedError:
            self.close()
            raise
        for place, connection in zip(places, sockets, strict=True):
            name = _process(*place)
            clocks = ClockMap(name=name)
            run = ProgramRun(
                name, _Connected(connection), self._clock, Trace(self._clock), clocks, MPI
            )
            self._workers[name] = RankProgram(run, clocks)
        self._started = ranks
        for answer in self._greet(list(self._workers), STARTING):
            self._tool = str(answer.get("mpi"))


def _process(rank: str, lane: int) -> str:
    """Return the name of a rank's process on a lane: the rank's for the first one."""
    return f"{rank} on lane {lane}" if lane else rank


class MpiJob(ABC):
    """One `mpiexec`, and the connections of its ranks.

    Args:
        places: server and network device of each rank.
        command: `mpiexec` and its arguments.
        output: file for what it prints.
        settings: variables of the environment of all ranks.
    """

    def __init__(
        self,
        places: RankPlaces,
        command: Sequence[str],
        output: IO[bytes] | int,
        settings: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._names = [server.name for server, _ in places]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings},
            # Ranks end with their sockets: Ctrl-C reaches this program first.
            start_new_session=True,
        )

    @abstractmethod
    def _connection(self, number: int) -> socket.socket | None:
        """Wait a moment for the connection of a rank; return None if there is none yet."""

    @abstractmethod
    def _details(self) -> list[tuple[str, str]]:
        """Return the details of an error: not all ranks have started."""

    def connections(self, timeout: int) -> list[socket.socket]:
        """Wait for the connection of each rank; raises `CollectiveFailedError`."""
        deadline = self._clock.now() + timeout
        found: list[socket.socket] = []
        while len(found) < len(self._names):
            connection = self._connection(len(found))
            if connection is not None:
                found.append(connection)
            elif self._process.poll() is not None or self._clock.now() >= deadline:
                for each in found:
                    each.close()
                raise CollectiveFailedError(
                    ", ".join(self._names),
                    f"did not start {len(self._names)} ranks of MPI",
                    details=self._details(),
                )
        return found

    def close(self) -> None:
        """End `mpiexec`, and with it its helpers and ranks that have not ended yet."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _options(number: int, interface: str) -> list[str]:
    """Return the options of `mpiexec` before the command of a rank."""
    return [*([":"] if number else []), "-n", "1", "-env", "FI_TCP_IFACE", interface]


def _rank(python: str, attach: str) -> list[str]:
    """Return the command of a rank that connects its stdin and stdout by `attach` first."""
    return [python, "-u", "-c", attach + MPI.bootstrap, MPI.name, str(MPI.version)]


class LocalMpiJob(MpiJob):
    """Ranks in namespaces of this machine, each with a Unix socket."""

    def __init__(
        self, launcher: Path, places: RankPlaces, settings: Mapping[str, str], clock: Clock
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lightrig-mpi-")
        self._listening = []
        command = [str(launcher), *self._launch_options(places)]
        for number, (server, interface) in enumerate(places):
            path = str(Path(self._folder.name) / str(number))
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
            listening.listen(1)
            listening.settimeout(_LOOK_AGAIN_S)
            self._listening.append(listening)
            shell = server.local_shell()
            assert shell is not None
            command += self._rank_options(number, interface)
            rank = _rank(self._python(shell.python), self._prelude() + _ATTACH.format(path=path))
            command += shell.local_command(rank)
        self._output = open(Path(self._folder.name) / "output", "w+b")  # noqa: SIM115
        super().__init__(places, command, self._output, settings, clock)

    def _launch_options(self, places: RankPlaces) -> list[str]:
        """Return the launcher's options for all ranks."""
        return ["-launcher", "fork"]

    def _rank_options(self, number: int, interface: str) -> list[str]:
        """Return the launcher's options for a rank."""
        return _options(number, interface)

    def _python(self, python: str) -> str:
        """Return the interpreter of the ranks; by default the server's."""
        return python

    def _prelude(self) -> str:
        """Return what a rank does first, as Python."""
        return ""

    def _connection(self, number: int) -> socket.socket | None:
        with contextlib.suppress(TimeoutError):
            return self._listening[number].accept()[0]
        return None

    def _details(self) -> list[tuple[str, str]]:
        self._output.seek(0)
        printed = end_of_stderr(self._output.read().decode("utf-8", "backslashreplace"))
        return [("mpiexec", line) for line in printed.splitlines()]

    def close(self) -> None:
        """End `mpiexec` and its ranks; remove their sockets."""
        super().close()
        for listening in self._listening:
            listening.close()
        self._output.close()
        self._folder.cleanup()


class _RemoteJob(MpiJob):
    """Ranks on servers behind SSH, where the helpers of `mpiexec` are started over SSH."""

    def __init__(
        self, launcher: Path, places: RankPlaces, settings: Mapping[str, str], clock: Clock
    ) -> None:
        self._servers = [server for server, _ in places]
        self._connected: list[queue.SimpleQueue[socket.socket]] = []
        self._printed: list[str] = []
        # mpiexec looks names up, for seconds where there is no name server; any addresses will do.
        hosts = ",".join(str(_FIRST_HOST + number) for number in range(len(places)))
        # The servers' own search path applies, and with it their python3.
        command = [str(launcher), "-genvlist", ",".join(settings)]
        command += ["-launcher", "manual", "-hosts", hosts]
        for number, (server, interface) in enumerate(places):
            shell = _shell(server)
            connected: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
            self._connected.append(connected)
            attach = _ATTACH_REMOTELY.format(port=shell.forward(connected.put))
            command += [*_options(number, interface), *_rank(shell.python, attach)]
        # mpiexec holds back what it prints to a pipe.
        self._terminal, terminal = pty.openpty()
        super().__init__(places, command, terminal, settings, clock)
        os.close(terminal)
        self._reader = threading.Thread(target=self._launch, daemon=True)
        self._reader.start()

    def _connection(self, number: int) -> socket.socket | None:
        with contextlib.suppress(queue.Empty):
            return self._connected[number].get(timeout=_LOOK_AGAIN_S)
        return None

    def _details(self) -> list[tuple[str, str]]:
        return [
            *(("mpiexec", line) for line in self._printed[-_LAST_LINES:]),
            ("try", "have all of them hydra_pmi_proxy and mpi4py? lightrig[mpi]"),
        ]

    def close(self) -> None:
        super().close()
        self._reader.join(_END_S)

    def _launch(self) -> None:
        """Start the helpers that `mpiexec` asks for, each on its server."""
        waiting = list(self._servers)
        # The end of a terminal is an OSError.
        with contextlib.suppress(OSError), open(self._terminal, encoding="utf-8") as lines:
            for line in lines:
                if not line.startswith(_LAUNCH):
                    self._printed += [] if line.startswith(_ALL_LAUNCHED) else [line.rstrip()]
                    continue
                server = waiting.pop(0)
                command = line.removeprefix(_LAUNCH).split()
                at = command.index(_CONTROL_PORT) + 1
                port = int(command[at].rpartition(":")[2])
                shell = _shell(server)
                command[0] = Path(command[0]).name
                command[at] = f"127.0.0.1:{shell.forward(partial(relay_to, port))}"
                shell.start(command, _HelperOutput(self._printed, server.name))


def _shell(server: LinuxServer) -> ForwardingShell:
    shell = server.forwarding_shell()
    assert shell is not None
    return shell


class _HelperOutput:
    """Output of a helper on a server, for an error's details."""

    def __init__(self, printed: list[str], server: str) -> None:
        self._printed = printed
        self._server = server

    def line(self, text: str) -> None:
        """Take a line."""
        self._printed.append(f"{self._server}: {text}")

    def ended(self, reason: str) -> None:
        """Take the end."""
        self._printed.append(f"{self._server}: its helper ended: {reason}")


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
