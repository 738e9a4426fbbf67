"""What switches with a few positions share: their circuits are a position."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from instruments.capabilities import Operation
from instruments.clock import Clock, Span
from instruments.errors import CANNOT, DeniedError, GarbledError
from instruments.wire.exchange import Exchange
from testbeds import Circuit

P = TypeVar("P", bound=Hashable)

TWO_BY_TWO: Mapping[str, frozenset[Circuit]] = {
    "bar": frozenset({Circuit(1, 3), Circuit(2, 4)}),
    "cross": frozenset({Circuit(1, 4), Circuit(2, 3)}),
}
"""The two states of a 2x2 switch: ingress 1 and 2, egress 3 and 4."""


def one_by(outputs: int) -> dict[int, frozenset[Circuit]]:
    """The positions 1..N of a 1xN switch: ingress 1, egress 2..N+1."""
    return {n: frozenset({Circuit(1, 1 + n)}) for n in range(1, outputs + 1)}


class Selector(ABC, Generic[P]):
    """A switch that is in one of a few positions; where none is dark, it cannot be dark.

    Args:
        name: its name in the testbed.
        clock: the bench's clock.
        positions: the circuits of each position.
        exchange: the way to it.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        positions: Mapping[P, frozenset[Circuit]],
        exchange: Exchange,
    ) -> None:
        self.name = name
        self._clock = clock
        self._positions = positions
        self._exchange = exchange
        self._made = {circuits: position for position, circuits in positions.items()}

    @abstractmethod
    def _position(self) -> P:
        """Ask the switch where it is."""

    @abstractmethod
    def _move(self, position: P) -> Operation:
        """Begin to go to `position`."""

    def wire(self) -> list[str]:
        """The last lines that went over its wire."""
        return self._exchange.trace.tail(40)

    def close(self) -> None:
        """End the way to it."""
        self._exchange.close()

    def circuits(self) -> frozenset[Circuit]:
        """The circuits of the position that the switch reports now."""
        position = self._position()
        if position not in self._positions:
            known = ", ".join(map(str, self._positions))
            raise GarbledError(
                self.name,
                f"says that it is at {position}, and it has {known}",
                details=[("try", "does `size:` in the testbed file say what it is?")],
                trace=self.wire()[-6:],
            )
        return self._positions[position]

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to go to the position that has `add` and not `remove`.

        Raises `DeniedError` before anything is sent where there is none.
        """
        now = self.circuits()
        wanted = frozenset(now - frozenset(remove)) | frozenset(add)
        if wanted not in self._made:
            # What stands and is in the way of `add` must go: there is but one position.
            ingress = {circuit.ingress for circuit in add}
            egress = {circuit.egress for circuit in add}
            wanted = frozenset(add) | {
                c for c in wanted if c.ingress not in ingress and c.egress not in egress
            }
        if wanted not in self._made:
            listed = ", ".join(map(str, sorted(wanted))) or "no circuit at all"
            raise DeniedError(
                self.name,
                code=CANNOT,
                text=f"it has no position with {listed}",
                command=f"change to {listed}",
                trace=self.wire()[-6:],
            )
        if wanted == now:
            at = self._clock.now()
            return Moved(Span(at, at), lambda: Span(at, at))
        return self._move(self._made[wanted])


class Moved:
    """A move under way.

    Args:
        sent: between which stamps the command was written.
        finish: waits for the acknowledgement; when that was there.
    """

    def __init__(self, sent: Span, finish: Callable[[], Span]) -> None:
        self.sent = sent
        self._finish = finish

    def done(self) -> Span:
        """Wait until the switch has acknowledged, or until it must have settled."""
        return self._finish()
