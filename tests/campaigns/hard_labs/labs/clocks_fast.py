"""A server's clock is 400 ppm fast, as one that is slewed, and its rate rises by 1 ppm a minute."""

from tests.campaigns.hard_labs.lab_faults import server_clock, wandering
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    patch=lambda draws: server_clock(wandering(draws, 400.0, ramp=1.0)),
    pause_s=5,
    named="server0: its clock drifts by at least",
)
