"""A server's machine is moved within an event: its clocks go on elsewhere, 250 ms behind."""

from tests.campaigns.hard_labs.lab_faults import MS, Stepping
from tests.campaigns.hard_labs.timing import ALL, Timing

CLOCK = Stepping(-250 * MS)
LAB = Timing(
    patch=CLOCK.patch,
    inject=CLOCK.inject,
    declined=ALL,
    named="server0 has a clock that jumped back by",
)
