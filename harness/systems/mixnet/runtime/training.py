"""A training script whose all-to-alls run over circuits that follow its gates (MixNet §5, B.2).

Each rank announces the script's all-to-alls of rows; the regional controller changes the circuits
between them, behind the experts' computation and the backward pass. Packets leave a circuit before
it moves. Whatever else ranks exchange, such as the gradients of the attention, goes over packet
NICs alone, on a lane of their own, at any time.
"""

import itertools
import queue
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.lanes import Lanes
from lightrig.harness.jobs.bench.port_traffic import (
    PortTraffic,
    port_traffic,
    segments_sent_again,
)
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.systems.mixnet.planning.calendar import FirstExchange, Knowledge, Phase
from lightrig.harness.systems.mixnet.planning.control import (
    CircuitControl,
    DueChange,
    Permitted,
    Prediction,
)
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.delegation import (
    Links,
    link_bytes,
    packet_rings,
    rank_stages,
    rank_transfers,
    ring_bytes,
)
from lightrig.harness.systems.mixnet.planning.demand import (
    Matrix,
    Placement,
    server_traffic,
)
from lightrig.harness.systems.mixnet.planning.exchange import Transfer
from lightrig.harness.systems.mixnet.planning.lanes import (
    exchange_time,
    lane_routes,
    lane_shares,
    routing_in,
)
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime.exchanges import TCP
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.jobs.traffic.rank_session import RankSession, ScriptRun
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script, ScriptModule
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Plan, Port


@dataclass(frozen=True, slots=True)
class TrainingExchange:
    """One all-to-all of a step.

    Attributes:
        traffic: bytes from each rank to each.
        plan: the circuits that it ran over.
        optical: share of its bytes between servers that took circuits.
        wanted: when the last rank announced it, in ns.
        permitted: when the last rank was permitted to begin it, in ns.
        began: when the last rank began it, in ns.
        ended: when the last rank had ended it, in ns.
        predicted: its duration by the model of flows, in ns.
        carried: bytes that each directed link between servers was planned to carry.
    """

    step: int
    layer: int
    phase: Phase
    traffic: Matrix
    plan: Plan
    optical: float
    wanted: int
    permitted: int
    began: int
    ended: int
    predicted: float
    carried: Links

    @property
    def waited(self) -> int:
        """How long it waited after its last rank had announced it, in ns."""
        return self.began - self.wanted


@dataclass(frozen=True, slots=True)
class CircuitChange:
    """One change of circuits.

    Attributes:
        before: the all-to-all that it served first.
        knows: where its demand came from.
        moved: circuits that were made.
        began: when the controller began it, in ns.
        planned: when its circuits were planned.
        left: when packets had left the circuits that were to move.
        switched: when the switch had been read back.
        lit: when all NIC ports had carrier.
        done: when packets had taken the new circuits. A change that moves none is done as soon as
            it is planned.
    """

    step: int
    layer: int
    before: Phase
    knows: Knowledge
    moved: int
    began: int
    planned: int
    left: int
    switched: int
    lit: int
    done: int


@dataclass(frozen=True, slots=True)
class NewCircuits:
    """Circuits that were brought in, and the moments of that; see `CircuitChange`."""

    routing: Routing
    moved: int
    left: int
    switched: int
    lit: int
    done: int


@dataclass(frozen=True, slots=True)
class LinkPeriod:
    """What NIC ports have carried while the circuits of one plan were in place.

    Attributes:
        plan: the circuits.
        planned: bytes of all-to-alls over each directed link.
        counted: what the kernel has counted at each NIC port meanwhile.
        again: segments that each server's kernel has sent again, since a queue dropped them.
    """

    plan: Plan
    planned: Links
    counted: Mapping[Port, PortTraffic]
    again: Mapping[str, int]


@dataclass(frozen=True)
class TrainedExperts:
    """A script that has run: what each rank printed and when, its all-to-alls and changes.

    periods: what links carried, one after another, where that was asked for.
    """

    printed: Mapping[int, Sequence[tuple[Span, str]]]
    exchanges: Sequence[TrainingExchange]
    changes: Sequence[CircuitChange]
    predictions: Sequence[Prediction]
    periods: Sequence[LinkPeriod] = ()

    def losses(self) -> list[tuple[int, str]]:
        """Return the lines with a step's loss that each rank has printed."""
        return [
            (rank, line)
            for rank, lines in sorted(self.printed.items())
            for _, line in lines
            if line.startswith("step ")
        ]

    def step_times(self) -> list[int]:
        """Return the time of each step after the first, in ns, by the last rank's loss."""
        ends: defaultdict[str, int] = defaultdict(int)
        for _, lines in sorted(self.printed.items()):
            for at, line in lines:
                if line.startswith("step "):
                    name = line.split()[1]
                    ends[name] = max(ends[name], (at.earliest + at.latest) // 2)
        moments = [ends[name] for name in sorted(ends, key=int)]
        return [after - before for before, after in itertools.pairwise(moments)]


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
        self._testbed = fabric.testbed
        self.region = Region.of(fabric.testbed).with_ranks
        self.placement = _placement(self.region)
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

        Its step has four all-to-alls of rows a layer: dispatch and combine, and backwards those of
        their gradients.

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
        return _Run(
            self, script, layers, plan, first, count=count, rings=rings, listener=listener
        ).result()

    def alone(
        self,
        script: Script,
        plan: Plan,
        listener: PrintedLines | None = None,
        *,
        rings: bool = False,
    ) -> tuple[ScriptRun, list[int]]:
        """Run `script` over packets alone, by Gloo, while the switch holds `plan`.

        rings: add up over the servers' rings what all ranks add up.

        Return what it did, and how many all-to-alls of rows each step of its optimizer had.
        Raises as `train` does.
        """
        self.bring_in(plan, None)
        listener = listener or PrintedLines()
        counts: list[int] = []

        def note(rank: int, message: Any, at: Span) -> None:
            del at
            if rank == 0 and "counted" in message:
                ended = len(listener.steps[0])
                counts.extend([0] * (ended + 1 - len(counts)))
                counts[ended] += 1

        module = self.module(note, rings=rings, lanes=False)
        groups = {"all": range(self.placement.ranks)}
        run = self.session.run(script, listener, "watched", groups, module=module)
        return run, counts

    def close(self) -> None:
        """End all programs, and leave the servers as they were found."""
        self.session.close()
        self._lanes.close()

    # ------------------------------------------------------------------------- for a run

    def module(
        self,
        on_message: Callable[[int, Any, Span], None],
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
            "rings": on_rings if rings else [],
        }
        source = resources.files(__package__).joinpath("lane_exchange.py").read_text("utf-8")
        return ScriptModule(source, settings, on_message)

    @property
    def lane_devices(self) -> list[str]:
        """The devices of the lanes that follow the circuits."""
        return self._lanes.devices[: self._width]

    def bring_in(self, plan: Plan, present: Plan | None) -> NewCircuits:
        """Change from the circuits of `present` to those of `plan`.

        First packets leave the circuits that are to move.
        """
        now = self.clock.now
        if present is not None:
            unmoved = {name: each & plan.circuits[name] for name, each in present.circuits.items()}
            self._route(self._routing(Plan(f"{present.name} and {plan.name}", unmoved)))
        left = now()
        transition = self._fabric.prepare(plan)
        transition.apply()
        switched = now()
        routing = self._routing(plan)
        used = {port for link in routing.links for port in (link.a, link.b)}
        used |= {port for server in routing.region.servers for port in server.packet}
        await_carriers(self._fabric.bench, self._lanes.dark, used)
        lit = now()
        self._route(routing)
        return NewCircuits(routing, transition.moved, left, switched, lit, now())

    def traffic(self) -> tuple[dict[Port, PortTraffic], dict[str, int]]:
        """Return what kernels have counted at NIC ports, and segments that each has sent again.

        Raises `InstrumentError`.
        """
        servers = self._lanes.servers
        counted = port_traffic(self._testbed, servers, self.clock)
        return counted, segments_sent_again(servers, self.clock)

    def plan_for(self, due: DueChange, present: Plan) -> Plan:
        """Plan circuits for a demand."""
        name = f"step {due.step}, layer {due.layer}, {due.before}"
        return plan_testbed(self._testbed, due.demand, name, present)

    def shares(self, routing: Routing, rows: Matrix) -> tuple[Matrix, float]:
        """Return each lane's rows, lanes x ranks x ranks, and the share of them on circuits.

        The share is of those between servers.
        """
        names = list(self._testbed.servers)
        servers = [names[number] for number in self.placement.server_of]
        lanes = np.array(lane_shares(routing, servers, rows, self._width))
        between = server_traffic(rows, self.placement)
        optical = sum(
            between[a, b]
            for a, b in np.argwhere(between > 0).tolist()
            if all(hop.medium == "optical" for hop in routing.route(a, b))
        )
        return lanes, float(optical / max(between.sum(), 1))

    def predicted(self, plan: Plan, routing: Routing, lanes: Matrix, size: int) -> float:
        """Return the duration of an all-to-all by the model of flows, in ns."""
        names = list(self._testbed.servers)
        between = [server_traffic(lane * size, self.placement) for lane in lanes]
        shares = tuple(tuple(map(tuple, lane.astype(int).tolist())) for lane in between)
        return exchange_time(self._testbed, plan, routing, names, shares, TCP)

    def _routing(self, plan: Plan) -> Routing:
        return routing_in(self._testbed, plan, self.region)

    def _route(self, routing: Routing) -> None:
        packets = lane_routes(Routing(routing.region, ()), self._lanes.count - self._width)
        self._lanes.route([*lane_routes(routing, self._width), *packets])


def _placement(region: Region) -> Placement:
    ranks = [server.gpu_count for server in region.servers]
    server_of = (number for number, count in enumerate(ranks) for _ in range(count))
    return Placement(tuple(server_of), len(ranks))


@dataclass(slots=True)
class _Begun:
    """An all-to-all on one rank: when it was wanted and permitted, then when it began and ended."""

    one: Permitted
    wanted: int
    permitted: int
    began: int = 0
    ended: int = 0

    @property
    def place(self) -> tuple[int, int, Phase]:
        return self.one.step, self.one.layer, self.one.phase


@dataclass(frozen=True, slots=True)
class _Finished:
    """An all-to-all that has ended on all ranks; size: bytes of a row."""

    ranks: Sequence[_Begun]
    plan: Plan
    routing: Routing
    size: int
    carried: Links


class _Run:
    """One script: the controller's loop over what ranks announce."""

    def __init__(
        self,
        training: ExpertTraining,
        script: Script,
        layers: int,
        plan: Plan,
        first: FirstExchange | None,
        *,
        count: bool,
        rings: bool,
        listener: PrintedLines | None,
    ) -> None:
        self._training, self._script, self._plan = training, script, plan
        self._clock = training.clock
        self._control = CircuitControl(training.placement, layers, first)
        self._messages: queue.SimpleQueue[tuple[int, Any, int]] = queue.SimpleQueue()
        self._listener = listener or PrintedLines()
        self._changes: list[CircuitChange] = []
        self._finished: list[_Finished] = []
        self._place: tuple[int, int, Phase] | None = None
        self._transfers: list[Transfer] = []
        self._stages: dict[int, Any] = {}
        self._counts, self._rings = count, rings
        self._periods: list[LinkPeriod] = []
        self._planned: Counter[tuple[Port, Port]] = Counter()
        self._asked: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._running: dict[int, _Begun] = {}

    def result(self) -> TrainedExperts:
        """Run it to its end."""
        training = self._training
        self._routing = training.bring_in(self._plan, None).routing
        self._read, self._again = training.traffic() if self._counts else ({}, {})
        module = training.module(
            lambda rank, message, at: self._messages.put((rank, message, at.latest)),
            rings=self._rings,
        )
        ranks = range(training.placement.ranks)
        run = training.session.run(
            self._script,
            self._listener,
            control="watched",
            groups={"all": ranks},
            module=module,
            beside=[partial(self._loop, len(ranks))],
            ended=lambda rank: self._messages.put((rank, None, 0)),
        )
        self._end_period()
        return TrainedExperts(
            run.printed,
            list(map(self._described, self._finished)),
            self._changes,
            self._control.predictions,
            self._periods,
        )

    def _loop(self, left: int) -> None:
        while left:
            rank, message, at = self._messages.get()
            if message is None:
                left -= 1
                continue
            self._take(rank, message, at)
            if self._messages.empty():
                self._advance()

    def _take(self, rank: int, message: Any, at: int) -> None:
        if "added" in message:
            self._planned.update(ring_bytes(self._training.rings, message["added"]))
        elif "wants" in message:
            self._control.wants(rank, message["wants"])
            self._asked[rank], self._sizes[rank] = at, message["size"]
        else:
            self._control.ended(rank)
            self._finish(rank, message)

    def _advance(self) -> None:
        if (due := self._control.due()) is not None:
            self._change(due)
        for permitted in self._control.permitted():
            self._permit(permitted)
        self._control.learn()

    def _change(self, due: DueChange) -> None:
        began = self._clock.now()
        plan = self._training.plan_for(due, self._plan)
        planned = self._clock.now()
        new = NewCircuits(self._routing, 0, planned, planned, planned, planned)
        if plan.circuits != self._plan.circuits:
            self._end_period()
            new = self._training.bring_in(plan, self._plan)
            self._routing, self._plan = new.routing, plan
        self._control.changed()
        self._changes.append(
            CircuitChange(
                step=due.step,
                layer=due.layer,
                before=due.before,
                knows=due.knows,
                moved=new.moved,
                began=began,
                planned=planned,
                left=new.left,
                switched=new.switched,
                lit=new.lit,
                done=new.done,
            )
        )

    def _permit(self, one: Permitted) -> None:
        place = (one.step, one.layer, one.phase)
        if self._place != place:
            on = self._training.placement
            self._place = place
            self._transfers = rank_transfers(one.traffic, on, self._routing)
            self._stages = rank_stages(self._transfers, on, self._routing)
        self._running[one.rank] = _Begun(one, self._asked[one.rank], self._clock.now())
        self._training.session.ranks[one.rank].tell({"stages": self._stages[one.rank]})

    def _end_period(self) -> None:
        """Note what links have carried since the last time, now that no all-to-all runs."""
        if not self._counts:
            return
        read, sent_again = self._training.traffic()
        counted = {port: now.since(self._read[port]) for port, now in read.items()}
        again = {name: now - self._again[name] for name, now in sent_again.items()}
        self._periods.append(LinkPeriod(self._plan, dict(self._planned), counted, again))
        self._read, self._again = read, sent_again
        self._planned.clear()

    def _finish(self, rank: int, message: Any) -> None:
        begun = self._running[rank]
        begun.began, begun.ended = message["began"], message["over"]
        same = [each for each in self._running.values() if each.ended and each.place == begun.place]
        if len(same) == self._training.placement.ranks:
            size = self._sizes[rank]
            carried = link_bytes(self._transfers, size)
            self._planned.update(carried)
            self._finished.append(_Finished(same, self._plan, self._routing, size, carried))

    def _described(self, finished: _Finished) -> TrainingExchange:
        """Return an all-to-all with what takes time to compute, for which no rank is to wait."""
        training, one = self._training, finished.ranks[0].one
        lanes, optical = training.shares(finished.routing, one.traffic)
        return TrainingExchange(
            step=one.step,
            layer=one.layer,
            phase=one.phase,
            traffic=one.traffic * finished.size,
            plan=finished.plan,
            optical=optical,
            wanted=max(each.wanted for each in finished.ranks),
            permitted=max(each.permitted for each in finished.ranks),
            began=max(each.began for each in finished.ranks),
            ended=max(each.ended for each in finished.ranks),
            predicted=training.predicted(finished.plan, finished.routing, lanes, finished.size),
            carried=finished.carried,
        )
