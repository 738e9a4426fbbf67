"""What is wrong in a simulated lab: faults that its description does not know."""

from collections.abc import Iterator
from dataclasses import replace

from instruments.simulated.optics import PortFaults
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
        for fault in (*self._of("dirty connector"), *self._of("bent fiber")):
            if len(fault.at) > 1:
                continue  # in a switch's own port
            port = _port(fault.at[0])
            fibers[port] = replace(fibers[port], loss_db=fibers[port].loss_db + fault.loss_db)
        for fault in self._of("wrong port"):
            port = _port(fault.at[0])
            fibers[port] = replace(fibers[port], sink=_port(fault.at[1]))
        return tuple(fibers.values())

    def lost_in_fibers(self) -> dict[Port, float]:
        """What dirty and bent fibers lose more than they should, by the port that they end at."""
        stated = {fiber.source: fiber.loss_db for fiber in self._testbed.fibers}
        more = {fiber.sink: fiber.loss_db - stated[fiber.source] for fiber in self.fibers()}
        return {port: decibel for port, decibel in more.items() if decibel}

    def at_ports(self, switch: str) -> PortFaults:
        """What is wrong at the ports of a switch."""
        losses: dict[int, float] = {}
        for fault in self._of("dirty connector"):
            if fault.at[0] == switch:
                port = int(fault.at[1])
                losses[port] = losses.get(port, 0.0) + fault.loss_db
        stuck = (f for f in self._of("stuck monitor") if f.at[0] == switch)
        return PortFaults(losses, frozenset(int(fault.at[1]) for fault in stuck))

    def fading(self) -> dict[Port, float]:
        """What drifting lasers lose in a minute, in dB, by the port that they shine from."""
        return {_port(fault.at[0]): fault.drift_db for fault in self._of("drifting laser")}

    def dark(self) -> frozenset[Port]:
        """NIC ports whose laser does not shine."""
        return frozenset(_port(fault.at[0]) for fault in self._of("dark laser"))

    def resets(self) -> list[tuple[Port, int]]:
        """NIC ports whose counters begin anew, and after how many ns."""
        return [(_port(fault.at[0]), fault.after_ns) for fault in self._of("counter reset")]

    def interruptions(self) -> list[tuple[Port, int]]:
        """Ports whose fiber, from there on, is dark for a moment, and after how many ns."""
        return [(_port(fault.at[0]), fault.after_ns) for fault in self._of("interrupted fiber")]

    def silences(self, name: str) -> list[SimulatedFault]:
        """When a switch or an instrument says nothing any more, and for how long."""
        return [fault for fault in self._of("silent instrument") if fault.at[0] == name]

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
