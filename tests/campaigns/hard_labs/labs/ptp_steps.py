"""The PTP clock of a NIC that stamps datagrams, 20 ppm fast, is set ahead by 3 ms in an event."""

from tests.campaigns.hard_labs.lab_faults import MS, SteppingStamps
from tests.campaigns.hard_labs.timing import ALL, Timing

CLOCK = SteppingStamps(3 * MS, place=2, ppm=20)
LAB = Timing(
    patch=CLOCK.patch,
    inject=CLOCK.inject,
    declined=ALL,
    named="server0 stamps datagrams to .* by its NIC's PTP clock, which jumped ahead by",
)
