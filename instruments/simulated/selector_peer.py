"""What simulated switches with a few positions share: a position, and a line to be told one."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from instruments.clock import Span
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from testbeds import Circuit, SwitchSpec

TAKES = 1_000_000
"""How long a command takes, in ns, besides moving."""

Cut: TypeAlias = Callable[[bytes], tuple[bytes, int] | None]
"""The first whole command in a buffer and how many bytes it took, or None."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its bytes, none for silence, and after how many ns."""

    data: bytes = b""
    after: int = 0


class SelectorPeer:
    """A switch in one of `positions`; 0 is dark where it is one of them.

    A model says how commands are cut and carried out. The switch starts at position 1.
    """

    def __init__(self, around: Surroundings, *, can_be_dark: bool) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self.spec = around.spec
        self.serial = around.serial
        self._around = around
        self._matrix = around.matrix
        self._positions = _positions(around.spec)
        if can_be_dark:
            self._positions[0] = frozenset()
        self.position = 1
        around.matrix.connect(self._positions[1])

    @property
    def outputs(self) -> int:
        """How many positions it has that are not dark."""
        return max(self._positions)

    def wires(self) -> Mapping[str, SessionFactory]:
        """A serial line."""
        return {"serial": lambda connection, _: _Dialogue(self, connection, self._around)}

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first whole command; the model's part."""
        raise NotImplementedError

    def carry_out(self, command: bytes) -> Said:
        """Do what one command says; the model's part."""
        raise NotImplementedError

    def go(self, position: int) -> int | None:
        """Begin to go to a position; after how many ns that is acknowledged. None: no such one."""
        if position not in self._positions:
            return None
        if position == self.position:
            return 0
        self.position = position
        made = self._positions[position]
        standing = set(self._matrix.egress_of)
        after = self._matrix.disconnect(standing - {c.ingress for c in made})
        if made:
            after = self._matrix.connect(made)
        now = self._around.clock.now()
        at = Span(now + after, now + after)
        self._around.truth.note(self.spec.name, "acknowledged", up=True, at=at)
        return after


def _positions(spec: SwitchSpec) -> dict[int, frozenset[Circuit]]:
    if spec.ingress_count == spec.egress_count == 2:
        bar, cross = {Circuit(1, 3), Circuit(2, 4)}, {Circuit(1, 4), Circuit(2, 3)}
        return {1: frozenset(bar), 2: frozenset(cross)}
    return {n: frozenset({Circuit(1, 1 + n)}) for n in range(1, spec.egress_count + 1)}


class _Dialogue:
    """One client: commands one after the other."""

    def __init__(
        self, peer: SelectorPeer, connection: PeerConnection, around: Surroundings
    ) -> None:
        self._peer = peer
        self._connection = connection
        self._clock = around.clock
        self._owner = around.spec.name
        self._buffer = b""
        self._waiting: deque[bytes] = deque()
        self._busy = False

    def received(self, data: bytes) -> None:
        """Take bytes; what follows is scheduled."""
        self._buffer += data
        while (cut := self._peer.cut(self._buffer)) is not None:
            command, taken = cut
            self._buffer = self._buffer[taken:]
            if command:
                self._waiting.append(command)
        if not self._busy:
            self._next()

    def closed(self) -> None:
        """Forget what the client still wanted."""
        self._waiting.clear()

    def _next(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            at = self._clock.now() + TAKES
            self._clock.schedule(at, self._owner, self._carry_out)

    def _carry_out(self) -> None:
        said = self._peer.carry_out(self._waiting.popleft())

        def answer() -> None:
            if said.data:
                self._connection.send(said.data)
            self._next()

        self._clock.schedule(self._clock.now() + said.after, self._owner, answer)
