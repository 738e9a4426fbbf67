"""The cabling as a graph: a circuit is valid only if the graph has its light path."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.plans import Circuit, Link, Plan, Port

__all__ = ["Cabling", "CablingError", "Fiber", "NoLightPathError", "Port"]


_MOST_BEGUN = 10_000
"""Ways through switches in series that are looked at: some fabrics have more than can be listed."""


class CablingError(LightrigError, ValueError):
    """The fibers are inconsistent, or lack what is needed."""


class NoLightPathError(CablingError):
    """A circuit or a link has no fibers."""


@dataclass(frozen=True, order=True, slots=True)
class Fiber:
    """One fiber, in the direction of its light; `loss_db` includes its connectors.

    `uncertainty_db`: standard uncertainty of that loss. `label`: on the cable, empty for unknown.
    `via`: ports of patch panels that it crosses, in the direction of its light. A fiber with
    another label is the same fiber.
    """

    source: Port
    sink: Port
    loss_db: float = 0.0
    uncertainty_db: float = 0.0
    label: str = field(default="", compare=False)
    via: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.source} -> {self.sink}"


@dataclass(frozen=True)
class Cabling:
    """All fibers of a testbed; `switches` names the optical ones, which circuits cross.

    Raises `CablingError` if a port has two fibers in one direction.
    """

    fibers: tuple[Fiber, ...]
    switches: frozenset[str]
    _by_source: dict[Port, Fiber] = field(init=False, repr=False, compare=False)
    _by_sink: dict[Port, Fiber] = field(init=False, repr=False, compare=False)
    _speakers: dict[Port, Port] = field(init=False, repr=False, compare=False)
    _detectors: dict[Port, list[Port]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_source: dict[Port, Fiber] = {}
        by_sink: dict[Port, Fiber] = {}
        for fiber in self.fibers:
            for known, port, end in (
                (by_source, fiber.source, "source"),
                (by_sink, fiber.sink, "sink"),
            ):
                if port in known:
                    raise CablingError(f"{port} is the {end} of two fibers")
                known[port] = fiber
        object.__setattr__(self, "_by_source", by_source)
        object.__setattr__(self, "_by_sink", by_sink)
        speakers = self._shared_transmitters()
        detectors: dict[Port, list[Port]] = {}
        for detector, transmitter in speakers.items():
            detectors.setdefault(transmitter, []).append(detector)
        object.__setattr__(self, "_speakers", speakers)
        object.__setattr__(self, "_detectors", detectors)

    def fiber_from(self, source: Port) -> Fiber | None:
        """Return the fiber that carries light away from `source`."""
        return self._by_source.get(source)

    def fiber_to(self, sink: Port) -> Fiber | None:
        """Return the fiber that brings light to `sink`."""
        return self._by_sink.get(sink)

    def ingress_of(self, nic_port: Port) -> tuple[str, int] | None:
        """Return the switch and ingress port where the transmit fiber of `nic_port` ends."""
        fiber = self.fiber_from(nic_port)
        return self._switch_port(fiber.sink) if fiber else None

    def egress_of(self, nic_port: Port) -> tuple[str, int] | None:
        """Return the switch and egress port where the receive fiber of `nic_port` starts."""
        fiber = self.fiber_to(nic_port)
        return self._switch_port(fiber.source) if fiber else None

    def transmitter(self, switch: str, ingress: int) -> Port | None:
        """Return the port whose light arrives at `ingress` of `switch`."""
        fiber = self.fiber_to(Port(switch, str(ingress)))
        return fiber.source if fiber else None

    def receiver(self, switch: str, egress: int) -> Port | None:
        """Return the port that is lit from `egress` of `switch`."""
        fiber = self.fiber_from(Port(switch, str(egress)))
        return fiber.sink if fiber else None

    def speaker(self, port: Port) -> Port:
        """Return the port whose transmitter belongs to the receiver `port`.

        Usually that is `port`. A port that only receives is one of several detectors of its NIC,
        as in a switching transceiver with one detector per path: its transmitter is the NIC's
        only one.
        """
        return self._speakers.get(port, port)

    def detectors(self, transmitter: Port) -> tuple[Port, ...]:
        """Return the ports whose transmitter is `transmitter`, itself first."""
        return (transmitter, *self._detectors.get(transmitter, ()))

    def light_path(self, switch: str, circuit: Circuit) -> tuple[Port, Port]:
        """Return the ports that `circuit` joins, transmitter first; raises `NoLightPathError`."""
        transmitter = self.transmitter(switch, circuit.ingress)
        receiver = self.receiver(switch, circuit.egress)
        if transmitter is None or receiver is None:
            dark = [
                f"no fiber {side} {switch}.{port}"
                for side, port, end in (
                    ("ends at", circuit.ingress, transmitter),
                    ("starts at", circuit.egress, receiver),
                )
                if end is None
            ]
            raise NoLightPathError(f"circuit {circuit} has no light path: {' and '.join(dark)}")
        return transmitter, receiver

    def circuits_for_link(self, a: Port, b: Port) -> Plan:
        """Return the plan of the two circuits that join `a` and `b`.

        Raises `NoLightPathError` if the four fibers do not meet at one switch.
        """
        link = Link(a, b)
        ends: list[tuple[str, int]] = []
        for port in (link.a, link.b):
            into, out = self.ingress_of(port), self.egress_of(port)
            if into is None or out is None:
                side = "transmit" if into is None else "receive"
                raise NoLightPathError(f"{port} has no {side} fiber on an optical switch")
            ends += [into, out]
        if len({switch for switch, _ in ends}) > 1:
            where = ", ".join(sorted({switch for switch, _ in ends}))
            raise NoLightPathError(f"{link} does not meet one switch, its fibers are on {where}")
        (switch, a_in), (_, a_out), (_, b_in), (_, b_out) = ends
        return Plan(str(link), {switch: frozenset({Circuit(a_in, b_out), Circuit(b_in, a_out)})})

    def paths_in_series(
        self, transmitter: Port, receiver: Port, most: int = 8
    ) -> list[tuple[tuple[str, Circuit], ...]]:
        """Return up to `most` ways from a transmitter to a receiver, the shortest first.

        Each is a circuit of one switch after the other, with a fiber from each to the next; none
        passes a switch twice.
        """
        start, end = self.ingress_of(transmitter), self.egress_of(receiver)
        if start is None or end is None:
            return []
        between: dict[str, list[tuple[int, str, int]]] = {}
        for fiber in self.fibers:
            source, sink = self._switch_port(fiber.source), self._switch_port(fiber.sink)
            if source is not None and sink is not None:
                between.setdefault(source[0], []).append((source[1], *sink))
        found: list[tuple[tuple[str, Circuit], ...]] = []
        begun: list[tuple[tuple[tuple[str, Circuit], ...], str, int]] = [((), *start)]
        for path, switch, ingress in begun:  # grows: the shortest are ended first
            if switch == end[0]:
                found.append((*path, (switch, Circuit(ingress, end[1]))))
            if len(found) == most or len(begun) > _MOST_BEGUN:
                break
            passed = {switch, *(name for name, _ in path)}
            begun += [
                ((*path, (switch, Circuit(ingress, egress))), onward, port)
                for egress, onward, port in between.get(switch, ())
                if onward not in passed
            ]
        return found[:most]

    def links(self, plan: Plan) -> frozenset[Link]:
        """Return the links that `plan` connects in both directions."""
        onward = {
            Port(switch, str(circuit.ingress)): Port(switch, str(circuit.egress))
            for switch, circuits in plan.circuits.items()
            for circuit in circuits
        }
        heard_by: dict[Port, Port] = {}
        for fiber in self.fibers:
            if fiber.source.owner in self.switches:
                continue
            end: Port | None = fiber.sink
            crosses = False
            # No port has two fibers or circuits, so the path has no cycle.
            while end is not None and end.owner in self.switches:
                crosses = True
                out = onward.get(end)
                next_fiber = self.fiber_from(out) if out else None
                end = next_fiber.sink if next_fiber else None
            if end is not None and crosses:
                heard_by[fiber.source] = end
        links = set()
        for source, b in heard_by.items():
            a = heard_by.get(self.speaker(b))
            if a is not None and a != b and self.speaker(a) == source:
                links.add(Link(a, b))
        return frozenset(links)

    def _shared_transmitters(self) -> dict[Port, Port]:
        """Return the transmitting port of the NIC of each port that only receives."""
        senders: dict[tuple[str, str], list[Port]] = {}
        for fiber in self.fibers:
            if fiber.source.owner not in self.switches:
                senders.setdefault(_nic(fiber.source), []).append(fiber.source)
        found = {}
        for fiber in self.fibers:
            only = senders.get(_nic(fiber.sink), [])
            if len(only) == 1 and fiber.sink not in only:
                found[fiber.sink] = only[0]
        return found

    def cabled_ports(self, switch: str) -> tuple[frozenset[int], frozenset[int]]:
        """Return the cabled ingress and egress ports of `switch`; no other may be touched."""
        return self._cabled_ports.get(switch, (frozenset(), frozenset()))

    @cached_property
    def _cabled_ports(self) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
        ports: dict[str, tuple[set[int], set[int]]] = {
            name: (set(), set()) for name in self.switches
        }
        for fiber in self.fibers:
            for side, port in enumerate((fiber.sink, fiber.source)):
                if port.owner in ports:
                    ports[port.owner][side].add(int(port.name))
        return {name: (frozenset(i), frozenset(e)) for name, (i, e) in ports.items()}

    def _switch_port(self, port: Port) -> tuple[str, int] | None:
        return (port.owner, int(port.name)) if port.owner in self.switches else None


def _nic(port: Port) -> tuple[str, str]:
    """Return the NIC of a port "nic0.p1"; any other port is a NIC by itself."""
    return port.owner, port.name.partition(".p")[0]
