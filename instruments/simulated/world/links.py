"""Links of simulated NIC ports: what follows loss of signal and its recovery."""

from collections.abc import Callable
from typing import NamedTuple

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.named_tuples import new_tuple
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.randomness import Chance, Stream
from lightrig.testbeds import Port, SimulatedNic

_HISTORY = 12


class Transition(NamedTuple):
    """A port's link goes up or down in one stage at a moment, past or planned.

    `partner` is at the other end, or was.
    """

    at: int
    stage: str
    up: bool
    partner: Port


class LinkTimeline:
    """Transitions of one port's link in order of time, planned ones included.

    Attributes:
        negotiates: whether the port has auto-negotiation.
        receivers: are called with the time at which light comes or goes, and whether it came, once
            what follows for the link is planned.
    """

    def __init__(self, name: str, draws: Stream) -> None:
        self.name = name
        self.draws = draws
        self.negotiates = True
        self.heard: Port | None = None
        self.partner: Port | None = None
        self.transitions: list[Transition] = []
        self.up: dict[str, bool] = {"firmware": False, "carrier": False, "datagram": False}
        self.listeners: list[Callable[[], None]] = []
        self.receivers: list[Callable[[int, bool], None]] = []

    def is_up(self, stage: str, now: int) -> bool:
        """Whether the link is up in `stage` at `now`."""
        for transition in reversed(self.transitions):
            if transition.stage == stage and transition.at <= now:
                return transition.up
        return False


class NicLinks:
    """All NIC ports of a simulated world.

    A link needs light both ways: a port whose partner hears nothing is told so (remote
    fault) and goes down as well. Firmware locks some time after both hear each other, the
    kernel's carrier follows, and traffic resumes once both ends have it.

    What follows from a change of light is planned at once and never needs the clock; what
    was planned and has not happened is forgotten when the light changes again.

    Attributes:
        history: how many past transitions of a port are kept.
    """

    def __init__(self, nic: SimulatedNic, clock: Clock, chance: Chance, truth: GroundTruth) -> None:
        self._is = nic
        self._clock = clock
        self._chance = chance
        self._truth = truth
        self._ports: dict[Port, LinkTimeline] = {}
        self.history = _HISTORY

    def timeline(self, port: Port) -> LinkTimeline:
        """Return the timeline of `port`; its `listeners` are called whenever more is planned."""
        if port not in self._ports:
            name = str(port)
            self._ports[port] = LinkTimeline(name, self._chance.stream(f"{name}/link"))
        return self._ports[port]

    def hears(self, port: Port, source: Port | None, at: int) -> None:
        """Let `port` receive the light of `source`, or none, from `at` on; from 0: since ever."""
        # In real time the clock's thread may come to a change of light long after it. Nothing may
        # then change before now: probes have read the ports since, and would never report it.
        at = max(at, self._clock.now()) if at else 0
        end = self.timeline(port)
        end.heard = source
        partner = end.partner
        if partner is not None and partner != source:
            self.part(port, partner, at)
        if source is not None and self.timeline(source).heard == port:
            self.join(min(port, source), max(port, source), at)
        for receiver in end.receivers:
            receiver(at, source is not None)

    def firmware_up(self, port: Port, after: int) -> int:
        """Return when firmware is up after a moment: as planned, or no earlier than it would be."""
        for at, stage, up, _ in self.timeline(port).transitions:
            if stage == "firmware" and up and at >= after:
                return at
        return after + self._is.bring_up.mean // 2

    def part(self, port: Port, partner: Port, at: int) -> None:
        """Plan that the link of two ports goes down: one has no light from `at` on."""
        for end, far_end in self._ends(port, partner):
            end.partner = None
            self._forget_plans(end, at)
            down = at + end.draws.duration(self._is.loss_detection)
            carrier_down = down + end.draws.duration(self._is.carrier)
            self._plan(end, at, "datagram", False, far_end)
            self._plan(end, down, "firmware", False, far_end)
            self._plan(end, carrier_down, "carrier", False, far_end)
            self._tell(end)

    def join(self, port: Port, partner: Port, at: int) -> None:
        """Plan that the link of two ports comes up: both hear each other from `at` on."""
        both_have_carrier = 0
        for end, far_end in self._ends(port, partner):
            end.partner = far_end
            firmware = at + end.draws.duration(self._is.bring_up)
            if end.negotiates and self._is.negotiation.mean:
                firmware += end.draws.duration(self._is.negotiation)
            carrier = firmware + end.draws.duration(self._is.carrier)
            both_have_carrier = max(both_have_carrier, carrier)
            self._plan(end, firmware, "firmware", True, far_end)
            self._plan(end, carrier, "carrier", True, far_end)
        for end, far_end in self._ends(port, partner):
            resumed = both_have_carrier + end.draws.duration(self._is.resume)
            self._plan(end, resumed, "datagram", True, far_end)
            self._tell(end)

    def _ends(self, port: Port, partner: Port) -> tuple[tuple[LinkTimeline, Port], ...]:
        return (self.timeline(port), partner), (self.timeline(partner), port)

    def _plan(self, end: LinkTimeline, at: int, stage: str, up: bool, partner: Port) -> None:
        if end.up[stage] == up:
            return
        end.up[stage] = up
        end.transitions.append(new_tuple(Transition, (at, stage, up, partner)))
        self._truth.note(end.name, stage, up=up, at=new_tuple(Span, (at, at)))

    def _forget_plans(self, end: LinkTimeline, now: int) -> None:
        while end.transitions and end.transitions[-1].at > now:
            _, stage, up, _ = end.transitions.pop()
            end.up[stage] = not up
            self._truth.withdraw(end.name, stage, up=up)
        del end.transitions[: -self.history]

    def _tell(self, end: LinkTimeline) -> None:
        for listener in end.listeners:
            listener()
