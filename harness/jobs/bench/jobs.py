"""Jobs on the links of a plan whose every result is checked, for faults under them."""

import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lightrig.harness.bench.bench import Bench
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.jobs.bench.streams import without_streams
from lightrig.harness.jobs.planning.rings import ring_order
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.checked_job import CheckedJob
from lightrig.instruments.jobs.traffic.command_job import CommandJob
from lightrig.instruments.jobs.traffic.gloo import GlooRunner
from lightrig.instruments.jobs.traffic.mpi import MpiRunner
from lightrig.instruments.jobs.traffic.nccl import NcclRunner
from lightrig.instruments.jobs.traffic.open_mpi import OpenMpiRunner
from lightrig.instruments.jobs.traffic.rank_programs import RankPrograms
from lightrig.instruments.jobs.traffic.ring import RingRunner
from lightrig.instruments.jobs.traffic.torchft import TorchftRunner
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.testbeds import LightrigError, Link, Plan, Port

Library: TypeAlias = Literal["tcp", "gloo", "mpich", "openmpi", "torchft", "nccl"]
LIBRARIES: tuple[Library, ...] = get_args(Library)
JobCollective: TypeAlias = Literal["all_reduce", "all_to_all", "send_receive", "train"]

_VALUES = 4096
"""Values of each rank: 16 KiB, which fit into the buffers of a socket."""
_PYTORCH = 1_800_000_000_000
"""PyTorch's own timeout of an operation (30 min), in ns."""
_NCCL = 600_000_000_000
"""The same with NCCL (10 min), in ns."""
_TORCHFT = 60_000_000_000
"""torchft's own timeout of an operation, in ns."""
_MANAGED: tuple[JobCollective, ...] = ("all_reduce", "train")
"""Jobs of sums alone: torchft's manager has no other collective."""
_NEIGHBOUR_QUERIES_MS = "1000"
"""Linux's own time between two queries of a neighbour; routes of an overlay shorten it."""


class NoJobsError(LightrigError):
    """A testbed has no servers on which jobs with checked results run."""


@dataclass(frozen=True, slots=True)
class JobSetting:
    """Settings of a job that differ from the defaults of library and kernel.

    Attributes:
        user_timeout: TCP_USER_TIMEOUT of plain TCP, in ns; 0 for the kernel's own limit.
        timeout: of one operation of any library but plain TCP, in ns; None for the library's own.
            MPI has none: its ranks give an operation up after this time.
        retries: net.ipv4.tcp_retries2 of the servers; None for what it is.
        detector: timeout of Open MPI's failure detector, in ns; None without it. Of torchft how
            long its lighthouse may not hear of a replica; None for its own.
    """

    user_timeout: int = 0
    timeout: int | None = None
    retries: int | None = None
    detector: int | None = None

    def __str__(self) -> str:
        parts = [
            f"TCP user timeout {self.user_timeout / 1e9:g} s" * bool(self.user_timeout),
            "" if self.timeout is None else f"timeout {self.timeout / 1e9:g} s",
            "" if self.retries is None else f"tcp_retries2 {self.retries}",
            "" if self.detector is None else f"detector {self.detector / 1e9:g} s",
        ]
        return ", ".join(filter(None, parts)) or "defaults"


class Jobs:
    """Servers of a bench that run one library, until closed; addresses and routes are then removed.

    environment: virtual environment with Open MPI.

    Attributes:
        overlay: addresses and routes of the servers. runner: of the library.

    Raises `NoJobsError`, and `InstrumentError` where a server refuses.
    """

    def __init__(
        self,
        bench: Bench,
        library: Library,
        setting: JobSetting,
        environment: Path = Path(".extras/openmpi"),
    ) -> None:
        if reason := without_streams(bench.testbed):
            raise NoJobsError(f"{bench.testbed.path}: {reason}")
        self._bench, self._library, self._setting = bench, library, setting
        self._environment = environment
        kernel = {"neigh/{netdev}/retrans_time_ms": _NEIGHBOUR_QUERIES_MS}
        if setting.retries is not None:
            kernel["tcp_retries2"] = str(setting.retries)
        self.overlay = Overlay(bench, settings=kernel)
        try:
            self.runner = self._made()
        except LightrigError:
            self.overlay.close()
            raise

    def _made(self) -> RankPrograms:
        servers, clock = self.overlay.servers, self._bench.clock
        timeout = self._setting.timeout or _PYTORCH
        if self._library == "mpich":
            return MpiRunner(servers, clock, timeout=timeout)
        if self._library == "openmpi":
            setting, where = self._setting, self._environment
            return OpenMpiRunner(
                servers, clock, environment=where, timeout=timeout, detector=setting.detector
            )
        addresses = self.overlay.addresses
        if self._library == "torchft":
            detector, timeout = self._setting.detector, self._setting.timeout or _TORCHFT
            return TorchftRunner(servers, addresses, clock, timeout=timeout, detector=detector)
        if self._library == "nccl":
            return NcclRunner(servers, addresses, clock, timeout=self._setting.timeout or _NCCL)
        if self._library == "gloo":
            return GlooRunner(servers, addresses, clock, timeout=timeout)
        return RingRunner(servers, addresses, clock, user_timeout=self._setting.user_timeout)

    def start(self, plan: Plan, collective: JobCollective) -> CheckedJob:
        """Start a collective on a ring of `plan`, which is up.

        Raises `BrokenRingError` without a ring, `CollectiveFailedError` where ranks fail to start,
        `NoJobsError` where the library has no such collective.
        """
        if self._library == "torchft" and collective not in _MANAGED:
            raise NoJobsError(f"torchft has no {collective}; try {' or '.join(_MANAGED)}")
        links = self._bench.testbed.links(plan)
        self.overlay.route(links)
        ranks = ring_order(list(self.overlay.servers), links)
        self.runner.form(ranks)
        return CheckedJob(self.runner, ranks, collective, _VALUES)

    def route(self, links: Iterable[Link]) -> None:
        """Lead packets over `links` alone; raises `InstrumentError` where a server refuses."""
        self.overlay.route(links)

    def lose(self, ports: Collection[Port], share: float) -> Span:
        """Have the kernels of `ports` lose a share of the packets that they receive.

        Returns the time from the first change to the last, on the bench's clock.

        Raises `ToolFailedError` where a kernel has no nftables with `numgen`.
        """
        programs = resources.files("lightrig.instruments.jobs.programs")
        text = (programs / "packet_loss.py").read_text("utf-8")
        stamps: list[int] = []
        netdevs = {spec.port: spec.netdev for spec in self._bench.testbed.nic_ports}
        for name in sorted({port.owner for port in ports}):
            server = self.overlay.servers[name]
            shell = server.local_shell()
            assert shell is not None  # `without_streams`
            devices = sorted(netdevs[port] for port in ports if port.owner == name)
            # Without site packages it starts in 15 ms.
            command = [shell.python, "-IS", "-c", text, f"{share * 100:g}", *devices]
            result = server.commands.run(command)
            if result.status != 0:
                raise ToolFailedError(name, result, "nftables: a share of the packets is lost")
            stamps += map(int, result.stdout.split())
        return Span(min(stamps), max(stamps))  # namespaces have the bench's clock

    def close(self) -> None:
        """End the programs; remove addresses and routes."""
        try:
            self.runner.close()
        finally:
            self.overlay.close()


class CommandJobs:
    """A command that runs anew for each job, until it is stopped; see `CommandJob`.

    It runs on this machine and finds the servers by itself: a launcher such as mpirun does. Nothing
    is changed on the servers, so they may be those of a lab.

    Raises `NoJobsError` where the servers are simulated.
    """

    def __init__(self, bench: Bench, command: str) -> None:
        if simulated := sorted(bench.simulated & bench.testbed.servers.keys()):
            where = bench.testbed.path
            raise NoJobsError(f"{where}: no command runs on simulated servers: {simulated[0]} is")
        self._command, self._clock = shlex.split(command), bench.clock
        self._job: CommandJob | None = None

    def start(self, plan: Plan, collective: JobCollective) -> CommandJob:
        """Start it; `plan` is up, and what it does is its own affair."""
        self._job = CommandJob(self._command, self._clock)
        return self._job

    def close(self) -> None:
        """End what still runs: a fault may have ended by an error before its job was stopped."""
        if self._job is not None:
            self._job.stop()
