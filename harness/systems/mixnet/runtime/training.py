"""A training script whose all-to-alls run over circuits that follow its gates (MixNet §5, B.2).

Each rank announces the script's all-to-alls of rows; the controller of its region changes the
circuits between them, behind the experts' computation and the backward pass. Packets leave a
circuit before it moves. Whatever else ranks exchange, such as what tensor, pipeline and data
parallelism need, goes over packet NICs alone, on a lane of their own, at any time, or within a
server.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.lanes import Lanes
from lightrig.harness.systems.mixnet.planning.calendar import FirstExchange
from lightrig.harness.systems.mixnet.planning.course import Course
from lightrig.harness.systems.mixnet.planning.delegation import packet_rings, ring_bytes
from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.expert_regions import ExpertRegion
from lightrig.harness.systems.mixnet.planning.first_run import Announced, regions_of
from lightrig.harness.systems.mixnet.planning.lanes import lane_routes
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime.region_circuits import (
    RegionCircuits,
    RegionSwitches,
    packet_lanes,
)
from lightrig.harness.systems.mixnet.runtime.region_run import RegionRun
from lightrig.harness.systems.mixnet.runtime.trained import LinkPeriod, TrainedExperts
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.jobs.traffic.rank_session import RankSession, ScriptRun
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script, ScriptModule
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Plan, Port


class ExpertTraining:
    """Ranks on the servers of a fabric of namespaces, ready to run scripts until closed.

    A server has a rank for each GPU that the testbed states, or one where it states none. Ranks
    are numbered server by server.

    Args:
        fabric: of the servers.
        open_lanes: opens as many lanes on the fabric's bench.
        open_session: starts the ranks' programs.

    Raises:
        NotRoutedError: a server is no namespace.
        NoPyTorchError: a server has none.
    """

    def __init__(
        self,
        fabric: Fabric,
        open_lanes: Callable[[Bench, int], Lanes] = Lanes,
        open_session: Callable[
            [Clock, Sequence[LinuxServer], Sequence[str], str], RankSession
        ] = RankSession,
    ) -> None:
        self._fabric, self.clock = fabric, fabric.bench.clock
        whole, self._switch_of = Region.whole(fabric.testbed)
        self.region = whole.with_ranks
        self.placement = _placement(self.region)
        self._switches = RegionSwitches(fabric)
        self._width = max(len(server.ports) for server in self.region.servers)
        self.rings = packet_rings(self.placement, Routing(self.region, ()))
        self._lanes = open_lanes(fabric.bench, self._width + max(1, len(self.rings)))
        servers = list(self._lanes.servers.values())
        of_ranks = [servers[number] for number in self.placement.server_of]
        device = self._lanes.devices[self._width]  # the first of packets
        address = self._lanes.addresses[servers[0].name][self._width]
        try:
            self.session = open_session(self.clock, of_ranks, [device] * len(of_ranks), address)
        except BaseException:
            self._lanes.close()
            raise
        self.pytorch = self.session.pytorch

    @property
    def everyone(self) -> ExpertRegion:
        """One region of all ranks, who exchange rows with each other."""
        return ExpertRegion(
            self._switch_of[0],
            tuple(range(self.placement.servers)),
            tuple(range(self.placement.ranks)),
            self.placement,
            (tuple(range(self.placement.ranks)),),
        )

    def train(
        self,
        script: Script,
        layers: int,
        plan: Plan,
        first: FirstExchange | None = None,
        *,
        count: bool = False,
        rings: bool = False,
        listener: PrintedLines | None = None,
    ) -> TrainedExperts:
        """Run `script`, a mixture of `layers` layers, beginning with the circuits of `plan`.

        All ranks exchange rows, and each step has four all-to-alls of rows a layer: dispatch and
        combine, and backwards those of their gradients.

        first: strategy for the first all-to-all of a layer; None: the circuits never change.
        count: read what NIC ports have counted whenever circuits are about to move, which takes
            some ms.
        rings: add up what all ranks add up over rings of packets, one for each packet NIC: within
            a server, around its ring, and back (§5.3). Losses are then not those of Gloo's own
            sums to the last bit, but always the same.
        listener: hears what ranks print.

        Raises:
            TrainingFailedError: the script failed.
            LinksDownError: a circuit's ports got no carrier.
            InstrumentError: a switch or server refused.
        """
        circuits = self._circuits_of(0, self.everyone)
        parts = [(circuits, Course(layers), plan)]
        return self._run(script, parts, first, count=count, rings=rings, listener=listener)

    def train_regions(
        self,
        script: Script,
        courses: Sequence[tuple[ExpertRegion, Course]],
        first: FirstExchange | None = None,
        *,
        count: bool = False,
        rings: bool = False,
        listener: PrintedLines | None = None,
    ) -> TrainedExperts:
        """Run a script whose experts are in one or more regions, each with a controller.

        courses: of a first run; see `alone`. Everything else is as for `train`.
        """
        parts = []
        for number, (region, course) in enumerate(courses):
            circuits = self._circuits_of(number, region)
            parts.append((circuits, course, circuits.first_plan()))
        return self._run(script, parts, first, count=count, rings=rings, listener=listener)

    def alone(
        self,
        script: Script,
        listener: PrintedLines | None = None,
        *,
        rings: bool = False,
    ) -> tuple[ScriptRun, list[tuple[ExpertRegion, Course]]]:
        """Run `script` over packets alone, by Gloo.

        rings: add up over the servers' rings what all ranks add up.

        Return what it did, and the regions whose experts exchange rows with the course of each.
        Raises as `train` does, `RegionError` and `CourseError`.
        """
        names = [server.name for server in self.region.servers]
        lanes = lane_routes(Routing(self.region, ()), self._width)
        further = packet_lanes(self.region, self._lanes.count - self._width, names)
        self._lanes.route([*lanes, *further])
        listener = listener or PrintedLines()
        announced: defaultdict[int, list[Announced]] = defaultdict(list)

        def note(rank: int, message: Any, at: Span) -> None:
            del at
            if "counted" in message:
                step = len(listener.steps[rank])
                ranks, given = tuple(message["ranks"]), tuple(message["counted"])
                announced[rank].append(Announced(step, message["part"], ranks, given))

        module = self.module(note, [self.everyone], rings=rings, lanes=False)
        run = self.session.run(script, listener, "watched", self._groups, module=module)
        return run, regions_of(announced, self.placement.server_of, self._switch_of)

    def close(self) -> None:
        """End all programs, and leave the servers as they were found."""
        self.session.close()
        self._lanes.close()

    # ------------------------------------------------------------------------- for a run

    def module(
        self,
        on_message: Callable[[int, Any, Span], None],
        regions: Sequence[ExpertRegion],
        *,
        rings: bool,
        lanes: bool = True,
    ) -> ScriptModule:
        """The module of each rank that carries all-to-alls over lanes, and sums over rings."""
        servers = [
            [rank for rank, on in enumerate(self.placement.server_of) if on == number]
            for number in range(self.placement.servers)
        ]
        devices = self._lanes.devices[self._width :]
        on_rings = [
            [device, list(ring.gateways)] for device, ring in zip(devices, self.rings, strict=False)
        ]
        settings = {
            "lanes": self.lane_devices if lanes else [],
            "servers": servers,
            "regions": [list(region.ranks) for region in regions],
            "rings": on_rings if rings else [],
        }
        source = resources.files(__package__).joinpath("lane_exchange.py").read_text("utf-8")
        return ScriptModule(source, settings, on_message)

    @property
    def _groups(self) -> dict[str, Sequence[int]]:
        """All groups that are not within a server: their packets take the lane of packets."""
        return {"all": range(self.placement.ranks), "between servers": ()}

    @property
    def lane_devices(self) -> list[str]:
        """The devices of the lanes that follow the circuits."""
        return self._lanes.devices[: self._width]

    def _circuits_of(self, number: int, region: ExpertRegion) -> RegionCircuits:
        fabric, switches, lanes = self._fabric, self._switches, self._lanes
        return RegionCircuits(fabric, switches, lanes, self._width, self.region, number, region)

    def _run(
        self,
        script: Script,
        parts: Sequence[tuple[RegionCircuits, Course, Plan]],
        first: FirstExchange | None,
        *,
        count: bool,
        rings: bool,
        listener: PrintedLines | None,
    ) -> TrainedExperts:
        runs = [
            RegionRun(number, circuits, course, plan, first, self._tell, count=count)
            for number, (circuits, course, plan) in enumerate(parts)
        ]
        sums: Counter[tuple[Port, Port]] = Counter()
        of_rank = {
            rank: (run, place)
            for run, (circuits, _, _) in zip(runs, parts, strict=True)
            for place, rank in enumerate(circuits.region.ranks)
        }

        def take(rank: int, message: Any, at: int) -> None:
            if message is not None and "added" in message:
                sums.update(ring_bytes(self.rings, message["added"]))
            elif rank in of_rank:
                run, place = of_rank[rank]
                run.receive(place, message, at)

        for run in runs:
            run.begin()
        module = self.module(
            lambda rank, message, at: take(rank, message, at.latest),
            [circuits.region for circuits, _, _ in parts],
            rings=rings,
        )
        done = self.session.run(
            script,
            listener or PrintedLines(),
            control="watched",
            groups=self._groups,
            module=module,
            beside=[run.loop for run in runs],
            ended=lambda rank: take(rank, None, 0),
        )
        for run in runs:
            run.end_period()
        periods = [period for run in runs for period in run.periods]
        if sums and count:
            periods.append(LinkPeriod(Plan("sums over rings", {}), dict(sums), {}, {}))
        return TrainedExperts(
            done.printed,
            [each for run in runs for each in run.exchanges()],
            [each for run in runs for each in run.changes],
            [each for run in runs for each in run.control.predictions],
            periods,
            done.operations,
        )

    def _tell(self, rank: int, message: Any) -> None:
        self.session.ranks[rank].tell(message)


def _placement(region: Region) -> Placement:
    ranks = [server.gpu_count for server in region.servers]
    server_of = (number for number, count in enumerate(ranks) for _ in range(count))
    return Placement(tuple(server_of), len(ranks))
