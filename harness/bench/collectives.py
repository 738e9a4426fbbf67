"""Collectives among the servers of a bench, over the links of its plans."""

from typing import Protocol

from harness.bench.bench import Bench
from harness.bench.nccl import NcclOverCircuits
from harness.bench.overlay import Overlay
from harness.fabrics.rings import ring_order
from instruments.collectives import CollectiveRunner
from instruments.servers.gloo import GlooRunner
from instruments.servers.linux import LinuxServer
from instruments.traffic import TrafficSource
from testbeds import LightrigError, Plan
from testbeds.flows import Collective


class NoCollectivesError(LightrigError):
    """The servers of a bench can run no collectives."""


class Collectives(Protocol):
    """Who runs collectives on a bench, and what they need there."""

    @property
    def runner(self) -> CollectiveRunner:
        """Runs them."""

    @property
    def traffic(self) -> TrafficSource | None:
        """Keeps one going, where that can be done."""

    @property
    def largest(self) -> int:
        """A size in bytes that the links' rates decide, not what each operation costs besides."""

    def ranks(self, plan: Plan) -> tuple[str, ...]:
        """The server of each rank in the order of a ring of `plan`; raises `BrokenRingError`."""

    def obstacle(self, collective: Collective, plan: Plan) -> str:
        """Why a collective cannot run on the links of `plan`, in words; empty where it can."""

    def route(self, plan: Plan) -> None:
        """Lead packets over the links of `plan`, which is in place."""

    def close(self) -> None:
        """Leave the servers as they were found."""


def open_collectives(bench: Bench) -> Collectives:
    """NCCL where the servers have GPUs, Gloo where they are namespaces.

    Raises:
        NoCollectivesError: the servers are neither.
        NoPyTorchError: a namespace's Python has no PyTorch.
        InstrumentError: a server refused.
    """
    servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
    specs = bench.testbed.servers.values()
    if len(servers) > 1 and all(spec.gpus.count for spec in specs):
        return NcclOverCircuits(bench)
    # Routes on servers that others use as well would have to survive a killed run; no others yet.
    if len(servers) > 1 and all(spec.address.startswith("netns://") for spec in specs):
        return _GlooOverCircuits(bench)
    raise NoCollectivesError(
        f"{bench.testbed.path} has no two servers with GPUs, and no namespaces"
    )


class _GlooOverCircuits:
    """Gloo on servers that forward for each other: every rank reaches all others in any plan."""

    def __init__(self, bench: Bench) -> None:
        self._testbed = bench.testbed
        self._overlay = Overlay(bench)
        self._runner = GlooRunner(self._overlay.servers, self._overlay.addresses, bench.clock)
        try:
            self._runner.load(list(self._overlay.servers))
        except LightrigError:
            self.close()
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

    def obstacle(self, collective: Collective, plan: Plan) -> str:
        return ""

    def route(self, plan: Plan) -> None:
        self._overlay.route(self._testbed.links(plan))

    def close(self) -> None:
        try:
            self._runner.close()
        finally:
            self._overlay.close()
