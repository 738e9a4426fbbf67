"""Light paths of a plan: from transmitter to receiver, through any number of switches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lightrig.testbeds.cabling import Cabling, Fiber
from lightrig.testbeds.plans import Circuit, Plan, Port


@dataclass(frozen=True, slots=True)
class LightPath:
    """One direction of light: its fibers, and between them the circuits that it crosses."""

    source: Port
    sink: Port
    fibers: tuple[Fiber, ...]
    crossings: tuple[tuple[str, Circuit], ...]

    def __str__(self) -> str:
        stages = (f"{switch} {circuit}" for switch, circuit in self.crossings)
        return " - ".join((str(self.source), *stages, str(self.sink)))


def light_paths(cabling: Cabling, plan: Plan) -> Iterator[LightPath]:
    """Return the light paths that `plan` connects end to end, in the order of the fibers."""
    onward = {
        Port(switch, str(circuit.ingress)): (switch, circuit)
        for switch, circuits in plan.circuits.items()
        for circuit in circuits
    }
    for fiber in cabling.fibers:
        if fiber.source.owner in cabling.switches:
            continue
        fibers, crossings = [fiber], []
        # No port has two fibers or circuits, so this cannot run in a circle.
        while (crossing := onward.get(fibers[-1].sink)) is not None:
            switch, circuit = crossing
            following = cabling.fiber_from(Port(switch, str(circuit.egress)))
            if following is None:
                break
            crossings.append(crossing)
            fibers.append(following)
        sink = fibers[-1].sink
        if crossings and sink.owner not in cabling.switches:
            yield LightPath(fiber.source, sink, tuple(fibers), tuple(crossings))
