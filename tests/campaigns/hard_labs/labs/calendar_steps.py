"""CLOCK_REALTIME, by which a kernel stamps datagrams, is set back by 7 ms within an event."""

from tests.campaigns.hard_labs.lab_faults import MS, SteppingStamps
from tests.campaigns.hard_labs.timing import ALL, Timing

CLOCK = SteppingStamps(-7 * MS, place=0)
LAB = Timing(
    patch=CLOCK.patch,
    inject=CLOCK.inject,
    declined=ALL,
    named="server0 stamps datagrams to .* by CLOCK_REALTIME, which jumped back by",
)
