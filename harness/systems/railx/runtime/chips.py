"""The chips of nodes as namespaces: hierarchical all-reduces over the mesh and the rails."""

from __future__ import annotations

from collections.abc import Iterator

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.collectives import NoCollectivesError
from lightrig.harness.jobs.bench.lanes import Lanes
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.railx.planning.chip_lanes import LANES, chip_lanes, rings_of
from lightrig.harness.systems.railx.runtime.rails import check_restored, routes_of_servers
from lightrig.instruments.jobs.core.collectives import CollectiveCall, CollectiveMeasurement
from lightrig.instruments.jobs.traffic.hierarchical import HierarchicalRunner, Neighbours
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.testbeds import Link, Plan, Testbed


class Chips:
    """An address for each chip on its mesh, X- and Y-rails, and a rank that reduces over them.

    Args:
        bench: of a testbed as `lightrig generate railx --chips` names its parts.

    Raises:
        NoCollectivesError: a server is no namespace.
        RailxError: a server is no chip, or the mesh has no ring.
        InstrumentError: a server refused.
    """

    def __init__(self, bench: Bench) -> None:
        testbed = self._testbed = bench.testbed
        if not testbed.only_local_namespaces:
            raise NoCollectivesError(f"{testbed.path}: not all servers are namespaces")
        self._bench = bench
        self.chips = tuple(testbed.servers)
        rings = rings_of(self.chips)
        self._found = routes_of_servers(bench)
        self._lanes = Lanes(bench, len(LANES))
        addresses = self._lanes.addresses
        neighbours = {
            name: [
                Neighbours(ring.chips, tuple(addresses[chip][ring.lane] for chip in ring.chips))
                for ring in of.values()
            ]
            for name, of in rings.items()
        }
        self._runner = HierarchicalRunner(self._lanes.servers, neighbours, bench.clock)

    def apply(self, fabric: Fabric, plan: Plan) -> None:
        """Set `plan`, wait for carriers and lead packets over its links and the mesh.

        Raises `LinksDownError` where a port gets no carrier.
        """
        fabric.apply(plan)
        links = [*fabric.links(plan), *mesh_links(self._testbed)]
        ports = {port for link in links for port in (link.a, link.b)}
        await_carriers(self._bench, self._lanes.dark, ports)
        self._lanes.route(chip_lanes(links))

    def all_reduce(self, size: int, iterations: int) -> CollectiveMeasurement:
        """Run all-reduces of `size` bytes among all chips, and check every result.

        Raises `CollectiveFailedError`.
        """
        call = CollectiveCall("all_reduce", self.chips, (size,), warm_up=0, iterations=iterations)
        (found,) = self._runner.run(call)
        return found

    def sent(self) -> dict[str, int]:
        """Return the bytes that all ports have sent until now: of the mesh, X- and Y-rails."""
        found = dict.fromkeys(LANES, 0)
        for name, server in self._lanes.servers.items():
            nics = self._testbed.servers[name].nics
            command = ["cat", *(f"/sys/class/net/{nic}/statistics/tx_bytes" for nic in nics)]
            result = server.commands.run(command)
            if result.status != 0:
                raise ToolFailedError(name, result, " ".join(command))
            for nic, count in zip(nics, result.stdout.split(), strict=True):
                found[nic[0] if nic[1].isdigit() else "mesh"] += int(count)
        return found

    def close(self) -> None:
        """End the ranks, and remove addresses and routes.

        Raises `NotRestoredError` where a server has others than before.
        """
        try:
            self._runner.close()
        finally:
            self._lanes.close()
        check_restored(self._found, routes_of_servers(self._bench))


def mesh_links(testbed: Testbed) -> list[Link]:
    """Return the links between chips that fibers close without a switch."""
    return [
        Link(fiber.source, fiber.sink)
        for fiber in testbed.fibers
        if fiber.source.owner in testbed.servers
        and fiber.sink.owner in testbed.servers
        and fiber.source < fiber.sink
    ]


def all_reduce_rows(plan: Plan, found: CollectiveMeasurement) -> Iterator[Row]:
    """Yield the time of each hierarchical all-reduce."""
    conditions: dict[str, Scalar] = {"plan": plan.name, "bytes": found.size, "tool": found.tool}
    subject = f"hierarchical all-reduce over {plan.name}"
    for time in found.times_ns:
        yield Row(subject, "rail_traffic.time", time, time, time, "ns", found.at.latest, conditions)
