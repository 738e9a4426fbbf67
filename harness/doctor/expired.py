"""Ports that are out of service longer than was meant."""

from lightrig.harness.findings import EXPIRED, Finding
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import Testbed
from lightrig.testbeds.exceptions import ports_named
from lightrig.testbeds.out_of_service import taken_along
from lightrig.testbeds.timezones import local


def expired_exceptions(testbed: Testbed) -> list[Finding]:
    """Return a finding for each port that is out of service longer than was meant."""
    today = local(wall_time(), testbed.timezone).time.date()
    found = []
    for what, entry in testbed.out.entries.items():
        if entry.has_passed(today):
            ports = taken_along(testbed, ports_named(testbed, what))
            nics = [str(port) for port in sorted(ports) if port.owner in testbed.servers]
            sentence = f"{entry} is out of service still: the date has passed"
            step = f"`lightrig in {testbed.path} {what}`, or `lightrig out` with a later --until"
            found.append(Finding(EXPIRED, sentence, tuple(nics or [what]), next_step=step))
    return found
