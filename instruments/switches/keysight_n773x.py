"""Keysight N7731A, N7734A, N7736A and N7738A optical switches."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from instruments.capabilities import Identity
from instruments.clock import Clock, Span
from instruments.errors import NotDoneError
from instruments.keysight_n77 import MEANINGS
from instruments.registry import Spec
from instruments.scpi_instrument import ScpiInstrument
from instruments.way import Way
from testbeds import Circuit

_STATE = re.compile(r"[A-Z],\d+(;[A-Z],\d+)*")
_ENDS = re.compile(r"([A-Z]),([A-Z]);(\d+),(\d+)")

State = frozenset[Circuit]
"""What one switch of a box connects."""


@dataclass(frozen=True)
class Unit:
    """One of the switches in a box; its ports in words are letters and numbers.

    Attributes:
        route: the command that routes it, without its argument.
        ingress: the switch's port that is `A`.
        egress: the switch's port that is the least number.
        least: that number.
    """

    route: str
    ingress: int
    egress: int
    least: int

    def read(self, text: str) -> State | None:
        """What a state in words, `A,1;B,2`, connects; None if these are no such words."""
        if _STATE.fullmatch(text) is None:
            return None
        paths = (path.split(",") for path in text.split(";"))
        return frozenset(
            Circuit(self.ingress + ord(letter) - ord("A"), self.egress + int(number) - self.least)
            for letter, number in paths
        )

    def ask_for(self, state: State) -> str:
        """The command for `state`: its first path, which brings the others with it."""
        ingress, egress = min(state)
        letter, number = chr(ord("A") + ingress - self.ingress), egress - self.egress + self.least
        return f"{self.route} {letter},{number}"


class KeysightN773x:
    """A box of selectors (1xN) and two-by-twos, which are never dark.

    Ingress ports are the lettered ports of all switches in the box, in the order of its slots;
    egress ports, counted on from there, the numbered ones. A 1x4 is ingress 1 and egress 2 to 5;
    two of them are ingress 1 and 2, egress 3 to 6 and 7 to 10. What is in the box, it says itself.

    Every ingress always leads somewhere, so a change that leaves one without a circuit, or that
    asks a two-by-two for anything but bar or cross, is refused before it is sent.

    Source: Keysight N77xx Series Programming Guide, edition 7. It does not say whether a command
    is accepted before the light has settled, so done is what was read back after `settling`.

    Args:
        name: the switch's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        channels: switches in each slot (option `channels`; 1 unless these are dual modules).
        settling: from the command until the light has settled, in ns (option `settling_ms`;
            10 ms is a guess).
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "KeysightN773x":
        """The driver of the switch that `spec` describes."""
        options = spec.options
        channels = int(options.get("channels", 1))
        settling = round(float(options.get("settling_ms", 10)) * 1e6)
        return cls(spec.name, way, clock, channels=channels, settling=settling)

    def __init__(
        self, name: str, way: Way, clock: Clock, *, channels: int = 1, settling: int = 10_000_000
    ) -> None:
        self.name = name
        self._channels = channels
        self._settling = settling
        self._clock = clock
        self._scpi = ScpiInstrument(name, way, clock, meanings=MEANINGS)
        self._units: dict[Unit, frozenset[State]] = {}

    def identity(self) -> Identity:
        """Ask for model, serial number and firmware."""
        return self._scpi.identity()

    def circuits(self) -> frozenset[Circuit]:
        """What every switch in the box says that it connects now."""
        return frozenset().union(*map(self.state, self._layout()))

    def state(self, unit: Unit) -> State:
        """What one switch of the box says that it connects now."""
        query = f"{unit.route}?"
        answer = self._scpi.ask(query)
        state = unit.read(answer)
        if state not in self._layout()[unit]:
            raise self._scpi.garbled(query, answer, "state that it said it can be in")
        return state

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> "RouteOperation":
        """Route every switch that is touched; raises `DeniedError` for what cannot be.

        A command names one switch, so those of one box move one shortly after the other.
        """
        wanted = self._wanted(frozenset(remove), frozenset(add)) if remove or add else {}
        if wanted:
            self._scpi.objections()  # what stands there is not about these commands
        spans = [self._scpi.tell(unit.ask_for(state)) for unit, state in wanted.items()]
        now = self._clock.now()
        sent = Span(spans[0].earliest, spans[-1].latest) if spans else Span(now, now)
        return RouteOperation(self, self._scpi, self._clock, sent, wanted, self._settling)

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _wanted(self, remove: State, add: State) -> dict[Unit, State]:
        """The new state of every switch that changes."""
        units = self._layout()
        ports = {unit: frozenset().union(*states) for unit, states in units.items()}
        if astray := sorted(add - frozenset().union(*ports.values())):
            raise self._scpi.cannot(
                f"{astray[0]} is a circuit of none of its switches",
                f"it can make {', '.join(map(str, sorted(frozenset().union(*ports.values()))))}",
            )
        wanted = {}
        for unit, states in units.items():
            if ports[unit].isdisjoint(remove | add):
                continue
            before = self.state(unit)
            after = (before - remove) | (add & ports[unit])
            if after not in states:
                can_be = " or ".join(_shown(state) for state in sorted(states, key=sorted))
                raise self._scpi.cannot(
                    f"it would have to connect {_shown(after) or 'nothing'}",
                    "this switch is never dark, and connects every ingress to an egress of its own",
                    f"it can be {can_be}",
                )
            if after != before:
                wanted[unit] = after
        return wanted

    def _layout(self) -> dict[Unit, frozenset[State]]:
        """Every switch in the box and the states that it can be in, as the box says."""
        if not self._units:
            slots = range(1, len(self._scpi.ask("*OPT?").split(",")) + 1)
            routes = [f":ROUT{s}:CHAN{c}" for s in slots for c in range(1, self._channels + 1)]
            ends = [self._ends(f"{route}:CONF?") for route in routes]
            ingress, egress = 1, 1 + sum(left for left, _, _ in ends)
            units = {}
            for route, (left, least, right) in zip(routes, ends, strict=True):
                unit = Unit(route, ingress, egress, least)
                units[unit] = self._states(unit)
                ingress, egress = ingress + left, egress + right
            self._units = units
        return self._units

    def _ends(self, query: str) -> tuple[int, int, int]:
        """How many lettered ports, the least number, and how many numbered ports."""
        answer = self._scpi.ask(query)
        match = _ENDS.fullmatch(answer)
        if match is None or match[1] > match[2] or int(match[3]) > int(match[4]):
            raise self._scpi.garbled(query, answer, "configuration of a switch")
        left = ord(match[2]) - ord(match[1]) + 1
        return left, int(match[3]), int(match[4]) - int(match[3]) + 1

    def _states(self, unit: Unit) -> frozenset[State]:
        query = f"{unit.route}:CONF:ROUT?"
        answer = self._scpi.ask(query)
        states = [unit.read(text) for text in answer.split(".")]
        known = frozenset(state for state in states if state is not None)
        if len(known) < len(states):
            raise self._scpi.garbled(query, answer, "list of states")
        return known


class RouteOperation:
    """A change of circuits under way."""

    def __init__(
        self,
        switch: KeysightN773x,
        scpi: ScpiInstrument,
        clock: Clock,
        sent: Span,
        wanted: dict[Unit, State],
        settling: int,
    ) -> None:
        self.sent = sent
        self._switch = switch
        self._scpi = scpi
        self._clock = clock
        self._wanted = wanted
        self._settling = settling

    def done(self) -> Span:
        """Wait until the light has settled, and read back; between acceptance and that."""
        if not self._wanted:
            return self.sent
        commands = "; ".join(unit.ask_for(state) for unit, state in self._wanted.items())
        self._scpi.object_if_told(commands)
        accepted = self._clock.now()
        self._clock.sleep(self.sent.latest + self._settling - accepted)
        for unit, state in self._wanted.items():
            found = self._switch.state(unit)
            if found != state:
                raise self._scpi.failed(
                    NotDoneError,
                    f"took the command, but connects {_shown(found)}",
                    unit.ask_for(state),
                    ("try", "say a longer `settling_ms:`; does another program use it as well?"),
                )
        return Span(accepted, self._clock.now())


def _shown(circuits: Collection[Circuit]) -> str:
    return " ".join(map(str, sorted(circuits)))
