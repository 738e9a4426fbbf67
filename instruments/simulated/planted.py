"""What is wrong in a simulated lab: faults that its description does not know."""

from collections.abc import Iterator
from dataclasses import replace

from instruments.simulated.peer_server import SessionFactory
from testbeds import Circuit, Fiber, Port, SimulatedFault, Testbed


class Planted:
    """The faults of a testbed's simulation, by what they concern."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._faults = testbed.simulation.faults

    def fibers(self) -> tuple[Fiber, ...]:
        """The fibers as they really are: swapped, dirty, or in another port."""
        fibers = {fiber.source: fiber for fiber in self._testbed.fibers}
        for fault in self._of("swapped fibers"):
            one, other = map(_port, fault.at)
            sinks = fibers[one].sink, fibers[other].sink
            fibers[one] = replace(fibers[one], sink=sinks[1])
            fibers[other] = replace(fibers[other], sink=sinks[0])
        for fault in self._of("dirty connector"):
            port = _port(fault.at[0])
            fibers[port] = replace(fibers[port], loss_db=fibers[port].loss_db + fault.loss_db)
        for fault in self._of("wrong port"):
            port = _port(fault.at[0])
            fibers[port] = replace(fibers[port], sink=_port(fault.at[1]))
        return tuple(fibers.values())

    def dark(self) -> frozenset[Port]:
        """NIC ports whose laser does not shine."""
        return frozenset(_port(fault.at[0]) for fault in self._of("dark laser"))

    def skew(self, server: str) -> float:
        """By how many ppm a server's clock runs too fast."""
        return sum(fault.ppm for fault in self._of("clock skew") if fault.at[0] == server)

    def has_wrong_key(self, server: str) -> bool:
        """Whether a server shows another host key than the one that is known."""
        return any(fault.at[0] == server for fault in self._of("wrong host key"))

    def missing_tools(self, server: str) -> frozenset[str]:
        """Programs that a server lacks."""
        found = (fault for fault in self._of("missing tool") if fault.at[0] == server)
        return frozenset(fault.tool for fault in found)

    def stale(self, switch: str) -> list[Circuit]:
        """Circuits that stand on a switch before anybody came."""
        found = (fault for fault in self._of("stale cross-connect") if fault.at[0] == switch)
        return [Circuit.parse(fault.at[1]) for fault in found]

    def fill_error_queue(self, name: str, scpi: SessionFactory | None) -> None:
        """Let somebody have typed nonsense at an instrument, where that is planted."""
        if scpi is not None and any(f.at[0] == name for f in self._of("full error queue")):
            scpi(_Nobody(), 9999).received(b"NONSENSE\n" * 40)

    def _of(self, kind: str) -> Iterator[SimulatedFault]:
        return (fault for fault in self._faults if fault.kind == kind)


def _port(text: str) -> Port:
    owner, _, name = text.partition(".")
    return Port(owner, name)


class _Nobody:
    """A client that has gone again."""

    def send(self, data: bytes) -> None:
        """Nobody hears it."""

    def close(self, *, abruptly: bool = False) -> None:
        """Nobody is there."""
