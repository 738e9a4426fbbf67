"""Bypass of a failed server in a ring of servers, and its rejoin, by stage."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.findings import NOT_SEEN, each_at
from lightrig.harness.jobs.measure.recovery import WrongTrafficError
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.moved_ports import rising_ports
from lightrig.harness.measure.reconfiguration import IncompleteError, datagram_stages, link_stages
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import CARRIER_DOWN, CARRIER_UP, FIRST_DATAGRAM, StageName
from lightrig.instruments.jobs.core.traffic import MortalTrafficSource, Traffic
from lightrig.testbeds import LightrigError, Plan

EventKind = Literal["bypass", "return"]

BypassStage: TypeAlias = (
    StageName | Literal["detected", "planned", "switched", "routed", "first_collective"]
)
"""Stages of a bypass or a rejoin; the links' are those of a reconfiguration."""

_RUNNING_NS = 500_000_000
"""Duration of the all-reduces before a failure, and after the ring is closed again."""


class NotNoticedError(LightrigError):
    """A server failed, and its neighbours did not lose their carriers."""


@dataclass(frozen=True)
class Collective:
    """All-reduces that a ring of servers keeps going.

    Attributes:
        source: runs the all-reduces, and can lose a server.
        route: sets the servers' routes over the links of a plan.
        ring: returns the healthy servers in the order of the ring that a plan closes.
        size: bytes of an all-reduce.
    """

    source: MortalTrafficSource
    route: Callable[[Plan], object]
    ring: Callable[[Plan], Sequence[str]]
    size: int


@dataclass
class NodeFailure:
    """Failure of a server or its return, by stages.

    Attributes:
        kind: "bypass" after a failure, "return" after a return.
        server: name of the server.
        began: when its power was cut or restored, on the bench's clock.
        stages: when each observed stage was complete, on the bench's clock.
        ranks: number of servers in the ring afterwards.
    """

    kind: EventKind
    server: str
    began: Span
    ranks: int
    stages: dict[BypassStage, Span] = field(default_factory=dict)

    def after(self) -> dict[BypassStage, Span]:
        """Return the time from the beginning to the end of each stage, in ns, at least 0."""
        found: dict[BypassStage, Span] = {}
        for stage, at in self.stages.items():
            low, high = at.since(self.began)
            found[stage] = Span(max(low, 0), max(high, 0))
        return found


def bypass_failed_node(
    fabric: Fabric,
    links: LinkObservation,
    plan: Plan,
    server: str,
    kill: Callable[[], object],
    planned: Callable[[], Plan],
    collective: Collective | None = None,
    *,
    timeout: int,
) -> NodeFailure:
    """Cut `server` off in the ring that `plan` closes, and close the ring without it.

    Wait until all its neighbours have lost their carriers, plan the bypass, switch the
    transceivers, and wait for links, datagrams and the first all-reduce on the new ring.

    Args:
        fabric: whose circuits change.
        links: the observation of the servers' links.
        plan: the plan in place; its links are up.
        server: name of the server that fails.
        kill: cuts its power.
        planned: returns the control plane's change of circuits for the failure.
        collective: all-reduces to run during the failure.
        timeout: of the neighbours' detection, and then of the new links, in ns.

    Raises:
        NotNoticedError: the neighbours' carriers stayed.
        WrongTrafficError: values came out wrong.
        IncompleteError: the new links did not come up.
        CollectiveFailedError: the healthy servers do not connect again.
        InstrumentError: a transceiver denied a command or failed.
    """
    clock = fabric.bench.clock
    running = None
    if collective is not None:
        collective.route(plan)
        ring = collective.ring(plan)
        running = collective.source.start(ring, collective.size)
        clock.sleep(_RUNNING_NS)
    beside = {
        port
        for link in fabric.links(plan)
        for port, far in ((link.a, link.b), (link.b, link.a))
        if far.owner == server
    }
    links.begin()
    links.lost((), 0, 0)  # drop earlier losses
    before = clock.now()
    kill()
    found = NodeFailure(
        "bypass", server, Span(before, clock.now()), len(fabric.testbed.servers) - 1
    )
    try:
        lost = links.lost(beside, before, timeout)
        noticed = clock.now()
    finally:
        if running is not None:
            _check(running.abandon(), found)
    if beside - lost.keys():
        stayed = ", ".join(map(str, sorted(beside - lost.keys())))
        raise NotNoticedError(f"{server} failed, and these ports still have a carrier: {stayed}")
    found.stages[CARRIER_DOWN.name] = max(lost.values())
    found.stages["detected"] = _at(noticed)
    _close(fabric, links, found, planned, timeout)
    if collective is not None:
        # Without a link to it, its rank can only be ended here.
        collective.source.kill(server)
        _run_again(fabric, links, found, collective)
    return found


def rejoin(
    fabric: Fabric,
    links: LinkObservation,
    server: str,
    revive: Callable[[], object],
    planned: Callable[[], Plan],
    collective: Collective | None = None,
    *,
    timeout: int,
) -> NodeFailure:
    """Restore a failed server's power, and take it into the ring again.

    The server announces itself, so there is no stage of detection. Arguments and errors are
    those of `bypass_failed_node`.
    """
    clock = fabric.bench.clock
    links.begin()
    before = clock.now()
    revive()
    found = NodeFailure("return", server, Span(before, clock.now()), len(fabric.testbed.servers))
    _close(fabric, links, found, planned, timeout)
    if collective is not None:
        _run_again(fabric, links, found, collective)
    return found


def _close(
    fabric: Fabric,
    links: LinkObservation,
    found: NodeFailure,
    planned: Callable[[], Plan],
    timeout: int,
) -> None:
    """Apply the planned change, and wait until the new links carry datagrams."""
    clock, stages = fabric.bench.clock, found.stages
    plan = planned()
    stages["planned"] = _at(clock.now())
    transition = fabric.prepare(plan)
    # Changes count from `began`: a server that is back lights detectors that still face it.
    transition.begin()
    stages["switched"] = transition.acknowledged()
    transition.verify()
    rising = rising_ports(fabric, transition)
    changes, unfinished = links.changes(rising, found.began.earliest, timeout)
    if unfinished:
        fabric.bench.check_world()
        missing = ", ".join(f"{port} {stage}" for port, stage in unfinished)
        sentence = f"the ring did not close past {found.server}; not seen: {missing}"
        raise IncompleteError(sentence, each_at(NOT_SEEN, [found.server]))
    of_new_links = [(port, event) for port, event in changes if port in rising]
    seen = [*link_stages(of_new_links), *datagram_stages(of_new_links, (), {})]
    for stage in (CARRIER_UP, FIRST_DATAGRAM):
        if moments := [one.at for one in seen if one.stage == stage.name]:
            stages[stage.name] = max(moments)


def _run_again(
    fabric: Fabric, links: LinkObservation, found: NodeFailure, collective: Collective
) -> None:
    """Start all-reduces on the closed ring, and note when the first one was complete."""
    clock, stages = fabric.bench.clock, found.stages
    links.pause()  # on servers that are one machine, watching takes what others need
    whole = _in_place(fabric)
    collective.route(whole)
    stages["routed"] = _at(clock.now())
    running = collective.source.start(collective.ring(whole), collective.size)
    clock.sleep(_RUNNING_NS)
    traffic = running.stop()
    _check(traffic, found)
    if completed := traffic.completed():
        stages["first_collective"] = completed[0][1]


def _at(moment: int) -> Span:
    return Span(moment, moment)


def _check(traffic: Traffic, found: NodeFailure) -> None:
    if traffic.wrong:
        raise WrongTrafficError(
            f"{traffic.wrong} values came out wrong in all-reduces among "
            f"{', '.join(traffic.ranks)} around the {found.kind} of {found.server}"
        )


def _in_place(fabric: Fabric) -> Plan:
    """Return the circuits of all switches as one plan."""
    switches = fabric.bench.switches
    circuits = fabric.bench.clock.parallel(*(switch.circuits for switch in switches.values()))
    return Plan("in place", dict(zip(switches, circuits, strict=True)))


def failure_rows(found: NodeFailure, number: int) -> Iterator[Row]:
    """Yield a row for each stage, as time after the failure or the return."""
    conditions: dict[str, Scalar] = {"event": number, "ranks": found.ranks}
    time = found.began.earliest
    for stage, (low, high) in found.after().items():
        quantity = f"{found.kind}.{stage}"
        yield Row(found.server, quantity, (low + high) // 2, low, high, "ns", time, conditions)
