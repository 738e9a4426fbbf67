"""Which instruments and switches the light of an instrument can pass, by fibers and circuits."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeAlias

from lightrig.instruments.core.capabilities import OpticalSwitch
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import Circuit, Port, Testbed

_Node: TypeAlias = tuple[Port, str]


def on_path(
    testbed: Testbed,
    name: str,
    switches: Mapping[str, OpticalSwitch],
    parts: Collection[str],
) -> list[str]:
    """Return those of `parts` that are on a light path with `name`, by the circuits of `switches`.

    A switch that does not answer may join any of its ports.
    """
    circuits = {}
    for switch, driver in switches.items() if parts else ():
        with contextlib.suppress(InstrumentError):
            circuits[switch] = driver.circuits()
    return sorted(light_reach(testbed, name, circuits).intersection(parts)) if parts else []


def light_reach(
    testbed: Testbed, name: str, circuits: Mapping[str, Collection[Circuit]]
) -> frozenset[str]:
    """Return the parts of `testbed` on a light path with `name`, itself not among them.

    circuits: those of each switch; a switch that is not in it joins all of its ports. A server
    ends a path.
    """
    joined: dict[_Node, set[_Node]] = defaultdict(set)

    def join(a: _Node, b: _Node) -> None:
        joined[a].add(b)
        joined[b].add(a)

    def node(port: Port, side: str) -> _Node:
        # Ports of a switch may have the same number on both sides.
        return (port, side if port.owner in testbed.optical_switches else "")

    for fiber in testbed.fibers:
        join(node(fiber.source, "egress"), node(fiber.sink, "ingress"))
    for switch in testbed.optical_switches:
        if switch in circuits:
            for circuit in circuits[switch]:
                ingress, egress = (
                    Port(switch, str(circuit.ingress)),
                    Port(switch, str(circuit.egress)),
                )
                join((ingress, "ingress"), (egress, "egress"))
        else:
            for port, side in [each for each in joined if each[0].owner == switch]:
                join((port, side), (Port(switch, "any"), ""))
    seen = {each for each in joined if each[0].owner == name}
    ahead = list(seen)
    while ahead:
        port, _ = here = ahead.pop()
        if port.owner in testbed.servers:
            continue
        for following in joined[here] - seen:
            seen.add(following)
            ahead.append(following)
    return frozenset(port.owner for port, _ in seen) - {name}
