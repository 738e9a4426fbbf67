"""A server's clock is set ahead by 5 ms within an event, whose rows are void."""

from tests.campaigns.hard_labs.lab_faults import MS, Stepping
from tests.campaigns.hard_labs.timing import ALL, Timing

CLOCK = Stepping(5 * MS, ppm=20)
LAB = Timing(
    patch=CLOCK.patch,
    inject=CLOCK.inject,
    declined=ALL,
    named="server0 has a clock that jumped ahead by",
)
