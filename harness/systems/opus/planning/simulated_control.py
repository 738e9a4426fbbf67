"""The control plane of `lightrig train` in a simulated step: shims, controller, orchestrator.

They are the programs themselves; only ranks, the switch and time are simulated. What they tell
each other takes no time, as between threads of one process. A rank's phase table is the order in
which its communication ends where circuits never change. A receive is posted once all that the
table has before it has begun, and a send and its receive are one operation, as the controller has
it: neither begins before both ranks have asked for it. So are the sends and receives of a batch
between two ranks, which each may list in an order of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import chain

from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.gathering import GATHERING, Gathering
from lightrig.harness.systems.opus.planning.messages import (
    Message,
    Program,
    Programmed,
    Release,
    Rewire,
    Rewired,
    TopoWrite,
)
from lightrig.harness.systems.opus.planning.operations import (
    CommunicationGroup,
    Operation,
    RailJob,
)
from lightrig.harness.systems.opus.planning.orchestrator import Orchestrator
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.switch_commands import SwitchCommands
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.planning.wiring import Attachment, RailWiring
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import FRONT_END, Kind, Workload, WorkloadError
from lightrig.harness.workloads.networks import DedicatedLinks, Switching
from lightrig.harness.workloads.simulator import Simulator, StepTimes


class _Profile:
    """Notes in which order the rail's communication of each rank ends."""

    def __init__(self, ranks: int) -> None:
        self.order: list[list[int]] = [[] for _ in range(ranks)]

    def may_start(self, simulator: Simulator, rank: int, number: int) -> bool:
        return True

    def ended(self, simulator: Simulator, rank: int, number: int) -> None:
        if _on_rail(simulator, rank, number):
            self.order[rank].append(number)


def _on_rail(simulator: Simulator, rank: int, number: int) -> bool:
    node = simulator.node(rank, number)
    if node.kind is not Kind.COLLECTIVE:
        return True
    group = simulator.group(rank, number)
    return len(group.members) > 1 and group.kind != FRONT_END


class SimulatedRails:
    """The control plane of rails, which asks, grants and changes circuits as ranks go on.

    order: of each rank, its operations on its rail, each with the nodes that it joins.
    gathering: how long changes wait for further stages, in ns. job: whose ranks they are; by
    default of one rail and one kind of rings.
    All rails are on one switch.
    """

    def __init__(
        self,
        workload: Workload,
        network: DedicatedLinks,
        order: Sequence[Sequence[tuple[int, ...]]],
        mode: Mode,
        switching: Switching,
        gathering: int = GATHERING,
        job: RailJob | None = None,
    ) -> None:
        self._network, self._order, self._switching = network, order, switching
        self._places = [
            {number: place for place, joined in enumerate(each) for number in joined}
            for each in order
        ]
        self._running: list[Counter[int]] = [Counter(each.values()) for each in self._places]
        stages = max(workload.stages) + 1
        self.job = job or RailJob.grid("simulated", stages, [len(order) // stages])
        if workload.stages != self.job.stage_of:
            raise WorkloadError("the ranks of a stage are not consecutive, as rails have them")
        groups = {frozenset(group.ranks): group for group in self.job.groups.values()}
        tables = [
            numbered([self._operation(workload, rank, joined[0], groups) for joined in operations])
            for rank, operations in enumerate(order)
        ]
        still = len({each.dimension for each in chain.from_iterable(tables)}) == 1
        self._shims = [
            Shim(
                rank,
                self.job.stage_of[rank],
                PhaseTable(table, steps=1, still=still, profiled_steps=1),
                mode,
            )
            for rank, table in enumerate(tables)
        ]
        begun = TopologyId.uniform(stages, tables[0][0].dimension)
        self.controller = Controller.of(self.job, begun)
        count = len(order)
        ports = {
            rank: [Attachment(2 * rank + port, 2 * (count + rank) + port) for port in (1, 2)]
            for rank in range(count)
        }
        self._rails = range(self.job.rails)
        self.wirings = [RailWiring.of(self.job, rail, ports) for rail in self._rails]
        self.orchestrators = [
            Orchestrator.of(rail, {self.job.name: (wiring, begun)})
            for rail, wiring in enumerate(self.wirings)
        ]
        self._commands, self._gathering = SwitchCommands(), Gathering(gathering)
        self._switch_works = False

    @staticmethod
    def _operation(
        workload: Workload,
        rank: int,
        number: int,
        groups: Mapping[frozenset[int], CommunicationGroup],
    ) -> Operation:
        node = workload.graph(rank).nodes[number]
        members: tuple[int, ...] = (rank, rank + node.peer)
        if node.kind is Kind.COLLECTIVE:
            members = workload.groups[rank][node.group].members
        group = groups.get(frozenset(members))
        if group is None:
            raise WorkloadError(
                f"rank {rank}: node {number} is between ranks {', '.join(map(str, members))}: "
                "circuits of a rail join ranks of a stage, and of neighbouring stages"
            )
        return Operation(group.name, 0, group.dimension)

    # ------------------------------------------------------------------------- ranks

    def begin(self, simulator: Simulator) -> None:
        """Post the receives that ranks begin with."""
        for rank in range(len(self._shims)):
            self._post_receive(simulator, rank)

    def may_start(self, simulator: Simulator, rank: int, number: int) -> bool:
        """Whether a rank's next operation is granted; one that is not is asked for."""
        if not _on_rail(simulator, rank, number):
            return True
        place = self._places[rank][number]
        if place == self._shims[rank].position:
            if not self._shims[rank].announced:
                self._announce(simulator, rank)
            if place == self._shims[rank].position and self._shims[rank].may_start:
                self._start(simulator, rank)
        return place < self._shims[rank].position

    def ended(self, simulator: Simulator, rank: int, number: int) -> None:
        """Give back what was granted, or ask for what comes next."""
        if not _on_rail(simulator, rank, number):
            return
        place = self._places[rank][number]
        self._running[rank][place] -= 1
        if self._running[rank][place]:
            return
        operation = self._shims[rank].table.at(place)
        assert operation is not None
        self._shims[rank], sent = self._shims[rank].post_comm(operation)
        self._deliver(simulator, sent)

    def _next(self, simulator: Simulator, rank: int) -> set[Kind]:
        """Return of which kinds the nodes of a rank's next operation are; none after its last."""
        order, position = self._order[rank], self._shims[rank].position
        joined = order[position] if position < len(order) else ()
        return {simulator.node(rank, number).kind for number in joined}

    def _announce(self, simulator: Simulator, rank: int) -> None:
        operation = self._shims[rank].table.at(self._shims[rank].position)
        assert operation is not None
        self._shims[rank], _, sent = self._shims[rank].pre_comm(operation)
        self._deliver(simulator, sent)

    def _start(self, simulator: Simulator, rank: int) -> None:
        self._shims[rank] = self._shims[rank].started()
        self._post_receive(simulator, rank)

    def _post_receive(self, simulator: Simulator, rank: int) -> None:
        if self._next(simulator, rank) != {Kind.RECEIVE}:
            return
        if not self._shims[rank].announced:
            self._announce(simulator, rank)
        self._granted(simulator, rank)

    def _granted(self, simulator: Simulator, rank: int) -> None:
        """Begin receives that were granted, and let the rank begin what it waits with."""
        if not self._shims[rank].may_start:
            return
        kinds = self._next(simulator, rank)
        if Kind.RECEIVE in kinds:
            self._start(simulator, rank)
        if kinds != {Kind.RECEIVE}:
            simulator.wake(rank)

    # ------------------------------------------------------------------------- messages

    def _deliver(self, simulator: Simulator, messages: Sequence[Message]) -> None:
        """Hand over messages, and those that they lead to."""
        undelivered = deque(messages)
        granted: list[int] = []
        while undelivered:
            message = undelivered.popleft()
            sent: tuple[Message, ...] = ()
            match message:
                case TopoWrite() | Release() | Programmed():
                    self.controller, sent = self.controller.receive(message)
                case Program() | Rewired():
                    of_rail = self.orchestrators[message.rail].receive(message)
                    self.orchestrators[message.rail], sent = of_rail
                case Rewire():
                    self._commands.add(message)
                case _:
                    rank = message.rank  # type: ignore[union-attr]
                    self._shims[rank] = self._shims[rank].receive(message)  # type: ignore[arg-type]
                    granted.append(rank)
            undelivered += sent
        for _ in self._gathering.note(self.controller.due(), simulator.now):
            begins = self._gathering.next(self._rails)
            assert begins is not None
            simulator.at(begins, lambda: self._begin_changes(simulator))
        self._work(simulator)
        for rank in granted:
            self._granted(simulator, rank)

    def _begin_changes(self, simulator: Simulator) -> None:
        messages: list[Message] = []
        for rail, _ in self._gathering.take(simulator.now, self._rails):
            self.controller, sent = self.controller.change(rail)
            messages += sent  # together: what rails want of the switch at once is one command
        self._deliver(simulator, messages)

    def _work(self, simulator: Simulator) -> None:
        """Let the switch, if it is free, carry out what waits for it as one command."""
        if self._switch_works or not (rewires := self._commands.take()):
            return
        self._switch_works = True
        self._network.changes += 1
        took = self._switching if isinstance(self._switching, int) else self._switching()
        simulator.at(simulator.now + took, lambda: self._done(simulator, rewires))

    def _done(self, simulator: Simulator, rewires: Sequence[Rewire]) -> None:
        self._switch_works = False
        for rewire in rewires:
            self._commands.done(rewire)
        self._deliver(
            simulator,
            [Rewired(each.rail, each.job, each.version, each.attempt) for each in rewires],
        )


def profiled(
    workload: Workload, bandwidths: Mapping[str, float], timing: Timing
) -> list[list[int]]:
    """Return each rank's communication on the rail, in the order in which it ends without change.

    Bandwidths in bytes a ns, by kind. Raises `WorkloadError` for a step that does not end.
    """
    profile = _Profile(len(workload.graph_of))
    Simulator(workload, DedicatedLinks(bandwidths, timing), profile).run()
    return profile.order


def controlled(
    workload: Workload,
    bandwidths: Mapping[str, float],
    timing: Timing,
    switching: Switching,
    mode: Mode,
    gathering: int = GATHERING,
    order: Sequence[Sequence[int]] | None = None,
) -> StepTimes:
    """Return a step whose circuits the product's control plane changes; times in ns.

    order: what `profiled` returns, where it is known.
    Raises `WorkloadError` for communication that rails do not carry.
    """
    order = profiled(workload, bandwidths, timing) if order is None else order
    network = DedicatedLinks(bandwidths, timing)
    if not all(order):
        raise WorkloadError(
            "a rank has no communication out of its server, so that no circuits need a controller"
        )
    alone = [[(number,) for number in each] for each in order]
    rails = SimulatedRails(workload, network, alone, mode, switching, gathering)
    simulator = Simulator(workload, network, rails)
    simulator.at(0, lambda: rails.begin(simulator))
    return simulator.run()
