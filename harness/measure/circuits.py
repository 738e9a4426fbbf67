"""Plans of one circuit: what stays beside it, and what is in its way."""

from lightrig.harness.bench import Fabric
from lightrig.harness.bench.named_values import SubjectError
from lightrig.testbeds import Plan
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.plans import circuit_in


def plan_of(fabric: Fabric, subject: str) -> Plan:
    """Return the plan that a person names, or that of one circuit more.

    subject: the name of a plan, or a circuit such as "ocs 3>17": all other circuits of the
    testbed's ports stay but those that share a port with it. Raises `SubjectError`.
    """
    if subject in fabric.plans:
        return fabric.plans[subject]
    found = circuit_in(subject)
    if found is None or found[0] not in fabric.bench.switches:
        raise SubjectError(
            f"{fabric.testbed.path} has no plan or circuit {subject!r}"
            f"{did_you_mean(subject, fabric.plans)}; a circuit is written 'ocs 3>17'"
        )
    switch, circuit = found
    ours, _ = fabric.present(switch)
    stays = {c for c in ours if c.ingress != circuit.ingress and c.egress != circuit.egress}
    return Plan(subject, {switch: frozenset({*stays, circuit})})
