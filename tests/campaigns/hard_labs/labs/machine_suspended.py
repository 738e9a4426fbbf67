"""A server's machine is suspended, or moved: its clock stands still for 80 ms."""

from tests.campaigns.hard_labs.lab_faults import MS, Stepping
from tests.campaigns.hard_labs.timing import ALL, Timing

CLOCK = Stepping(-80 * MS)
LAB = Timing(
    patch=CLOCK.patch,
    inject=CLOCK.inject,
    declined=ALL,
    named="server0 has a clock that jumped back by",
)
