"""The parts of a fabric's description that an orchestrator needs: of a testbed, or of its sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from lightrig.harness.system_registry import SizedFabric
from lightrig.testbeds import Circuit, Link, Plan, Testbed


class Wiring(Protocol):
    """Optical switches, and which port of them is cabled to which node."""

    @property
    def switches(self) -> Mapping[str, str | None]:
        """The host of each switch's address, None without one."""

    def lights(self, switch: str) -> Mapping[int, str]:
        """Return the nodes by the ingress port of a switch that their light enters."""

    def ingress(self, switch: str) -> frozenset[int]:
        """Return the ingress ports of a switch that a fiber leads to, from anywhere."""

    def loops(self, switch: str) -> Mapping[str, Circuit]:
        """Return by node a circuit of a switch from a port of the node to itself."""

    def links(self, plan: Plan) -> Iterator[Link]:
        """Yield the links between NIC ports that a plan connects."""

    def testbed_of(self, switch: str) -> Testbed:
        """Return a testbed with a switch and what is cabled to it, for a session with it."""


class Structure(Wiring, SizedFabric, Protocol):
    """A fabric of stated sizes, with its wiring."""

    path: Path
    lab_folder: Path | None


class TestbedWiring:
    """The wiring of a testbed that is there whole."""

    __test__ = False

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self.switches: Mapping[str, str | None] = {
            name: urlsplit(spec.address or "").hostname
            for name, spec in testbed.optical_switches.items()
        }
        self._lights, self._loops = lights(testbed), loops(testbed)

    def lights(self, switch: str) -> Mapping[int, str]:
        """See `Wiring`."""
        return self._lights[switch]

    def ingress(self, switch: str) -> frozenset[int]:
        """See `Wiring`."""
        return self._testbed.cabling.cabled_ports(switch)[0]

    def loops(self, switch: str) -> Mapping[str, Circuit]:
        """See `Wiring`."""
        return self._loops[switch]

    def links(self, plan: Plan) -> Iterator[Link]:
        """See `Wiring`."""
        return iter(self._testbed.links(plan))

    def testbed_of(self, switch: str) -> Testbed:
        """See `Wiring`."""
        return self._testbed


def wiring_of(fabric: Testbed | Wiring) -> Wiring:
    """Return the wiring of a testbed, or the one that is given."""
    return TestbedWiring(fabric) if isinstance(fabric, Testbed) else fabric


def lights(testbed: Testbed) -> dict[str, dict[int, str]]:
    """Return the nodes by switch and ingress port that their light enters."""
    found: dict[str, dict[int, str]] = {name: {} for name in testbed.optical_switches}
    for fiber in testbed.fibers:
        if fiber.sink.owner in found and fiber.source.owner in testbed.servers:
            found[fiber.sink.owner][int(fiber.sink.name)] = fiber.source.owner
    return found


def loops(testbed: Testbed) -> dict[str, dict[str, Circuit]]:
    """Return by switch and node a circuit from a port of the node to itself."""
    found: defaultdict[str, dict[str, Circuit]] = defaultdict(dict)
    ingress = {
        (name, node): port
        for name, nodes in lights(testbed).items()
        for port, node in nodes.items()
    }
    for fiber in testbed.fibers:
        name, node = fiber.source.owner, fiber.sink.owner
        if (name, node) in ingress:
            loop = Circuit(ingress[name, node], int(fiber.source.name))
            found[name].setdefault(node, loop)
    return {name: found[name] for name in testbed.optical_switches}
