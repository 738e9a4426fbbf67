"""Switches in memory for an orchestrator, and a checker of what they do by the light alone.

Nothing here imports the orchestrator's plans: links are followed along the fibers of the testbed
through the circuits that the switches hold, and commands are what the switches received.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from lightrig.harness.orchestration.switch_sessions import Outcomes, Reading
from lightrig.testbeds import Circuit, LightrigError, Port, Testbed


class Killed(BaseException):
    """The end of a process, before it sends an order."""


class Switchroom:
    """The switches of a testbed: which answer, which see light, and what they were told.

    Attributes:
        monitors: the ports that see light, "ingress", "egress" or "none".
        silent: switches that do not answer. unlit: nodes without light.
        commands: every circuit that was removed or added, since it was last emptied.
        kill_after: circuits that are changed until the process ends; None: it goes on.
    """

    def __init__(self, testbed: Testbed, monitors: str = "none") -> None:
        self.testbed, self.monitors = testbed, monitors
        self.circuits: dict[str, frozenset[Circuit]] = dict.fromkeys(
            testbed.optical_switches, frozenset()
        )
        self.silent: set[str] = set()
        self.refusing: set[str] = set()
        self.unlit: set[str] = set()
        self.commands: list[tuple[str, Circuit]] = []
        self.kill_after: int | None = None

    def probe(self, names: Collection[str]) -> Outcomes:
        return {
            name: LightrigError(f"{name} did not answer\nwithin 1 s")
            if name in self.silent
            else self._read(name)
            for name in names
        }

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        found: dict[str, Reading | LightrigError] = {}
        for name, circuits in wanted.items():
            if name in self.silent | self.refusing:
                found[name] = LightrigError(f"{name} takes no order")
                continue
            for circuit in sorted(self.circuits[name] ^ circuits):
                if self.kill_after is not None:
                    if self.kill_after == 0:
                        raise Killed
                    self.kill_after -= 1
                self.commands.append((name, circuit))
                self.circuits[name] ^= {circuit}
            found[name] = Reading(circuits)
        return found

    def close(self) -> None:
        pass

    def _read(self, switch: str) -> Reading:
        circuits = self.circuits[switch]
        ports = {
            int(fiber.sink.name): fiber.source.owner not in self.unlit
            for fiber in self.testbed.fibers
            if fiber.sink.owner == switch
        }
        if self.monitors == "egress":  # they see what enters by a circuit alone
            ports = {c.ingress: ports[c.ingress] for c in circuits}
        elif self.monitors == "none":
            ports = {}
        lit = frozenset(port for port, is_lit in ports.items() if is_lit)
        return Reading(circuits, lit, frozenset(ports) - lit)


def beams(testbed: Testbed, circuits: Mapping[str, Collection[Circuit]]) -> set[tuple[Port, Port]]:
    """Return pairs of a NIC port that sends and the one that sees its light."""
    return {(source, sink) for source, sink, _ in _paths(testbed, circuits)}


def circuits_with_light(
    testbed: Testbed, circuits: Mapping[str, Collection[Circuit]]
) -> dict[tuple[str, Circuit], frozenset[str]]:
    """Return the two nodes that each circuit joins, of those that join two."""
    return {
        each: frozenset({source.owner, sink.owner})
        for source, sink, passed in _paths(testbed, circuits)
        if source.owner != sink.owner
        for each in passed
    }


def _paths(
    testbed: Testbed, circuits: Mapping[str, Collection[Circuit]]
) -> Iterator[tuple[Port, Port, list[tuple[str, Circuit]]]]:
    """Yield the NIC ports at both ends of a path of light, and the circuits between them."""
    fiber_from = {fiber.source: fiber.sink for fiber in testbed.fibers}
    through = {
        Port(switch, str(circuit.ingress)): (switch, circuit)
        for switch, each in circuits.items()
        for circuit in each
    }
    for source, sink in fiber_from.items():
        if source.owner not in testbed.servers:
            continue
        at: Port | None = sink
        passed = []
        while at in through:
            passed.append(through[at])
            at = fiber_from.get(Port(at.owner, str(through[at][1].egress)))
        if at is not None and at.owner in testbed.servers:
            yield source, at, passed


def joined(testbed: Testbed, circuits: Mapping[str, Collection[Circuit]]) -> dict[str, set[str]]:
    """Return which nodes see light of which, themselves left out."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for source, sink in beams(testbed, circuits):
        if source.owner != sink.owner:
            found[source.owner].add(sink.owner)
    return found
