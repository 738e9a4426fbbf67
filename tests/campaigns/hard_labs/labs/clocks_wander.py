"""A server's clock is 40 ppm fast, and its rate wanders by 0.1 ppm per root second."""

from tests.campaigns.hard_labs.lab_faults import server_clock, wandering
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(patch=lambda draws: server_clock(wandering(draws, 40.0, walk=0.1)), pause_s=5)
