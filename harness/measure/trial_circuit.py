"""One circuit with a port that was out of service, to see whether it works again."""

from collections.abc import Iterator
from dataclasses import dataclass

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.links import LinkObservation, LinksDownError
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.testbeds import (
    Circuit,
    LightrigError,
    Link,
    Plan,
    Port,
    Testbed,
    format_dbm,
    format_duration,
)
from lightrig.testbeds.cabling import NoLightPathError
from lightrig.testbeds.out_of_service import without_ports


class NoTrialError(LightrigError):
    """No circuit can be made with a port: nothing that is in service can be at its other end."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What was seen of a port.

    Attributes:
        port: the port.
        seen: a sentence on what came up, or what did not.
        works: whether light and, of a NIC port, its link came.
    """

    port: Port
    seen: str
    works: bool


def trial_plan(testbed: Testbed, port: Port) -> tuple[Plan, Link | None]:
    """Return the circuits of one link of `port`, or one circuit of a port without a NIC behind it.

    Those of a plan of the testbed, where one has any. Raises `NoTrialError`.
    """
    if port.owner in testbed.servers:
        return _plan_of_link(testbed, port)
    ends = testbed.working_circuit_ports(port.owner)
    side = 0 if int(port.name) in ends[0] else 1
    stated = (c for plan in testbed.plans.values() for c in plan.circuits.get(port.owner, ()))
    possible = (Circuit(*each) for each in _pairs(int(port.name), ends, side))
    circuit = next((c for c in (*stated, *possible) if c[side] == int(port.name)), None)
    if circuit is None:
        raise NoTrialError(f"no port of {port.owner} that is in service can be joined to {port}")
    return Plan(f"trial of {port}", {port.owner: frozenset([circuit])}), None


def _pairs(
    number: int, ends: tuple[frozenset[int], frozenset[int]], side: int
) -> Iterator[tuple[int, int]]:
    for far in sorted(ends[1 - side]):
        yield (number, far) if side == 0 else (far, number)


def _plan_of_link(testbed: Testbed, port: Port) -> tuple[Plan, Link]:
    everything = frozenset(spec.port for spec in testbed.nic_ports)
    for plan in testbed.plans.values():
        for link in testbed.links(plan):
            if port in (link.a, link.b):
                rest = everything - {link.a, link.b}
                left = without_ports(testbed, plan, rest)
                return Plan(f"trial of {port}", left.circuits), link
    for spec in testbed.working_ports:
        if spec.port != port:
            try:
                found = testbed.cabling.circuits_for_link(port, spec.port)
            except NoLightPathError:
                continue
            return Plan(f"trial of {port}", found.circuits), Link(port, spec.port)
    raise NoTrialError(f"no NIC port that is in service can be linked to {port}")


def try_port(fabric: Fabric, links: LinkObservation, port: Port) -> Trial:
    """Make one circuit with `port`, of a NIC port its link, and wait for what it should bring.

    Raises what `Fabric.apply` raises, and `NoTrialError`.
    """
    plan, link = trial_plan(fabric.testbed, port)
    clock = fabric.bench.clock
    if link is None:
        fabric.apply(plan)
        light = _light(fabric, plan)
        shown = _shown(light)
        works = all(dbm > DARK_DBM for dbm in light.values())
        return Trial(port, shown or "its circuit was made, and nothing reads light there", works)
    began = clock.now()
    try:
        bring_up(fabric, links, plan)
    except LinksDownError as error:
        return Trial(port, str(error), works=False)
    took = format_duration(clock.now() - began)
    stages = ", ".join(links.stages(port))
    shown = _shown(_light(fabric, plan))
    return Trial(port, f"{link}: {stages} up in {took}{'; ' if shown else ''}{shown}", works=True)


def _light(fabric: Fabric, plan: Plan) -> dict[Port, float]:
    """Return the power in dBm at each egress of a plan whose switch reads it."""
    found: dict[Port, float] = {}
    for name, circuits in plan.circuits.items():
        monitor = fabric.bench.switches[name]
        if isinstance(monitor, PowerMonitor) and circuits:
            reading = monitor.power(sorted(c.egress for c in circuits))
            fabric.bench.clock.sleep(reading.window)
            dbm = monitor.power(sorted(c.egress for c in circuits)).dbm
            found |= {Port(name, str(egress)): power for egress, power in dbm.items()}
    return found


def _shown(light: dict[Port, float]) -> str:
    return ", ".join(f"{port} {format_dbm(dbm)}" for port, dbm in light.items())
