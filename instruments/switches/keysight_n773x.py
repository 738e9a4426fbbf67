"""Keysight N7731A to N7738A optical switches, and modules 8159x in mainframes."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option, from_milliseconds
from lightrig.instruments.core.keysight_n77 import MEANINGS
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.core.scpi_instrument import ScpiInstrument
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.testbeds import Circuit

_STATE = re.compile(r"[A-Z],\d+(;[A-Z],\d+)*")
_ENDS = re.compile(r"([A-Z]),([A-Z]);(\d+),(\d+)")

State = frozenset[Circuit]
"""The circuits of one switch of a box."""


def _slot_numbers(stated: object) -> tuple[int, ...]:
    """Return the slots that `1,3`, or a list, names; raises ValueError."""
    several = stated if isinstance(stated, list) else str(stated).split(",")
    slots = tuple(int(str(each)) for each in several)
    if min(slots) < 0 or len({*slots}) < len(slots):
        raise ValueError("expected different slots, such as 1,3")
    return slots


@dataclass(frozen=True)
class Unit:
    """One of the switches in a box; its ports are named by letters and numbers.

    Attributes:
        route: the command that routes it, without argument.
        ingress: port number of `A`.
        egress: port number of the lowest numbered port.
        least: the number of that port on the switch.
    """

    route: str
    ingress: int
    egress: int
    least: int

    def read(self, text: str) -> State | None:
        """Return the circuits of a state such as `A,1;B,2`; None if `text` is no state."""
        if _STATE.fullmatch(text) is None:
            return None
        paths = (path.split(",") for path in text.split(";"))
        return frozenset(
            Circuit(self.ingress + ord(letter) - ord("A"), self.egress + int(number) - self.least)
            for letter, number in paths
        )

    def command(self, state: State) -> str:
        """Return the command for `state`: its first path, which implies the others."""
        ingress, egress = min(state)
        letter, number = chr(ord("A") + ingress - self.ingress), egress - self.egress + self.least
        return f"{self.route} {letter},{number}"


class KeysightN773x(ScpiInstrument):
    """A box of 1xN and 2x2 switches, which are never dark.

    Ingress ports are the lettered ports of all switches in the box, in the order of its slots;
    egress ports, counted on from there, the numbered ones. A 1x4 is ingress 1 and egress 2 to 5;
    two of them are ingress 1 and 2, egress 3 to 6 and 7 to 10. The box reports what it contains.

    Every ingress always leads somewhere, so a change that leaves one without a circuit, or that
    asks a 2x2 for anything but bar or cross, is refused before it is sent.

    Switch modules 81591B to 81595B in an 8163, 8164 or 8166 mainframe have the same commands; the
    option `slots` names where they are, since the mainframe lists all its modules.

    Source: Keysight N77xx Series Programming Guide, edition 7; for mainframes the Programming Guide
    of 8163A/B, 8164A/B and 8166A/B, fifth edition, and a public driver of 8159x. None of them
    states whether a command is accepted before the light has settled, so a change is done when the
    circuits were read back after `settling`.
    """

    schemes = ("scpi", "visa")
    wire_facts = (
        WireFact(
            "`:ROUTe` commands and replies",
            "Keysight N77xx Programming Guide, edition 7",
            (),
            "Agilent 8163A/B, 8164A/B and 8166A/B Programming Guide, fifth edition, page 170",
        ),
        WireFact(
            "8159x: `ROUTe#:CHANnel# A,2` and its query, by slot",
            "Agilent 8163A/B, 8164A/B and 8166A/B Programming Guide, fifth edition, page 170",
            (),
            "keysight_8159xx.py, a driver of 2018 for 81595B in an 8163",
        ),
        WireFact("settling within 10 ms (option)"),
    )
    shared_options = ("modules",)
    error_meanings = MEANINGS
    per_slot = Option(
        int, 1, "switches in each slot; 1 unless these are dual modules", key="channels"
    )
    slots: Option[tuple[int, ...]] = Option(
        _slot_numbers, (), "slots of a mainframe with switches, such as 1,3; none for an N773x"
    )
    settling = Option(
        from_milliseconds,
        10_000_000,
        "from the command until the light has settled, in ns",
        key="settling_ms",
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._units: dict[Unit, frozenset[State]] = {}

    def circuits(self) -> frozenset[Circuit]:
        """Return the circuits that all switches in the box report now."""
        return frozenset().union(*map(self.state, self._layout()))

    def state(self, unit: Unit) -> State:
        """Return the circuits that one switch of the box reports now."""
        query = f"{unit.route}?"
        answer = self.query(query)
        state = unit.read(answer)
        if state not in self._layout()[unit]:
            raise self.garbled(query, answer, "state that it listed as possible")
        return state

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> PendingMove:
        """Route every switch that is affected; raises `DeniedError` for what cannot be.

        A command names one switch, so those of one box move one shortly after the other.
        """
        wanted = self._wanted(frozenset(remove), frozenset(add)) if remove or add else {}
        if not wanted:
            return PendingMove.nothing(self.clock)
        self.read_error_queue()  # entries of before are not about these commands
        spans = [self.write_unchecked(unit.command(state)) for unit, state in wanted.items()]
        sent = Span(spans[0].earliest, spans[-1].latest)
        return PendingMove(sent, lambda: self._finish(sent, wanted))

    def _finish(self, sent: Span, wanted: Mapping[Unit, State]) -> Span:
        """Wait until the light has settled and read back; between the command and then.

        That no error is queued is answered after the command was done, some time after.
        """
        self.raise_on_error("; ".join(unit.command(state) for unit, state in wanted.items()))
        self.clock.sleep(sent.latest + self.settling - self.clock.now())
        for unit, state in wanted.items():
            found = self.state(unit)
            if found != state:
                raise self.failed(
                    NotDoneError,
                    f"accepted the command, but connects {_shown(found)}",
                    unit.command(state),
                    ("try", "a longer `settling_ms:`; does another program use it as well?"),
                )
        return Span(sent.earliest, self.clock.now())

    def _wanted(self, remove: State, add: State) -> dict[Unit, State]:
        """Return the new state of every switch that changes."""
        units = self._layout()
        ports = {unit: frozenset().union(*states) for unit, states in units.items()}
        if unknown := sorted(add - frozenset().union(*ports.values())):
            raise self.refused(
                f"{unknown[0]} is a circuit of none of its switches",
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
                raise self.refused(
                    f"it would have to connect {_shown(after) or 'nothing'}",
                    "this switch is never dark, and connects every ingress to an different egress",
                    f"it can be {can_be}",
                )
            if after != before:
                wanted[unit] = after
        return wanted

    def _layout(self) -> dict[Unit, frozenset[State]]:
        """Return every switch in the box with its possible states, as the box reports them."""
        if not self._units:
            slots = self.slots or range(1, len(self.query("*OPT?").split(",")) + 1)
            routes = [f":ROUT{s}:CHAN{c}" for s in slots for c in range(1, self.per_slot + 1)]
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
        """Return the count of lettered ports, the lowest number and the count of numbered ports."""
        answer = self.query(query)
        match = _ENDS.fullmatch(answer)
        if match is None or match[1] > match[2] or int(match[3]) > int(match[4]):
            raise self.garbled(query, answer, "configuration of a switch")
        left = ord(match[2]) - ord(match[1]) + 1
        return left, int(match[3]), int(match[4]) - int(match[3]) + 1

    def _states(self, unit: Unit) -> frozenset[State]:
        query = f"{unit.route}:CONF:ROUT?"
        answer = self.query(query)
        states = [unit.read(text) for text in answer.split(".")]
        known = frozenset(state for state in states if state is not None)
        if len(known) < len(states):
            raise self.garbled(query, answer, "list of states")
        return known


def _shown(circuits: Collection[Circuit]) -> str:
    return " ".join(map(str, sorted(circuits)))
