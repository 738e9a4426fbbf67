"""Base of simulated switches with a few positions, each of them a set of circuits."""

from collections.abc import Mapping

from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.framed_device import (
    FramedServerSession,
    FrameReply,
    TextCommands,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit, SwitchSpec

PROCESSING = 1_000_000
"""Time of a command, in ns, besides moving."""


class SimulatedPositionSwitch:
    """A switch on a serial line, at position 1 when it is switched on.

    Positions are bar and cross of a 2x2, and the outputs of a 1xN; position 0 is dark, for
    models that have it. A model says how frames are cut out of the bytes and carries them out.
    """

    can_be_dark = True

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        assert context.matrix is not None
        self.spec = context.spec
        self.serial = context.serial
        self._context = context
        self._matrix = context.matrix
        self._positions = _positions(context.spec)
        if self.can_be_dark:
            self._positions[0] = frozenset()
        self.position = 1
        context.matrix.connect(self._positions[1])

    @property
    def outputs(self) -> int:
        """Number of positions that are not dark."""
        return max(self._positions)

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of a serial line."""
        return {
            "serial": lambda connection, _: FramedServerSession(
                self, connection, self._context.clock, self.spec.name, PROCESSING
            )
        }

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first whole frame of `buffer` and the bytes it took; the model's part."""
        raise NotImplementedError

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one frame; the model's part."""
        raise NotImplementedError

    def go(self, position: int) -> int | None:
        """Begin to move to a position; return the time to its acknowledgement, in ns.

        None where there is no such position.
        """
        if position not in self._positions:
            return None
        if position == self.position:
            return 0
        self.position = position
        wanted = self._positions[position]
        after = self._matrix.disconnect(
            set(self._matrix.egress_of) - {circuit.ingress for circuit in wanted}
        )
        if wanted:
            after = self._matrix.connect(wanted)
        self._context.acknowledge(after)
        return after


class SimulatedTextSwitch(TextCommands, SimulatedPositionSwitch):
    """A position switch that is spoken to by lines of text."""


def _positions(spec: SwitchSpec) -> dict[int, frozenset[Circuit]]:
    if spec.ingress_count == spec.egress_count == 2:
        bar, cross = {Circuit(1, 3), Circuit(2, 4)}, {Circuit(1, 4), Circuit(2, 3)}
        return {1: frozenset(bar), 2: frozenset(cross)}
    if spec.egress_count == 1:  # a 1xN that is turned round: the light converges
        out = spec.ingress_count + 1
        return {n: frozenset({Circuit(n, out)}) for n in spec.ingress_ports}
    return {n: frozenset({Circuit(1, 1 + n)}) for n in range(1, spec.egress_count + 1)}
