"""Readings of transceivers by a simulated probe, each at its moment of the simulated world."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, TypeAlias

from lightrig.instruments.clock import Clock, Scheduled
from lightrig.instruments.simulated.world.randomness import Stream
from lightrig.testbeds import Delay, NicPortSpec, Port

ModuleReader: TypeAlias = Callable[[Port, int, int, int, int], bytes | None]
"""Reads address, page, offset and length of a port's module now; None where it has none there."""

TOOK = Delay(3_000_000, 700_000)
"""From the request to the driver's answer, for up to 128 bytes; a guess: 26 of them take 0.6 ms on
the module's two wires at 400 kHz, and the firmware's mailbox comes on top."""


class SimulatedModuleReads:
    """What one probe reads of modules, one place after another.

    Args:
        clock: the bench's clock.
        server: the server's name.
        ports: what is cabled to it, by netdev.
        read: reads a module.
        reads: the server's clock at a moment of the bench's.
        draws: its chance, which is used while modules are read only.
        answer: how long the module of a port takes to answer.
    """

    def __init__(
        self,
        clock: Clock,
        server: str,
        ports: Mapping[str, NicPortSpec],
        read: ModuleReader,
        reads: Callable[[int], int],
        draws: Stream,
        answer: Callable[[Port], Delay] = lambda _: TOOK,
    ) -> None:
        self._answer = answer
        self._clock, self._server, self._ports = clock, server, ports
        self._read, self._reads, self._draws = read, reads, draws
        self._next: Scheduled | None = None
        self._readings: list[tuple[int, list[Any]]] = []

    def read_once(
        self, netdev: str, place: Sequence[int], then: Callable[[list[Any]], None]
    ) -> None:
        """Read a place of one module; `then` is called with the reading when it is over."""
        begun = self._clock.now()

        def over(reading: list[Any], _: int) -> None:
            then(reading)

        self._one(netdev, place, begun, over)

    def begin(self, ports: Mapping[str, Sequence[Sequence[int]]], period: int, now: int) -> None:
        """Read places of ports over and over, a round every `period` ns or as fast as it can."""
        self.end()
        places = [(netdev, place) for netdev, of in ports.items() for place in of]
        if not places:
            return
        rounds = cycle(enumerate(places))
        round_began = now

        def go_on(begin: int) -> None:
            nonlocal round_began
            number, (netdev, place) = next(rounds)
            if number == 0:
                begin = max(begin, round_began + period) if self._readings else begin
                round_began = begin
            self._one(netdev, place, begin, note)

        def note(reading: list[Any], end: int) -> None:
            self._readings.append((end, reading))
            go_on(end)

        go_on(now)

    def _one(
        self,
        netdev: str,
        place: Sequence[int],
        begin: int,
        over: Callable[[list[Any], int], None],
    ) -> None:
        """Read in the middle of the time that it takes, and call `over` at its end."""
        took = self._draws.duration(self._answer(self._ports[netdev].port))
        end = begin + took

        def act() -> None:
            address, page, offset, length = place
            found = self._read(self._ports[netdev].port, address, page, offset, length)
            text = None if found is None else found.hex()
            problem = "" if found is not None else "Input/output error"
            reading = [netdev, *place, self._reads(begin), self._reads(end), text, problem]
            self._next = self._clock.schedule(end, self._server, lambda: over(reading, end))

        self._next = self._clock.schedule(begin + took // 2, self._server, act)

    def end(self) -> list[list[Any]]:
        """Read no more; return what was read, oldest first."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        found = [reading for _, reading in self._readings]
        self._readings = []
        return found
