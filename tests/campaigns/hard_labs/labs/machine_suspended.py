"""A server's machine is suspended for 80 ms within an event: all its clocks stand still."""

from tests.campaigns.hard_labs.lab_faults import MS, Stepping
from tests.campaigns.hard_labs.timing import ALL, Timing

CLOCK = Stepping(stands=80 * MS)
LAB = Timing(
    patch=CLOCK.patch,
    inject=CLOCK.inject,
    declined=ALL,
    named="server0 has a clock that jumped back by",
)
