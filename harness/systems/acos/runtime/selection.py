"""Decentralised topology selection: each server moves the switches at its ports (§4.4).

At the boundary of a collective a server selects the next topology on its 1xN switches, waits for
a link on every port that it reconfigured, and joins the collective. No message passes between
servers for that: a 1xN leads no light into a branch that is not selected, so a link shows that the
neighbour has selected the same topology. It does not show for which collective: a server that
has been away and is back sees the light of a neighbour that is a collective behind. Collectives
are therefore numbered where servers join them, as a collective library does for its operations.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from lightrig.harness.bench import Fabric
from lightrig.harness.workloads.selection import LinkSelection
from lightrig.instruments.clock import Clock, Event, Span
from lightrig.instruments.core.capabilities import PortWatch, Stage
from lightrig.instruments.core.errors import NotDoneError
from lightrig.testbeds import LightrigError, Plan, Testbed

POLL_PERIOD_NS = 1_000_000
"""Period at which a server reads the carriers of its ports."""

UNNOTICED_NS = 100_000_000
"""A port that still has its carrier so long after its switch moved lost it too briefly to be
seen; it is not waited for."""

LOOK_AGAIN_NS, LONGEST_LOOK_NS = 10_000_000, 320_000_000
"""Time after which missing carriers are read again: at first, and after several waits."""

LINK_TIMEOUT_NS = 10_000_000_000
"""Longest time that links may take to come up: NIC firmware takes seconds."""


class NoLinkError(LightrigError):
    """A server has selected a topology and its neighbours' light does not come."""


class CollectiveError(LightrigError):
    """A collective failed in another of its members."""


class CollectiveTimeoutError(CollectiveError):
    """Members of a collective did not join it in time."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """One boundary between collectives, as one server passed it.

    Attributes:
        number: of the collective that begins here.
        topology: the plan that it runs on.
        reached: when the server was ready to select the topology, in ns on the bench's clock.
        sent: between which stamps the commands to its switches were written.
        switched: when the last of its switches had acknowledged; None where none had to move.
        linked: when it saw a link on every port that it reconfigured.
        began: when all members had joined.
    """

    server: str
    number: int
    topology: str
    reached: int
    sent: Span
    switched: Span | None
    linked: int
    began: int


class CollectiveLibrary(Protocol):
    """Runs collectives among the servers that join them."""

    def join(self, server: str, number: int, topology: str) -> int:
        """Join the collective of that number and return, once it has ended, when it began.

        Raises `CollectiveTimeoutError`, or `CollectiveError` where the collective failed.
        """


class NumberedCollectives:
    """Collectives that begin when their last member joins, told apart by number and topology.

    Args:
        members: of each topology, the groups of servers that run a collective of their own.
        operation: what a collective does, run once, by the member that joins last.
        timeout_ns: how long a member waits for the others, and for the operation.
    """

    def __init__(
        self,
        clock: Clock,
        members: Mapping[str, Sequence[frozenset[str]]],
        operation: Callable[[frozenset[str], int, str], None],
        *,
        timeout_ns: int = 30_000_000_000,
    ) -> None:
        self._clock = clock
        self._members = members
        self._operation = operation
        self._timeout_ns = timeout_ns
        self._lock = Lock()
        self._joined: dict[tuple[int, str, frozenset[str]], set[str]] = {}
        self._begun: dict[tuple[int, str, frozenset[str]], tuple[Event, list[int]]] = {}
        self._failed: dict[tuple[int, str, frozenset[str]], LightrigError] = {}

    def join(self, server: str, number: int, topology: str) -> int:
        """See `CollectiveLibrary`."""
        group = next(group for group in self._members[topology] if server in group)
        key = number, topology, group
        with self._lock:
            joined = self._joined.setdefault(key, set())
            joined.add(server)
            complete = joined == group
            ended, began = self._begun.setdefault(key, (self._clock.event(), []))
        if complete:
            began.append(self._clock.now())
            try:
                self._operation(group, number, topology)
            except LightrigError as error:
                self._failed[key] = error
                raise
            finally:
                ended.set()
        elif not ended.wait(self._timeout_ns):
            with self._lock:
                missing = ", ".join(sorted(group - joined)) or "the operation itself"
            raise CollectiveTimeoutError(
                f"{server} waited {self._timeout_ns / 1e9:g} s in collective {number} on "
                f"{topology} for {missing}: is its training script at the same collective?"
            )
        if (cause := self._failed.get(key)) is not None:
            raise CollectiveError(f"collective {number} on {topology} failed: {cause}") from cause
        return began[0]


class TopologySelector:
    """The switches and ports of one server, which alone it knows; it may run beside all others.

    Args:
        fabric: whose adaptation and resilience switches a central controller has set.
        server: its name.
        link_timeout_ns: longest time that links may take.
    """

    def __init__(
        self, fabric: Fabric, server: str, *, link_timeout_ns: int = LINK_TIMEOUT_NS
    ) -> None:
        testbed = fabric.testbed
        self.server = server
        self.switches = selection_switches(testbed, server)
        self._fabric = fabric
        self._clock = fabric.bench.clock
        self._nics = fabric.bench.servers[server]
        self._link_timeout_ns = link_timeout_ns
        self._ports = {
            spec.netdev: spec.port for spec in testbed.nic_ports if spec.port.owner == server
        }
        self._selected: str | None = None
        watched = [PortWatch(netdev) for netdev in self._ports]
        up = self._nics.watch(watched, period=POLL_PERIOD_NS, datagram_period=None)
        self._up = {netdev for netdev, stage in up if stage == "carrier"}

    def select(self, topology: str, number: int) -> tuple[Span, Span | None]:
        """Select the plan `topology` for collective `number`, and wait for its links.

        Return when the commands were sent and when the last switch had acknowledged; None where
        the topology was selected already.

        Raises:
            NoLinkError: light of a neighbour did not come, which has not selected the topology.
            NotDoneError: a switch of this server said done and is not.
            InstrumentError: a switch or the server failed.
        """
        now = self._clock.now()
        if topology == self._selected:
            return Span(now, now), None
        plan = self._fabric.plans[topology]
        self._selected = None  # until its links are there: a failed selection is done again
        sent, switched = self._select(plan)
        self._await_links(plan, sent.earliest, number)
        self._selected = topology
        return sent, switched

    def close(self) -> None:
        """Stop observing the server's ports."""
        self._nics.unwatch()

    def _select(self, plan: Plan) -> tuple[Span, Span]:
        """Move this server's switches, all at once; return when that was sent and acknowledged."""
        switches = self._fabric.bench.switches
        for name in self.switches:
            self._fabric.note_selection(name, plan.circuits[name])
        moves = [switches[name].change((), plan.circuits[name]) for name in self.switches]
        sent = Span(
            min(move.sent.earliest for move in moves), max(move.sent.latest for move in moves)
        )
        return sent, max(move.done() for move in moves)

    def _await_links(self, plan: Plan, since: int, number: int) -> None:
        """Wait until every port that `plan` lights has a link that is newer than `since`."""
        joined = {
            port: far
            for link in self._fabric.links(plan)
            for port, far in ((link.a, link.b), (link.b, link.a))
        }
        needed = {netdev for netdev, port in self._ports.items() if port in joined}
        wanted = set(needed)
        noticed_by, deadline = since + UNNOTICED_NS, since + self._link_timeout_ns
        look_again = LOOK_AGAIN_NS
        while wanted and (now := self._clock.now()) < deadline:
            # Not until the deadline: a link that came up while the switches of a busy server still
            # moved has no event after this. An event ends the wait at once, so that longer waits
            # delay nothing else.
            until = min(max(noticed_by, now + look_again), deadline)
            look_again = min(2 * look_again, LONGEST_LOOK_NS)
            for netdev, up in self._hear(wanted, since, until - now):
                # Light that goes again: the neighbour has moved on, or moves only now.
                wanted = wanted - {netdev} if up else wanted | ({netdev} & needed)
            if self._clock.now() >= noticed_by:
                wanted -= self._up
        if not wanted:
            return
        self._check_switches(plan)
        dark = [self._ports[netdev] for netdev in sorted(wanted)]
        listed = ", ".join(f"{port} from {joined[port]}" for port in dark)
        raise NoLinkError(
            f"{self.server} selected {plan.name} for collective {number} and has no link after "
            f"{self._link_timeout_ns / 1e9:g} s: {listed}; its own switches report {plan.name}. "
            "Has the neighbour selected it too, does its process run?"
        )

    def _hear(self, wanted: set[str], since: int, timeout_ns: int) -> list[tuple[str, bool]]:
        """Wait for the carriers of `wanted`; return carrier events after `since`, oldest first."""
        stages: dict[str, Sequence[Stage]] = dict.fromkeys(wanted, ("carrier",))
        settled = self._nics.settle(stages, timeout=timeout_ns).result()
        events = [event for event in settled.events if event.stage == "carrier"]
        for event in events:
            (self._up.add if event.up else self._up.discard)(event.port)
        return [(event.port, event.up) for event in events if event.at.latest >= since]

    def _check_switches(self, plan: Plan) -> None:
        for name in self.switches:
            switch = self._fabric.bench.switches[name]
            present = switch.circuits()
            if present != plan.circuits[name]:
                found = ", ".join(map(str, sorted(present))) or "dark"
                raise NotDoneError(
                    name,
                    f"acknowledged its move for {plan.name}, and reports {found}",
                    trace=switch.wire()[-6:],
                )


class SelectionAgent(TopologySelector):
    """Actions of one server at the boundaries of its collectives.

    Args:
        fabric, server, link_timeout_ns: as of `TopologySelector`.
        library: its collectives.
    """

    def __init__(
        self,
        fabric: Fabric,
        server: str,
        library: CollectiveLibrary,
        *,
        link_timeout_ns: int = LINK_TIMEOUT_NS,
    ) -> None:
        super().__init__(fabric, server, link_timeout_ns=link_timeout_ns)
        self._library = library

    def run(
        self,
        program: Sequence[str],
        compute_ns: Sequence[int] = (),
        report: Callable[[Boundary], None] = lambda _: None,
    ) -> list[Boundary]:
        """Run collectives on the plans that `program` names, one after the other.

        Args:
            program: the plan of each collective.
            compute_ns: how long this server computes before each; nothing where it is empty.
            report: called as soon as each collective has ended.

        Raises:
            NoLinkError: light of a neighbour did not come, which has not selected the topology.
            CollectiveTimeoutError: a neighbour is at another collective.
            CollectiveError: the collective failed.
            NotDoneError: a switch of this server said done and is not.
            InstrumentError: a switch or the server failed.
        """
        passed = []
        links = LinkSelection()
        for number, topology in enumerate(program):
            if compute_ns:
                self._clock.sleep(compute_ns[number])
            reached = self._clock.now()
            sent, switched = Span(reached, reached), None
            links = links.wants(number, topology)
            if links.due == "select":
                links = links.begin()
                sent, switched = self.select(topology, number)
                links = links.over()
            linked = self._clock.now()
            links = links.start()
            began = self._library.join(self.server, number, topology)
            links = links.end(number)
            passed.append(
                Boundary(self.server, number, topology, reached, sent, switched, linked, began)
            )
            report(passed[-1])
        return passed


def selection_switches(testbed: Testbed, server: str) -> list[str]:
    """Return the switches that the fibers of a server's ports end at: those it moves itself."""
    found: dict[str, None] = {}
    for spec in testbed.nic_ports:
        if spec.port.owner != server:
            continue
        ends = testbed.cabling.ingress_of(spec.port), testbed.cabling.egress_of(spec.port)
        found |= {end[0]: None for end in ends if end is not None}
    return list(found)


def central_part(testbed: Testbed, plan: Plan) -> Plan:
    """Return what of `plan` the central controller sets: adaptation and resilience (§4.4)."""
    selection = {name for server in testbed.servers for name in selection_switches(testbed, server)}
    central = {name: present for name, present in plan.circuits.items() if name not in selection}
    return Plan(f"{plan.name}, without selection", central)


def groups(testbed: Testbed, topologies: Collection[str]) -> dict[str, list[frozenset[str]]]:
    """Return the groups of servers that the links of each plan join, in the file's order."""
    import networkx as nx  # suites are collected without it

    found = {}
    for topology in topologies:
        graph = nx.Graph((link.a.owner, link.b.owner) for link in testbed.links(topology))
        found[topology] = [frozenset(part) for part in nx.connected_components(graph)]
    return found
