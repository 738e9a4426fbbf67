"""A server dies in a ring of servers, the ring closes past it, and it comes back: how fast?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.bench import Fabric
from harness.measure.links import LinkObservation
from harness.measure.reconfiguration import IncompleteError, rising_ports
from harness.measure.recovery import WrongTrafficError
from harness.record import Row, Scalar
from instruments.clock import Span
from instruments.traffic import MortalTrafficSource, Traffic
from testbeds import LightrigError, Plan, Port

EventKind = Literal["bypass", "return"]

Stage = Literal[
    "carrier_down",
    "detected",
    "planned",
    "switched",
    "carrier_up",
    "first_datagram",
    "routed",
    "first_collective",
]
"""What happens one after another, each once all that it takes is done."""

_RUNNING_NS = 500_000_000
"""How long all-reduces run before a server dies, and once the ring is closed again."""


class NotNoticedError(LightrigError):
    """A server died, and its neighbours did not lose their carriers."""


@dataclass(frozen=True)
class Collective:
    """All-reduces that a ring of servers keeps going.

    Attributes:
        source: who runs them; one that a server can be taken from.
        route: gives the servers routes over the links of a plan.
        ring: the servers that are alive, in the order of the ring that a plan closes.
        size: of an all-reduce, in bytes.
    """

    source: MortalTrafficSource
    route: Callable[[Plan], object]
    ring: Callable[[Plan], Sequence[str]]
    size: int


@dataclass
class Passage:
    """One death of a server, or its return, by stages.

    Attributes:
        kind: which of the two.
        server: which server.
        began: when it was cut off its power, or given it back, on the bench's clock.
        stages: when each was done, on the bench's clock, as far as it was seen.
        ranks: how many servers are in the ring afterwards.
    """

    kind: EventKind
    server: str
    began: Span
    ranks: int
    stages: dict[Stage, Span] = field(default_factory=dict)

    def after(self) -> dict[Stage, Span]:
        """How long after the beginning each stage was done, in ns; nothing happens before."""
        found: dict[Stage, Span] = {}
        for stage, at in self.stages.items():
            low, high = at.since(self.began)
            found[stage] = Span(max(low, 0), max(high, 0))
        return found


def pass_dead_server(
    fabric: Fabric,
    links: LinkObservation,
    held: Plan,
    server: str,
    kill: Callable[[], object],
    planned: Callable[[], Plan],
    collective: Collective | None = None,
    *,
    timeout: int,
) -> Passage:
    """Let `server` die in the ring that `held` closes, and close the ring past it.

    Its neighbours notice that their carriers fall, all of them; then it is planned, the modules
    switch, and links, datagrams and the first all-reduce on the new ring are awaited.

    Args:
        fabric: whose circuits change.
        links: the observation of the servers' links.
        held: the plan in place; its links are up.
        server: who dies.
        kill: cuts it off.
        planned: what the control plane makes of the failure: what changes.
        collective: all-reduces that run meanwhile, where there is anybody to run them.
        timeout: how long the neighbours, and then the new links, may take, in ns.

    Raises:
        NotNoticedError: the neighbours' carriers stayed.
        WrongTrafficError: values came out wrong.
        IncompleteError: the new links did not come up.
        CollectiveFailedError: the servers that live do not find each other again.
        InstrumentError: a module refused or failed.
    """
    clock = fabric.bench.clock
    running = None
    if collective is not None:
        collective.route(held)
        ring = collective.ring(held)
        running = collective.source.start(ring, collective.size)
        clock.sleep(_RUNNING_NS)
    beside = {
        port
        for link in fabric.links(held)
        for port, far in ((link.a, link.b), (link.b, link.a))
        if far.owner == server
    }
    links.begin()
    links.lost((), 0, 0)  # what happened before is of no interest
    before = clock.now()
    kill()
    found = Passage("bypass", server, Span(before, clock.now()), len(fabric.testbed.servers) - 1)
    try:
        lost = links.lost(beside, before, timeout)
        noticed = clock.now()
    finally:
        if running is not None:
            _check(running.abandon(), found)
    if beside - lost.keys():
        stayed = ", ".join(map(str, sorted(beside - lost.keys())))
        raise NotNoticedError(f"{server} died, and these ports still have a carrier: {stayed}")
    found.stages["carrier_down"] = max(lost.values())
    found.stages["detected"] = _at(noticed)
    _close(fabric, links, found, planned, timeout)
    if collective is not None:
        # Nobody could tell since its light went whether its program runs.
        collective.source.kill(server)
        _run_again(fabric, links, found, collective)
    return found


def take_back(
    fabric: Fabric,
    links: LinkObservation,
    server: str,
    revive: Callable[[], object],
    planned: Callable[[], Plan],
    collective: Collective | None = None,
    *,
    timeout: int,
) -> Passage:
    """Let a server that died live again, and take it into the ring.

    It says itself that it is back, so nothing has to be detected. Arguments and errors are those
    of `pass_dead_server`.
    """
    clock = fabric.bench.clock
    links.begin()
    before = clock.now()
    revive()
    found = Passage("return", server, Span(before, clock.now()), len(fabric.testbed.servers))
    _close(fabric, links, found, planned, timeout)
    if collective is not None:
        _run_again(fabric, links, found, collective)
    return found


def _close(
    fabric: Fabric,
    links: LinkObservation,
    found: Passage,
    planned: Callable[[], Plan],
    timeout: int,
) -> None:
    """Go to what is planned, and wait until the links that it makes carry datagrams."""
    clock, stages = fabric.bench.clock, found.stages
    plan = planned()
    stages["planned"] = _at(clock.now())
    transition = fabric.prepare(plan)
    # From the very beginning: a server that is back lights whoever still looks its way.
    transition.begin()
    stages["switched"] = transition.acknowledged()
    transition.verify()
    rising = rising_ports(fabric, transition)
    changes, unfinished = links.changes(rising, found.began.earliest, timeout)
    if unfinished:
        fabric.bench.check_world()
        missing = ", ".join(f"{port} {stage}" for port, stage in unfinished)
        raise IncompleteError(f"the ring did not close past {found.server}; not seen: {missing}")
    carrier: dict[Port, Span] = {}
    datagram: dict[Port, Span] = {}
    for port, event in changes:
        if event.up and port in rising and event.stage == "carrier":
            carrier[port] = event.at  # up for good, should it flap
        elif event.up and port in rising and event.stage == "datagram":
            datagram.setdefault(port, event.at)
    if carrier:
        stages["carrier_up"] = max(carrier.values())
    if datagram:
        stages["first_datagram"] = max(datagram.values())


def _run_again(
    fabric: Fabric, links: LinkObservation, found: Passage, collective: Collective
) -> None:
    """Begin all-reduces on the ring that is closed, and keep when the first one was done."""
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


def _check(traffic: Traffic, found: Passage) -> None:
    if traffic.wrong:
        raise WrongTrafficError(
            f"{traffic.wrong} values came out wrong in all-reduces among "
            f"{', '.join(traffic.ranks)} around the {found.kind} of {found.server}"
        )


def _in_place(fabric: Fabric) -> Plan:
    """What all switches hold now."""
    switches = fabric.bench.switches
    held = fabric.bench.clock.parallel(*(switch.circuits for switch in switches.values()))
    return Plan("in place", dict(zip(switches, held, strict=True)))


def passage_rows(found: Passage, number: int) -> Iterator[Row]:
    """Each stage as a row of its own, after the death or the return."""
    held: dict[str, Scalar] = {"event": number, "ranks": found.ranks}
    time = found.began.earliest
    for stage, (low, high) in found.after().items():
        quantity = f"{found.kind}.{stage}"
        yield Row(found.server, quantity, (low + high) // 2, low, high, "ns", time, held)
