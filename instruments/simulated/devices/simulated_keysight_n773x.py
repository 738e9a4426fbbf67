"""Simulated Keysight N7731A, N7734A, N7736A or N7738A switch, or 8159x modules in a mainframe.

Commands, formats and the error of a wrong route are those of the N77xx Programming Guide,
edition 7. Which model has which switches, and the number of that error, are guesses. With the
option `slots` it is an 8163B or 8164B mainframe, whose other slots hold power meters.
"""

import itertools

from lightrig.instruments.simulated.devices.keysight_lightwave import NO_SUCH_SLOT
from lightrig.instruments.simulated.protocols.commands import Query, command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_values import ScpiError, ScpiNode
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit, SwitchSpec

_MODELS = {(2, 2): "N7731A", (1, 4): "N7734A", (1, 6): "N7736A", (1, 8): "N7738A"}
_WRONG_ROUTE = (-220, "Parameter error (StatParamError)")

State = tuple[tuple[int, int], ...]
"""One setting of a switch, as pairs of left and right port, counted from 0."""


class _Unit(ScpiNode):
    """One switch of the box, selected by slot and channel; it begins in its first state.

    Args:
        ingress: its first ingress port.
        egress: its first egress port.
        size: its number of ports on the left and on the right.
    """

    def __init__(
        self, context: DeviceContext, ingress: int, egress: int, size: tuple[int, int]
    ) -> None:
        super().__init__()
        assert context.matrix is not None
        self._context = context
        self._matrix = context.matrix
        self._ingress = ingress
        self._egress = egress
        self._size = size
        self._states: list[State] = (
            [((0, right),) for right in range(size[1])]
            if size[0] == 1
            else [((0, 0), (1, 1)), ((0, 1), (1, 0))]
        )
        self._state = self._states[0]
        self._matrix.connect(self._circuits())

    def _circuits(self) -> list[Circuit]:
        return [Circuit(self._ingress + left, self._egress + right) for left, right in self._state]

    @command("ROUTe#[:CHANnel#]")
    def _route(self, *ports: str) -> DelayedReply:
        wanted = ",".join(ports).upper()
        for state in self._states:
            if wanted in _format(state).split(";"):
                self._state = state
                after = self._matrix.connect(self._circuits())
                return DelayedReply(after, self._context.acknowledge)
        raise ScpiError(*_WRONG_ROUTE)

    _query_route = Query("ROUTe#[:CHANnel#]?", reply=lambda self: _format(self._state))

    @command("ROUTe#[:CHANnel#]:CONFig?")
    def _query_size(self) -> str:
        return f"A,{chr(ord('A') + self._size[0] - 1)};1,{self._size[1]}"

    @command("ROUTe#[:CHANnel#]:CONFig:ROUTe?")
    def _query_routes(self) -> str:
        return ".".join(map(_format, self._states))


class SimulatedKeysightN773x(ScpiDevice):
    """A box of switches whose light is never blocked.

    The switch's option `modules` names what is in its slots, `2x2,1x4`; a plus joins the
    channels of one slot, `1x2+1x2`. Without it the modules follow from the size of the switch.
    """

    channel_type = _Unit

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        sizes = _sizes(context.spec)
        self._in_frame = "slots" in context.spec.options
        first = next(iter(sizes.values()))
        self._model = "8163B" if self._in_frame else _MODELS.get(first, "N7731A")
        identity = f"Keysight Technologies,{self._model},{context.serial},V1.02"
        super().__init__(context.spec.name, context.clock, identity)
        ingress, egress = 1, 1 + sum(left for left, _ in sizes.values())
        self._units: dict[tuple[int, ...], _Unit] = {}
        for place, size in sizes.items():
            self._units[place] = _Unit(context, ingress, egress, size)
            ingress, egress = ingress + size[0], egress + size[1]

    def channel(self, suffixes: tuple[int, ...]) -> _Unit:
        """Return the switch at a slot and channel; raise `ScpiError`."""
        if suffixes not in self._units:
            raise ScpiError(*NO_SUCH_SLOT)
        return self._units[suffixes]

    @command("*OPT?")
    def _query_options(self) -> str:
        used = {slot for slot, _ in self._units}
        if self._in_frame:
            return ",".join("81595B" if slot in used else "81634B" for slot in range(1, 5))
        return ",".join(f"{self._model}-008" for _ in used)


def _format(state: State) -> str:
    return ";".join(f"{chr(ord('A') + left)},{right + 1}" for left, right in state)


def _sizes(spec: SwitchSpec) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the ports on the left and on the right of each switch, by slot and channel."""
    modules = str(spec.options.get("modules", ""))
    if not modules and (spec.ingress_count, spec.egress_count) == (2, 2):
        modules = "2x2"
    elif not modules:
        each = spec.egress_count // spec.ingress_count
        modules = ",".join([f"1x{each}"] * spec.ingress_count)
    stated = spec.options.get("slots", ())
    slots = stated if isinstance(stated, list) else str(stated or "").split(",")
    numbers = [int(str(slot)) for slot in slots if slot != ""] or itertools.count(1)
    sizes = {}
    for slot, module in zip(numbers, modules.split(","), strict=False):
        for channel, shape in enumerate(module.strip().split("+"), 1):
            left, right = map(int, shape.split("x"))
            sizes[slot, channel] = left, right
    return sizes
