"""Collectives by MPICH: one `mpiexec` on this machine, and one program per rank.

MPICH and mpi4py come as wheels. In namespaces of this machine `mpiexec` starts every rank itself.
On servers behind SSH its helpers (`hydra_pmi_proxy`) are started over SSH; they and the ranks reach
this machine through forwarded ports, so that the fabric carries the ranks' own data only.
"""

import importlib
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.core.collectives import Exchange
from lightrig.instruments.jobs.traffic.mpiexec import (
    STARTING,
    Meeting,
    Mpiexec,
    forwarded_meeting,
    relay_to,
)
from lightrig.instruments.jobs.traffic.rank_launcher import RankLauncher, RankPlace
from lightrig.instruments.jobs.traffic.rank_programs import (
    OPERATION_TIMEOUT,
    RankPrograms,
    rank_shares,
)
from lightrig.instruments.jobs.traffic.server_routes import DEVICE
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import Program
from lightrig.instruments.supervisor import supervised
from lightrig.instruments.wire.shell import ForwardingShell
from lightrig.testbeds.errors import LightrigError

MPI = Program(
    "lightrig-mpi",
    "the rank's program",
    1,
    ("server_clock", "replies", "checked_rounds", "gloo_program", "mpi_program"),
    "mpich and mpi4py",
    programs.__name__,
)

_LAUNCH = "HYDRA_LAUNCH: "
_ALL_LAUNCHED = "HYDRA_LAUNCH_END"
_CONTROL_PORT = "--control-port"
_FIRST_HOST = IPv4Address("127.0.1.1")


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
    ) -> None:
        super().__init__(clock, servers, (interface, *lanes), STARTING)
        self._timeout = timeout
        self._joining = 2 * timeout
        self._settings = self._environment()
        self._launcher = self._made()

    # ------------------------------------------------------------------ a library's words

    def _environment(self) -> Mapping[str, str]:
        """Return the variables of all ranks."""
        return {
            # Otherwise ranks of one machine communicate through shared memory.
            "MPIR_CVAR_NOLOCAL": "1",
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            # Each rank sends only to its neighbour in the ring: circuits join no others.
            "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_ring",
        }

    def _made(self) -> RankLauncher:
        """Return the launcher."""
        launcher, servers = mpiexec(), self._servers
        remote = [name for name, server in servers.items() if server.local_shell() is None]
        if remote and len(remote) < len(servers):
            raise NoMpiError(f"{', '.join(remote)} are not on this machine, the others are")
        if refused := [name for name in remote if servers[name].forwarding_shell() is None]:
            raise NoMpiError(f"{', '.join(refused)} cannot connect to this machine")
        kind = _RemoteMpich if remote else _LocalMpich
        return kind(MPI, launcher, self._settings, self._clock)

    def _greeting(self, rank: str, answer: Mapping[str, Any]) -> str:
        return str(answer.get("mpi"))

    def _places(self, rank: str) -> list[RankPlace]:
        return [
            RankPlace(_process(rank, lane), self._servers[rank], interface)
            for lane, interface in enumerate(self._interfaces)
        ]

    def _exchange_bodies(self, what: Exchange) -> dict[str, dict[str, Any]]:
        shares = rank_shares(what)
        lanes = {(rank, each["lane"]): each for rank, used in shares.items() for each in used}
        return {
            _process(rank, lane): {"lane": lanes.get((rank, lane))}
            for rank in what.ranks
            for lane in range(len(self._interfaces))
        }

    def _join_bodies(self, ranks: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        numbers = {name: number for number, name in enumerate(self._workers)}
        bodies: dict[str, dict[str, Any]] = {}
        for lane in range(len(self._interfaces)):
            names = [_process(rank, lane) for rank in ranks]
            members = [numbers[name] for name in names]
            bodies |= {name: {"members": members, "timeout_ns": self._timeout} for name in names}
        return bodies


def _process(rank: str, lane: int) -> str:
    """Return the name of a rank's process on a lane: the rank's for the first one."""
    return f"{rank} on lane {lane}" if lane else rank


class _LocalMpich(Mpiexec):
    """Ranks in namespaces of this machine."""

    def _options(self, places: Sequence[RankPlace]) -> list[str]:
        return ["-launcher", "fork"]

    def _rank_options(self, place: RankPlace) -> list[str]:
        return ["-env", "FI_TCP_IFACE", place.interface]


class _RemoteMpich(_LocalMpich):
    """Ranks on servers behind SSH, where the helpers of `mpiexec` are started over SSH."""

    def _options(self, places: Sequence[RankPlace]) -> list[str]:
        self._waiting = [place.server for place in places]
        # mpiexec looks names up, for seconds where there is no name server; any addresses will do.
        hosts = ",".join(str(_FIRST_HOST + number) for number in range(len(places)))
        # The servers' own search path applies, and with it their python3.
        environment = ["-genvlist", ",".join(self._settings)]
        return [*environment, "-launcher", "manual", "-hosts", hosts]

    def _command(self, place: RankPlace, attach: str) -> list[str]:
        return self._rank(_shell(place.server).python, attach)

    def _meeting(self, place: RankPlace, number: int) -> Meeting:
        return forwarded_meeting(_shell(place.server))

    def _advice(self) -> list[tuple[str, str]]:
        return [("try", "have all of them hydra_pmi_proxy and mpi4py? lightrig[mpi]")]

    def _took(self, line: str) -> None:
        """Start the helper that `mpiexec` asks for, on the next server."""
        if not line.startswith(_LAUNCH):
            if not line.startswith(_ALL_LAUNCHED):
                super()._took(line)
            return
        server = self._waiting.pop(0)
        command = line.removeprefix(_LAUNCH).split()
        at = command.index(_CONTROL_PORT) + 1
        port = int(command[at].rpartition(":")[2])
        shell = _shell(server)
        command[0] = Path(command[0]).name
        command[at] = f"127.0.0.1:{shell.forward(partial(relay_to, port))}"
        shell.start(supervised(command), _HelperOutput(self._printed, server.name))


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
