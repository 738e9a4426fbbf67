"""Fabrics that testbed files describe: links of their rates, ranks as servers have GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from lightrig.harness.workloads.fabrics import (
    Bill,
    FabricError,
    Maker,
    Options,
    SimulatedFabric,
    options_of,
)
from lightrig.harness.workloads.graph import Workload
from lightrig.harness.workloads.networks import Switching
from lightrig.harness.workloads.simulator import StepTimes
from lightrig.testbeds import Testbed, format_rate


def names_a_file(text: str) -> tuple[str, str] | None:
    """Return the file and the options of `FILE.yaml:key=value,...`; None for another fabric."""
    name, _, rest = text.partition(":")
    return (name, rest) if name.endswith((".yaml", ".yml")) else None


def fabric_of(testbed: Testbed, rest: str, makers: Mapping[str, Maker]) -> SimulatedFabric:
    """Return the fabric of a testbed's system, or the packet switches of one without a system.

    A rank is a GPU, or a NIC where the file states no GPUs. Its rate out of the server is that of
    a link, times the NICs that it has: circuits join a port of a NIC to one of another. `rest`:
    options in place of what the file states. Raises `FabricError`.
    """
    name = testbed.path.name
    if not testbed.servers:
        raise FabricError(f"{name}: has no servers, of which ranks could run")
    ranks, nics, rate = _rates(testbed)
    share = nics / ranks
    described = {"scale_out": f"{round(rate * share)} bit/s"}
    note = (
        f"links of {format_rate(rate)} and {ranks} ranks a server, as {name} states; latencies, "
        "memory and rates within servers are not in such a file"
    )
    maker = testbed.system
    if testbed.system is None:
        if testbed.optical_switches:
            raise FabricError(
                f"{name}: has optical switches and no `system:`, so that nothing is known of what "
                "changes its circuits; write `system:`, or name a fabric instead, as "
                f"fat-tree:scale_out={rate / 1e9:g}G"
            )
        maker = "fat-tree"
        described |= _tree(testbed, ranks)
        note += f"; leaf switches of {described['leaf']} ranks, {_above(described)}"
    if maker is None or maker not in makers:
        able = ", ".join(sorted(makers))
        raise FabricError(
            f"{name}: its system, {testbed.system}, is not simulated; fabrics are {able}"
        )
    options = Options(name, options_of(name, rest), described, testbed)
    return _Described(makers[maker](options), (note,), ranks, len(testbed.servers))


@dataclass(slots=True)
class _Described:
    """A fabric with the notes on how a file was read, and on what a step needs beyond it."""

    fabric: SimulatedFabric
    notes: tuple[str, ...]
    server_ranks: int
    servers: int
    beyond: tuple[str, ...] = ()

    @property
    def modes(self) -> tuple[str, ...]:
        return self.fabric.modes

    @property
    def carried(self) -> Mapping[Hashable, float]:
        return self.fabric.carried

    def folds(self, mode: str) -> bool:
        return self.fabric.folds(mode)

    def changes(self, mode: str) -> bool:
        return self.fabric.changes(mode)

    def assumptions(self, mode: str) -> tuple[str, ...]:
        return (*self.notes, *self.beyond, *self.fabric.assumptions(mode))

    def scaled(self, factor: float) -> SimulatedFabric:
        return replace(self, fabric=self.fabric.scaled(factor))

    def bill(self, workload: Workload, mode: str) -> Bill | None:
        return self.fabric.bill(workload, mode)

    def simulate(self, workload: Workload, mode: str, switching: Switching) -> StepTimes:
        there, tensor = self.servers * self.server_ranks, workload.folded.get("TP", 1)
        self.beyond = ()
        if tensor > self.server_ranks:
            self.beyond += (f"servers of {tensor} ranks: the file's have {self.server_ranks}",)
        if workload.ranks > there:
            self.beyond += (
                f"{workload.ranks:,} ranks: the file's fabric of {there:,} is built larger alike",
            )
        return self.fabric.simulate(workload, mode, switching)


def _rates(testbed: Testbed) -> tuple[int, int, float]:
    """Return ranks and NICs of a server, and the least rate of a port in bit/s."""
    nics = [len(server.nics) for server in testbed.servers.values() if server.nics]
    gpus = [server.gpus.count for server in testbed.servers.values() if server.gpus]
    if not nics:
        raise FabricError(f"{testbed.path.name}: no server has a NIC")
    ranks = min(gpus) if len(gpus) == len(testbed.servers) and min(gpus) else min(nics)
    rate = min(nic.rate_bps for _, nic in testbed.nics)
    return ranks, min(nics), rate


def _tree(testbed: Testbed, ranks: int) -> dict[str, str]:
    """Return how many ranks the smallest leaf switch has, and how its rate upwards compares."""
    servers: dict[str, set[str]] = {name: set() for name in testbed.switches}
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    rates = {
        end.port: nic.rate_bps
        for server in testbed.servers.values()
        for nic in server.nics.values()
        for end in nic.ports
    }
    for fiber in testbed.fibers:
        switch = fiber.sink.owner
        if fiber.source in rates and switch in servers:
            servers[switch].add(fiber.source.owner)
            down[switch] += rates[fiber.source]
        elif fiber.source.owner in servers and switch in servers:
            spec = testbed.switches[fiber.source.owner]
            up[fiber.source.owner] += spec.rate_bps or 0
    leaves = [name for name in servers if servers[name]]
    if not leaves:
        return {"leaf": str(len(testbed.servers) * ranks), "oversubscription": "1"}
    leaf = min(leaves, key=lambda name: len(servers[name]))
    count = len(servers[leaf]) * ranks
    # A leaf without links upwards is the only one: what is larger is built without a bottleneck.
    over = max([down[name] / up[name] for name in leaves if up[name]], default=1.0)
    return {"leaf": str(count), "oversubscription": f"{max(over, 1.0):.6g}"}


def _above(described: Mapping[str, str]) -> str:
    over = float(described["oversubscription"])
    return "no bottleneck above them" if over == 1 else f"oversubscribed {over:g} to 1"
