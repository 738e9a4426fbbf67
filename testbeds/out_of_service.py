"""Ports that are out of service: what they take with them, and what is left of the plans.

The fibers stay the testbed's, and with them the right to unmake a circuit and to restore one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from lightrig.testbeds.exceptions import Exceptions, load_exceptions, ports_named
from lightrig.testbeds.light_paths import light_paths
from lightrig.testbeds.model import OutOfService, Testbed
from lightrig.testbeds.plans import Circuit, Link, Plan, Port


def with_exceptions(testbed: Testbed) -> Testbed:
    """Return a testbed without the ports that its list of exceptions puts out of service.

    Raises what `load_exceptions` raises.
    """
    return without(testbed, load_exceptions(testbed))


def without(testbed: Testbed, exceptions: Exceptions) -> Testbed:
    """Return a testbed of whose plans the circuits of ports that are out are left out."""
    if not exceptions.out:
        return testbed
    named = (ports_named(testbed, what) for what in exceptions.out)
    ports = taken_along(testbed, frozenset().union(*named))
    out = OutOfService(exceptions.out, ports, testbed)
    plans = {name: without_ports(testbed, plan, ports) for name, plan in testbed.plans.items()}
    return dataclasses.replace(testbed, plans=plans, out=out)


def taken_along(testbed: Testbed, ports: Iterable[Port]) -> frozenset[Port]:
    """Return ports with those at the far ends of their fibers, as far as no circuit is between.

    A NIC port without one of its two fibers has no link, so it is out with both.
    """
    found, waiting = set[Port](), [*ports]
    fibers_at: dict[Port, list[Port]] = {}
    for fiber in testbed.fibers:
        fibers_at.setdefault(fiber.source, []).append(fiber.sink)
        fibers_at.setdefault(fiber.sink, []).append(fiber.source)
    while waiting:
        port = waiting.pop()
        if port not in found:
            found.add(port)
            waiting += fibers_at.get(port, ())
    return frozenset(found)


def without_ports(
    testbed: Testbed, plan: Plan, ports: Collection[Port], links: Collection[Link] = ()
) -> Plan:
    """Return a plan without its links and circuits that need one of `ports`, and without `links`.

    A link without one of its directions is left out whole, with its circuits on all switches.
    """
    refused = {
        (switch, circuit)
        for switch, circuits in plan.circuits.items()
        for circuit in circuits
        if not ends_of(switch, circuit).isdisjoint(ports)
    }
    paths, speaker = [*light_paths(testbed.cabling, plan)], testbed.cabling.speaker
    cut = {frozenset((link.a, link.b)) for link in links}
    cut |= {
        frozenset((path.source, speaker(path.sink)))
        for path in paths
        if not refused.isdisjoint(path.crossings) or not {path.source, path.sink}.isdisjoint(ports)
    }
    for path in paths:
        if frozenset((path.source, speaker(path.sink))) in cut:
            refused.update(path.crossings)
    if not refused:
        return plan
    left = {
        switch: frozenset(c for c in circuits if (switch, c) not in refused)
        for switch, circuits in plan.circuits.items()
    }
    return Plan(plan.name, left)


def ends_of(switch: str, circuit: Circuit) -> frozenset[Port]:
    """Return the two ports of a switch that a circuit joins."""
    return frozenset(Port(switch, str(number)) for number in circuit)


def ports_of_plan(testbed: Testbed, plan: Plan | str) -> frozenset[Port]:
    """Return the NIC ports that a plan links."""
    return frozenset(port for link in testbed.links(plan) for port in (link.a, link.b))


def share_of_plan(testbed: Testbed, name: str) -> tuple[int, int]:
    """Return how many NIC ports of a plan are linked, and how many the file's plan links."""
    stated = testbed.out.stated or testbed
    return len(ports_of_plan(testbed, name)), len(ports_of_plan(stated, name))


def plan_sentences(testbed: Testbed) -> list[str]:
    """Return how many ports are left of each plan that lacks some.

    As "plan straight: 6 of 8 ports; out: server3.nic0.p1".
    """
    found = []
    for name in testbed.plans:
        left, stated = share_of_plan(testbed, name)
        if left < stated:
            found.append(f"plan {name}: {left} of {stated} ports; out: {testbed.out}")
    return found
