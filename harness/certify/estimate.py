"""How long a certification will take, before anything is contacted."""

from collections.abc import Collection

from lightrig.harness.certify.requirements import Duration, requirements
from lightrig.instruments.core.registry import driver
from lightrig.testbeds import Testbed

QUESTION_S = {"ssh": 0.3, "netconf": 0.1, "gnmi": 0.03, "restconf": 0.02}
"""Rough duration of a question over a wire, in s, by its scheme; over others it is negligible."""


def estimated_seconds(testbed: Testbed, switch: str, numbers: Collection[str], used: int) -> float:
    """Return about how many seconds these clauses take, with `used` ports of the smaller side.

    What a clause needs is taken for there where the driver or the testbed file has it.
    """
    there = _there(testbed, switch)
    scheme = (testbed.switches[switch].address or "").partition("://")[0]
    question = QUESTION_S.get(scheme, 0.0)
    seconds = 0.0
    for number in numbers:
        each = requirements().durations.get(number, Duration())
        if each.needs in there:
            seconds += each.fixed + each.port * used
            seconds += each.questions * question
        else:
            seconds += Duration().questions * question
    return seconds


def _there(testbed: Testbed, switch: str) -> set[str]:
    """Return what clauses may need and find at a switch."""
    there, kind = {""}, driver(testbed.switches[switch].model)
    _, egress = testbed.cabling.cabled_ports(switch)
    ends = [testbed.cabling.receiver(switch, port) for port in egress]
    meters = [each for each in ends if each and each.owner in testbed.instruments]
    if hasattr(kind, "power") or meters:
        there.add("light")
    if hasattr(kind, "follow_circuits"):
        there.add("notifications")
    of_switch = [plan for plan in testbed.plans.values() if set(plan.circuits) == {switch}]
    if len(of_switch) > 1 and testbed.nic_ports:
        there.add("plans")
    return there
