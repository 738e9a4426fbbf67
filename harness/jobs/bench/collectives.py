"""Collectives among the servers of a bench, over the links of its plans."""

from typing import Protocol

from lightrig.harness.bench.bench import Bench
from lightrig.harness.jobs.bench.nccl import NcclOverCircuits
from lightrig.harness.jobs.bench.nccl import obstacle as nccl_obstacle
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.jobs.planning.rings import BrokenRingError, ring_order
from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.core.collectives import CollectiveRunner
from lightrig.instruments.jobs.core.traffic import TrafficSource
from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.traffic.gloo import GlooRunner, NoPyTorchError
from lightrig.instruments.jobs.traffic.mpi import MpiRunner, NoMpiError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Plan, Testbed


class NoCollectivesError(LightrigError):
    """The servers of a bench cannot run collectives."""


class Collectives(Protocol):
    """Collectives on a bench: their runner, ranks and routes."""

    @property
    def runner(self) -> CollectiveRunner:
        """The runner of collectives."""

    @property
    def traffic(self) -> TrafficSource | None:
        """The source of continuous traffic, if there is one."""

    @property
    def largest(self) -> int:
        """A size in bytes at which the link rate dominates the cost of each operation."""

    def ranks(self, plan: Plan) -> tuple[str, ...]:
        """Return the server of each rank, in the order of a ring of `plan`.

        Raises `BrokenRingError` without a ring.
        """

    def route(self, plan: Plan) -> None:
        """Route packets over the links of `plan`, which is applied."""

    def close(self) -> None:
        """Restore the servers."""


def without_collective(testbed: Testbed, collective: Collective, plan: Plan) -> str:
    """Return why servers cannot run a collective over the links of `plan`; empty if they can."""
    if _have_gpus(testbed):
        return nccl_obstacle(testbed, collective, plan)
    # Namespaces forward for each other, so an all-to-all needs no more than a ring.
    try:
        ring_order(list(testbed.servers), testbed.links(plan))
    except BrokenRingError as error:
        return str(error)
    return ""


def without_traffic(testbed: Testbed) -> str:
    """Return why no collectives run until they are stopped; empty if they do."""
    return "nccl-tests cannot run until stopped" if _have_gpus(testbed) else ""


def _have_gpus(testbed: Testbed) -> bool:
    return all(spec.gpus.count for spec in testbed.servers.values())


def open_collectives(bench: Bench) -> Collectives:
    """Return NCCL on servers with GPUs; in namespaces Gloo if PyTorch is installed, else MPI.

    Raises:
        NoCollectivesError: neither GPUs nor namespaces, or namespaces without Gloo and MPI.
        InstrumentError: a server refused.
    """
    servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
    if len(servers) > 1 and _have_gpus(bench.testbed):
        return NcclOverCircuits(bench)
    # Only namespaces: on shared servers the removal of routes would have to survive a kill.
    if bench.testbed.only_namespaces:
        return _OverNamespaces(bench)
    raise NoCollectivesError(
        f"{bench.testbed.path} has no two servers with GPUs, and no namespaces"
    )


class _OverNamespaces:
    """Gloo or MPI on servers that forward for each other: all ranks are reachable in any plan."""

    def __init__(self, bench: Bench) -> None:
        self._testbed = bench.testbed
        self._overlay = Overlay(bench)
        try:
            self._runner = _gloo_or_mpi(self._overlay, bench.clock)
        except LightrigError:
            self._overlay.close()
            raise

    @property
    def runner(self) -> CollectiveRunner:
        return self._runner

    @property
    def traffic(self) -> TrafficSource:
        return self._runner

    @property
    def largest(self) -> int:
        return 1 << 22

    def ranks(self, plan: Plan) -> tuple[str, ...]:
        return ring_order(list(self._overlay.servers), self._testbed.links(plan))

    def route(self, plan: Plan) -> None:
        self._overlay.route(self._testbed.links(plan))

    def close(self) -> None:
        try:
            self._runner.close()
        finally:
            self._overlay.close()


def _gloo_or_mpi(overlay: Overlay, clock: Clock) -> GlooRunner | MpiRunner:
    gloo = GlooRunner(overlay.servers, overlay.addresses, clock)
    try:
        gloo.load(list(overlay.servers))
        return gloo
    except NoPyTorchError as missing:
        try:
            return MpiRunner(overlay.servers, clock)
        except NoMpiError as error:
            raise NoCollectivesError(f"{missing}; {error}") from error
    except LightrigError:
        gloo.close()
        raise
