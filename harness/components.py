"""Components of a testbed, and those of which any one would explain an observation."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lightrig.testbeds import Circuit, Fiber, Testbed
from lightrig.testbeds.plans import circuit_in, circuit_subject, names_in, port_of_lane

ComponentKind: TypeAlias = Literal[
    "switch",
    "server",
    "instrument",
    "connector",
    "port",
    "circuit",
    "fiber",
    "link",
    "harness",
    "other",
]
"""A connector is a port of a switch or an instrument, a port one of a server."""

_PREFIXED = frozenset(("connector", "fiber", "link"))
_FIBER = "fiber_loss"
"""Quantity of a fiber alone, whose light is measured at both of its ends."""
_OF_RECEIVERS = frozenset(("bit_errors", "frame_loss_ratio", "nic_error_ratio"))
"""Families of quantities of NIC ports that depend on what comes to them, not on what they send."""
_LIGHT = ("acknowledged", "los", "signal_recovered")
"""Stages of whole events that servers have no part in."""


@dataclass(frozen=True, order=True, slots=True)
class LabComponent:
    """A component by its kind and by its name, as the testbed's file has it."""

    kind: ComponentKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.kind in _PREFIXED else self.name


HARNESS = LabComponent("harness", "the harness itself")


class Components:
    """The components of a testbed.

    testbed: None where its description is not here; then each subject is a component. by_monitors:
    insertion loss ends at a monitor of the switch, so that it has no part of the fiber behind.
    """

    def __init__(self, testbed: Testbed | None, *, by_monitors: bool = False) -> None:
        self._testbed = testbed
        self._by_monitors = by_monitors
        self._links: dict[str, set[LabComponent]] = {}
        self._partners: dict[str, set[str]] = {}
        self._feeding: dict[str, set[str]] = {}
        self._known: dict[str, LabComponent] = {}
        self._fibers: dict[str, set[Fiber]] = {}
        self._by_name: dict[str, Fiber] = {}
        if testbed is None:
            return
        for plan in testbed.plans.values():
            for link in testbed.cabling.links(plan):
                component = LabComponent("link", f"{link.a} - {link.b}")
                for end, far in ((link.a, link.b), (link.b, link.a)):
                    self._links.setdefault(str(end), set()).add(component)
                    self._partners.setdefault(str(end), set()).add(str(far))
            for switch, circuits in plan.circuits.items():
                for one in circuits:
                    ingress = f"{switch}.{one.ingress}"
                    self._feeding.setdefault(f"{switch}.{one.egress}", set()).add(ingress)
        for fiber in testbed.cabling.fibers:
            self._by_name[str(fiber)] = fiber
            for port in (fiber.source, fiber.sink):
                kind: ComponentKind = "port" if port.owner in testbed.servers else "connector"
                self._known[str(port)] = LabComponent(kind, str(port))
                self._fibers.setdefault(str(port), set()).add(fiber)
        owners: dict[ComponentKind, Iterable[str]] = {
            "switch": testbed.switches,
            "server": testbed.servers,
            "instrument": testbed.instruments,
        }
        for kind, names in owners.items():
            self._known |= {name: LabComponent(kind, name) for name in names}

    def __contains__(self, component: LabComponent) -> bool:
        """Whether the testbed has a switch, server, instrument, port, connector or fiber."""
        if component.kind == "fiber":
            return component.name in self._by_name
        return self._known.get(component.name) == component

    def of(self, subject: str, quantity: str = "", kind: str = "") -> frozenset[LabComponent]:
        """Return the components of which any one would explain an observation of `subject`.

        quantity: that was observed. kind: of a finding.
        """
        if (port := port_of_lane(subject)) is not None:
            # Its fiber and connectors carry the other lanes too.
            return frozenset([self._known.get(port, LabComponent("other", port))])
        if self._testbed is not None:
            if subject == self._testbed.name:
                return self.all(light_alone=quantity.rpartition(".")[2] in _LIGHT)
            if (circuit := circuit_in(subject)) is not None and circuit[0]:
                return self._of_circuit(*circuit, quantity)
            if quantity.partition(".")[0] == _FIBER and (fiber := self._by_name.get(subject)):
                of_fiber = (self._known[str(end)] for end in (fiber.source, fiber.sink))
                return frozenset([_fiber(fiber), *of_fiber])
        named = {self._known[name] for name in names_in(subject) if name in self._known}
        if not named:
            return frozenset([LabComponent("other", subject.partition(", ")[0])])
        if kind == "stuck monitor":
            return frozenset(named)
        found = set(named)
        for one in named:
            fibers = self._fibers.get(one.name, set())
            if quantity.partition(".")[0] in _OF_RECEIVERS:
                fibers = {fiber for fiber in fibers if str(fiber.source) != one.name}
            found |= self._links.get(one.name, set()) | set(map(_fiber, fibers))
            ends = {end for fiber in fibers for end in (fiber.source, fiber.sink)}
            if one.kind == "port":
                found |= {self._known[end.owner] for end in ends}
            if one.kind == "port" or kind == "no light":
                found |= {self._known[str(end)] for end in ends}
            found |= {self._known[end.owner] for end in ends if str(end) == one.name}
        return frozenset(found)

    def cleared_by(self, subject: str, quantity: str = "") -> frozenset[LabComponent]:
        """Return the components that a series which shows nothing speaks for.

        Those of `of`; but a lane says nothing of the other lanes of its port.
        """
        if port_of_lane(subject) is not None:
            return frozenset([LabComponent("other", subject)])
        return self.of(subject, quantity)

    def explaining(
        self, subject: str, quantity: str = "", kind: str = ""
    ) -> frozenset[LabComponent]:
        """Return the components of `of`, and those of the other ends of a NIC port's links.

        They take the link away too, but need not: a series that shows nothing does not clear them.
        An egress port without light has those of the ingress ports that plans join to it.
        """
        names = names_in(subject)
        ends = {far for name in names for far in self._partners.get(name, ())}
        found = {one for end in ends for one in self.of(end) if one.kind != "link"}
        if kind == "no light":
            fed = {one for name in names for one in self._feeding.get(name, ())}
            found |= {one for ingress in fed for one in self.of(ingress, kind=kind)}
        return self.of(subject, quantity, kind) | found

    def of_devices(
        self, servers: Collection[str], devices: Collection[str]
    ) -> frozenset[LabComponent]:
        """Return servers and those of their NIC ports that have a device; none without."""
        if self._testbed is None:
            return frozenset()
        found = {
            LabComponent("port", str(spec.port))
            for spec in self._testbed.nic_ports
            if spec.port.owner in servers and {spec.netdev, spec.rdma} & {*devices}
        }
        return frozenset(found | {self._known[name] for name in servers} if found else ())

    def fibers(self, subjects: Iterable[str]) -> frozenset[LabComponent]:
        """Return the fibers at the ports that subjects name."""
        names = {name for subject in subjects for name in names_in(subject)}
        return frozenset(_fiber(one) for name in names for one in self._fibers.get(name, ()))

    def where(self, component: LabComponent) -> str:
        """Return where a person finds a component; empty where the testbed file does not say.

        The place of a device; of a fiber its label, the patch panels that it crosses, and where it
        ends.
        """
        fiber = self._by_name.get(component.name)
        if component.kind != "fiber" or fiber is None:
            return self._place(component.name.partition(".")[0])
        cable = ", ".join(filter(None, (fiber.label, *fiber.via)))
        place = self._place(fiber.sink.owner)
        if not cable:
            return place
        return f"{cable} to {fiber.sink}" + (f", {place}" if place else "")

    def _place(self, owner: str) -> str:
        if self._testbed is None:
            return ""
        for parts in (self._testbed.switches, self._testbed.servers, self._testbed.instruments):
            if (part := parts.get(owner)) is not None:
                return part.place or ""
        return ""

    def named(self, subjects: Iterable[str]) -> frozenset[LabComponent]:
        """Return the components that subjects name themselves."""
        found: set[LabComponent] = set()
        for subject in subjects:
            if (circuit := circuit_in(subject)) is not None:
                found.add(LabComponent("circuit", circuit_subject(*circuit)))
            else:
                found |= {self._known[name] for name in names_in(subject) if name in self._known}
        return frozenset(found)

    def all(self, *, light_alone: bool = False) -> frozenset[LabComponent]:
        """Return every component apart from links; none where no description is here.

        light_alone: those that light passes between the servers.
        """
        found = set(self._known.values())
        if light_alone:
            switches = {one.name for one in found if one.kind == "switch"}
            found = {one for one in found if one.name.partition(".")[0] in switches}
        return frozenset(found) | self.fibers(one.name for one in found)

    def _of_circuit(self, switch: str, circuit: Circuit, quantity: str) -> frozenset[LabComponent]:
        ports = [f"{switch}.{end}" for end in circuit]
        found = {fiber for port in ports for fiber in self._fibers.get(port, ())}
        if self._by_monitors and quantity.startswith("insertion_loss"):
            found = {fiber for fiber in found if fiber.source.owner != switch}
        alone = LabComponent("circuit", circuit_subject(switch, circuit))
        around = (LabComponent("connector", port) for port in ports)
        return frozenset([LabComponent("switch", switch), alone, *around, *map(_fiber, found)])


def _fiber(fiber: Fiber) -> LabComponent:
    return LabComponent("fiber", str(fiber))
