"""Lab faults: defects of a simulated lab that its description does not state."""

import math
from collections.abc import Iterator
from dataclasses import replace

from lightrig.instruments.simulated.hosts.simulated_clock import ClockSlew, ClockStep
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.world.optics import PortFaults
from lightrig.instruments.simulated.world.world import Interruption
from lightrig.testbeds import Circuit, Fiber, Port, SimulatedFault, Testbed

_DARK_NS = 100_000_000
"""For how long an interrupted fiber is dark, where no time is stated."""


class LabFaults:
    """The lab faults of a testbed's simulation, by the part that they concern."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._faults = testbed.simulation.faults

    def fibers(self) -> tuple[Fiber, ...]:
        """Return the true fibers: swapped, dirty, or in another port."""
        fibers = {fiber.source: fiber for fiber in self._testbed.fibers}
        for fault in self._of("swapped fibers"):
            first, second = map(_port, fault.at)
            sinks = fibers[first].sink, fibers[second].sink
            fibers[first] = replace(fibers[first], sink=sinks[1])
            fibers[second] = replace(fibers[second], sink=sinks[0])
        for fault in (*self._of("dirty connector"), *self._of("bent fiber")):
            if len(fault.at) > 1:
                continue  # at a switch's port, not in a fiber
            port = _port(fault.at[0])
            fibers[port] = replace(fibers[port], loss_db=fibers[port].loss_db + fault.loss_db)
        for fault in self._of("wrong port"):
            port = _port(fault.at[0])
            fibers[port] = replace(fibers[port], sink=_port(fault.at[1]))
        return tuple(fibers.values())

    def lost_in_fibers(self) -> dict[Port, float]:
        """Return the excess loss of dirty and bent fibers in dB, by the port that they end at."""
        stated = {fiber.source: fiber.loss_db for fiber in self._testbed.fibers}
        more = {fiber.sink: fiber.loss_db - stated[fiber.source] for fiber in self.fibers()}
        return {port: decibel for port, decibel in more.items() if decibel}

    def at_ports(self, switch: str) -> PortFaults:
        """Return the faults at the ports of a switch."""
        losses: dict[int, float] = {}
        for fault in self._of("dirty connector"):
            if fault.at[0] == switch:
                port = int(fault.at[1])
                losses[port] = losses.get(port, 0.0) + fault.loss_db
        stuck = (f for f in self._of("stuck monitor") if f.at[0] == switch)
        return PortFaults(losses, frozenset(int(fault.at[1]) for fault in stuck))

    def fading(self) -> dict[Port, float]:
        """Return the drift of drifting lasers in dB per minute, by the port that they emit from."""
        return {_port(fault.at[0]): fault.drift_db for fault in self._of("drifting laser")}

    def dark(self) -> frozenset[Port]:
        """Return the NIC ports whose laser is dark."""
        return frozenset(_port(fault.at[0]) for fault in self._of("dark laser"))

    def resets(self) -> list[tuple[Port, int]]:
        """Return the NIC ports whose counters restart from zero, and after how many ns."""
        return [(_port(fault.at[0]), fault.after_ns) for fault in self._of("counter reset")]

    def interruptions(self) -> list[Interruption]:
        """Return when and for how long fibers are dark."""
        return [
            Interruption(_port(f.at[0]), f.after_ns, f.lasting_ns or _DARK_NS, f.every_ns)
            for f in self._of("interrupted fiber")
        ]

    def slowdown(self, switch: str) -> float:
        """Return how many times as long a switch takes to settle and to acknowledge."""
        return math.prod(fault.factor for fault in self._of("slow switch") if fault.at[0] == switch)

    def silences(self, name: str) -> list[SimulatedFault]:
        """Return the faults that silence a switch or an instrument."""
        return [fault for fault in self._of("silent instrument") if fault.at[0] == name]

    def skew(self, server: str) -> float:
        """Return by how many ppm a server's clock runs too fast."""
        return sum(fault.ppm for fault in self._of("clock skew") if fault.at[0] == server)

    def clock_steps(self, server: str) -> list[ClockStep]:
        """Return when a server's clock is set, and by how much."""
        found = (fault for fault in self._of("clock step") if fault.at[0] == server)
        return [ClockStep(fault.after_ns, fault.step_ns) for fault in found]

    def clock_slews(self, server: str) -> list[ClockSlew]:
        """Return when a server's clock is slewed by its kernel, for how long and how fast."""
        found = (fault for fault in self._of("clock slew") if fault.at[0] == server)
        return [ClockSlew(fault.after_ns, fault.lasting_ns or 0, fault.ppm) for fault in found]

    def has_wrong_key(self, server: str) -> bool:
        """Whether a server presents a host key other than the known one."""
        return any(fault.at[0] == server for fault in self._of("wrong host key"))

    def missing_tools(self, server: str) -> frozenset[str]:
        """Return the programs that a server lacks."""
        found = (fault for fault in self._of("missing tool") if fault.at[0] == server)
        return frozenset(fault.tool for fault in found)

    def stale(self, switch: str) -> list[Circuit]:
        """Return the circuits that a switch already has when the world begins."""
        found = (fault for fault in self._of("stale cross-connect") if fault.at[0] == switch)
        return [Circuit.parse(fault.at[1]) for fault in found]

    def fill_error_queue(self, name: str, scpi: SessionFactory | None) -> None:
        """Fill the error queue of an instrument, where that fault is injected."""
        if scpi is not None and any(f.at[0] == name for f in self._of("full error queue")):
            scpi(_NoClient(), 9999).received(b"NONSENSE\n" * 40)

    def _of(self, kind: str) -> Iterator[SimulatedFault]:
        return (fault for fault in self._faults if fault.kind == kind)


def _port(text: str) -> Port:
    owner, _, name = text.partition(".")
    return Port(owner, name)


class _NoClient:
    """A connection whose client has left."""

    def send(self, data: bytes) -> None:
        """Discard the reply."""

    def close(self, *, abruptly: bool = False) -> None:
        """Do nothing."""
