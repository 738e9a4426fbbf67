"""Answers like a Keysight N7731A, N7734A, N7736A or N7738A; knows nothing of any driver.

Commands, formats and the error of a wrong route are those of the N77xx Programming Guide,
edition 7. Which model has which switches, and the number of that error, are guesses.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from instruments.clock import Span
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
)
from testbeds import Circuit, SwitchSpec

_MODELS = {(2, 2): "N7731A", (1, 4): "N7734A", (1, 6): "N7736A", (1, 8): "N7738A"}
_WRONG_ROUTE = (-220, "Parameter error (StatParamError)")
_NO_SUCH_SLOT = (-303, "Module slot empty or slot / channel invalid")


@dataclass(frozen=True)
class _Unit:
    """One switch: its first ingress and egress port, and how many it has of each."""

    ingress: int
    egress: int
    left: int
    right: int

    def states(self) -> list[tuple[tuple[int, int], ...]]:
        """All that it can be, each as pairs of left and right port, counted from 0."""
        if self.left == 1:
            return [((0, right),) for right in range(self.right)]
        return [((0, 0), (1, 1)), ((0, 1), (1, 0))]

    def circuits(self, state: tuple[tuple[int, int], ...]) -> list[Circuit]:
        """What is connected in `state`."""
        return [Circuit(self.ingress + left, self.egress + right) for left, right in state]


def _worded(state: tuple[tuple[int, int], ...]) -> str:
    return ";".join(f"{chr(ord('A') + left)},{right + 1}" for left, right in state)


class KeysightN773xPeer:
    """A box of switches that are never dark; each begins in its first state.

    The switch's option `modules` names what is in its slots, `2x2,1x4`; a plus joins the
    channels of one slot, `1x2+1x2`. Without it, the size of the switch says what is there.
    """

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self._name = around.spec.name
        self._clock = around.clock
        self._truth = around.truth
        self._matrix = around.matrix
        self._units = _units(around.spec)
        self._states = {place: unit.states()[0] for place, unit in self._units.items()}
        for place, unit in self._units.items():
            self._matrix.connect(unit.circuits(self._states[place]))
        first = self._units[1, 1]
        self._model = _MODELS.get((first.left, first.right), "N7731A")
        self.commands = ScpiCommands(
            f"Keysight Technologies,{self._model},{around.serial},V1.02", errors=ErrorQueue(30)
        )
        head = "ROUTe#[:CHANnel#]"
        self.commands.add("*OPT?", lambda _: self._options())
        self.commands.add(head, self._route)
        self.commands.add(f"{head}?", lambda request: _worded(self._states[self._place(request)]))
        self.commands.add(f"{head}:CONFig?", self._configuration)
        self.commands.add(f"{head}:CONFig:ROUTe?", self._routes)

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket."""
        return {"scpi": self.session}

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        return ScpiDialogue(connection, self._clock, f"{self._name}#{index:04d}", self.commands)

    def _place(self, request: ScpiRequest) -> tuple[int, int]:
        slot, channel = request.suffixes
        if (slot, channel) not in self._units:
            raise ScpiError(*_NO_SUCH_SLOT)
        return slot, channel

    def _options(self) -> str:
        slots = {slot for slot, _ in self._units}
        return ",".join(f"{self._model}-008" for _ in slots)

    def _configuration(self, request: ScpiRequest) -> str:
        unit = self._units[self._place(request)]
        return f"A,{chr(ord('A') + unit.left - 1)};1,{unit.right}"

    def _routes(self, request: ScpiRequest) -> str:
        return ".".join(map(_worded, self._units[self._place(request)].states()))

    def _route(self, request: ScpiRequest) -> Later:
        place = self._place(request)
        unit = self._units[place]
        wanted = ",".join(request.arguments).upper()
        for state in unit.states():
            if wanted in _worded(state).split(";"):
                self._states[place] = state
                return Later(self._matrix.connect(unit.circuits(state)), None, self._acknowledged)
        raise ScpiError(*_WRONG_ROUTE)

    def _acknowledged(self) -> None:
        now = self._clock.now()
        self._truth.note(self._name, "acknowledged", up=True, at=Span(now, now))


def _units(spec: SwitchSpec) -> dict[tuple[int, int], _Unit]:
    """The switches in a box, by slot and channel."""
    modules = str(spec.options.get("modules", "")) or _guessed(spec)
    shapes = {
        (slot, channel): tuple(map(int, shape.split("x")))
        for slot, module in enumerate(modules.split(","), 1)
        for channel, shape in enumerate(module.strip().split("+"), 1)
    }
    ingress, egress = 1, 1 + sum(left for left, _ in shapes.values())
    units = {}
    for place, (left, right) in shapes.items():
        units[place] = _Unit(ingress, egress, left, right)
        ingress, egress = ingress + left, egress + right
    return units


def _guessed(spec: SwitchSpec) -> str:
    if (spec.ingress_count, spec.egress_count) == (2, 2):
        return "2x2"
    each = spec.egress_count // spec.ingress_count
    return ",".join([f"1x{each}"] * spec.ingress_count)
