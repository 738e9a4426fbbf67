"""The ports that a change of plan joins to others, and those that it darkens meanwhile."""

from collections.abc import Iterable

from lightrig.harness.bench import Fabric, Transition
from lightrig.testbeds import Plan, Port, Testbed


def plan_before(transition: Transition) -> Plan:
    """Return the circuits from which a transition begins."""
    return Plan("before", {n: c.keep | c.remove for n, c in transition.changes.items()})


def rising_ports(fabric: Fabric, transition: Transition, before: Plan | None = None) -> set[Port]:
    """The server ports that a change of plan joins to others than before.

    before: what `plan_before` returned; by default it is asked.
    """
    links_before = fabric.links(plan_before(transition) if before is None else before)
    new_links = fabric.links(transition.plan) - links_before
    return {port for link in new_links for port in (link.a, link.b)}


def darkened_ports(
    fabric: Fabric, transition: Transition, rising: Iterable[Port] | None = None
) -> set[Port]:
    """Return the ports of new links that lose their light meanwhile, and with it their carrier.

    A port that goes on receiving the same light loses none, whoever receives its own.

    rising: those of `rising_ports` that are in question; by default all.
    """
    return {
        port
        for port in (rising_ports(fabric, transition) if rising is None else rising)
        if not _keeps_its_light(fabric.testbed, transition, port)
    }


def _keeps_its_light(testbed: Testbed, transition: Transition, port: Port) -> bool:
    """Whether the one switch between `port` and a server's transmitter keeps its circuit."""
    switch, egress = testbed.cabling.egress_of(port) or ("", 0)
    if switch not in transition.changes:
        return False
    sources = (
        testbed.cabling.transmitter(switch, circuit.ingress)
        for circuit in transition.changes[switch].keep
        if circuit.egress == egress
    )
    return any(source is not None and source.owner in testbed.servers for source in sources)
