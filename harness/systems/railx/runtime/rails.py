"""The nodes of one row as namespaces, whose packets are led by rail."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.collectives import NoCollectivesError
from lightrig.harness.jobs.bench.lanes import Lanes
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.systems.railx.planning.rail_lanes import RailLanes
from lightrig.harness.workloads.selection import LinkSelection
from lightrig.instruments.jobs.traffic.mpi import MpiRunner, NoMpiError
from lightrig.instruments.jobs.traffic.server_routes import ServerRoutes
from lightrig.instruments.jobs.traffic.tcp_queues import unacknowledged
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Plan

POLL = 20_000_000
"""Time between two looks at what is not acknowledged, in ns."""

DRAIN_TIMEOUT = 10_000_000_000
"""Longest time until bytes are acknowledged, in ns; TCP repeats them after 200 ms and more."""


_TCP = {"tcp_congestion_control": "reno", "tcp_wmem": "4096 65536 65536"}
"""Kernel settings of the nodes, under which a link is full in both directions at once.

Acknowledgements then wait in the queue of a shaped link behind data. A sender that takes the
shortest round trip for the link's (BBR) keeps too little under way: both directions reached 0.67 of
the line rate. A send buffer that is smaller than the queue fills it and loses nothing.
"""


class NotRestoredError(LightrigError):
    """Servers have other addresses or routes than before."""


class NotDrainedError(LightrigError):
    """Bytes of an exchange that has ended are not acknowledged."""


class RailsInUseError(LightrigError):
    """Rails are to change to a phase while an exchange runs in another one."""


class Rails:
    """An address for each rail of each node, and ranks that exchange data over all of them.

    Args:
        bench: of the nodes.
        open_lanes: opens as many lanes on it, with kernel settings.
        open_ranks: starts the programs of the ranks.
        read_routes: returns the addresses and routes of each server.

    Raises:
        NoCollectivesError: a server is no namespace, or this machine has no MPI.
        InstrumentError: a server refused.
    """

    def __init__(
        self,
        bench: Bench,
        open_lanes: Callable[[Bench, int, Mapping[str, str]], Lanes] = Lanes,
        open_ranks: Callable[..., MpiRunner] = MpiRunner,
        read_routes: Callable[[Bench], Mapping[str, list[str]]] | None = None,
    ) -> None:
        testbed = self._testbed = bench.testbed
        if not testbed.only_local_namespaces:
            raise NoCollectivesError(f"{testbed.path}: not all servers are namespaces")
        self._bench = bench
        self.nodes = tuple(testbed.servers)
        nics = {nic for server in testbed.servers.values() for nic in server.nics}
        self._phases = LinkSelection()
        self._read_routes = read_routes or routes_of_servers
        self._found = self._read_routes(bench)
        self._lanes = open_lanes(bench, len(nics), _TCP)
        device, *further = self._lanes.devices
        try:
            self.runner = open_ranks(
                self._lanes.servers, bench.clock, interface=device, lanes=further
            )
        except NoMpiError as error:
            self._lanes.close()
            raise NoCollectivesError(str(error)) from error

    def lanes(self, plan: Plan) -> RailLanes:
        """Return the rails with the links that `plan` closes."""
        return RailLanes.of(self.nodes, self._testbed.links(plan))

    def route(self, plan: Plan) -> None:
        """Lead packets over the rails of `plan`; raises `InstrumentError`."""
        self._lanes.route(self.lanes(plan).routes())

    def apply(self, fabric: Fabric, plan: Plan) -> None:
        """Have the rails in the phase of `plan`, see `phase`, and leave them in it."""
        with self.phase(fabric, plan):
            pass

    @contextmanager
    def phase(self, fabric: Fabric, plan: Plan) -> Iterator[None]:
        """Have all rails in the phase of `plan` while what is inside the `with` exchanges data.

        One `LinkSelection` decides for the row, whose switches serve all of its nodes: another
        phase waits until nothing runs any more. To change it is to drain the rails, set `plan`,
        wait for its carriers and lead packets over its links.

        Raises:
            NotDrainedError: a server waits for acknowledgements.
            LinksDownError: a port gets no carrier.
            RailsInUseError: what runs inside another phase has not ended.
        """
        if self._phases.selected == plan.name and not _is_set(fabric, plan):
            # Something else has changed the circuits since.
            self._phases = replace(self._phases, selected=None)
        exchange = object()
        self._phases = self._phases.wants(exchange, plan.name)
        if self._phases.due == "select":
            self._change(fabric, plan)
        if self._phases.due != "start":
            self._phases = self._phases.refuse()
            raise RailsInUseError(f"{plan.name}: an exchange in another phase has not ended")
        self._phases = self._phases.start()
        try:
            yield
        finally:
            self._phases = self._phases.end(exchange)

    def _change(self, fabric: Fabric, plan: Plan) -> None:
        self._phases = self._phases.begin()
        try:
            self.drain()
            fabric.apply(plan)
            ports = {port for link in fabric.links(plan) for port in (link.a, link.b)}
            await_carriers(fabric.bench, self._lanes.dark, ports)
            self.route(plan)
        except BaseException:
            self._phases = self._phases.over(failed=True).refuse()
            raise
        self._phases = self._phases.over()

    def drain(self) -> None:
        """Wait until no server has bytes on a rail that are not acknowledged.

        A change of circuits then loses no packet of an exchange that has ended: the paper changes
        phases in a gap without traffic (§5.2).
        """
        clock = self._bench.clock
        deadline = clock.now() + DRAIN_TIMEOUT
        while waiting := self._waiting():
            if clock.now() > deadline:
                listed = ", ".join(f"{count} of {name}" for name, count in waiting.items())
                raise NotDrainedError(
                    f"{listed}: bytes that were not acknowledged {DRAIN_TIMEOUT / 1e9:g} s after "
                    "the last exchange; is a rank still sending, is a link of theirs down?"
                )
            clock.sleep(POLL)

    def _waiting(self) -> dict[str, int]:
        servers, addresses = self._lanes.servers, self._lanes.addresses
        counts = self._bench.clock.parallel(
            *(
                partial(unacknowledged, server.commands, addresses[name])
                for name, server in servers.items()
            )
        )
        return {name: count for name, count in zip(servers, counts, strict=True) if count}

    def close(self) -> None:
        """End the ranks, and remove addresses and routes.

        Raises `NotRestoredError` where a server has others than before.
        """
        try:
            self.runner.close()
        finally:
            self._lanes.close()
        check_restored(self._found, self._read_routes(self._bench))


def _is_set(fabric: Fabric, plan: Plan) -> bool:
    """Return whether all switches of a plan report its circuits."""
    return all(fabric.present(name)[0] == found for name, found in plan.circuits.items())


def routes_of_servers(bench: Bench) -> dict[str, list[str]]:
    """Return the addresses and routes of each server of a bench."""
    return {
        name: ServerRoutes(server.commands).present()
        for name, server in bench.servers.items()
        if isinstance(server, LinuxServer)
    }


def check_restored(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> None:
    """Compare addresses and routes by server; raise `NotRestoredError` for the first difference."""
    for name, found in before.items():
        more, less = set(after[name]) - set(found), set(found) - set(after[name])
        if more or less:
            raise NotRestoredError(
                f"{name} has other addresses or routes than before: "
                f"more {sorted(more) or 'none'}, missing {sorted(less) or 'none'}"
            )
