"""Requests take 20 us and replies 300 us, with heavy tails of milliseconds."""

from tests.campaigns.hard_labs.lab_faults import delays
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    patch=lambda draws: delays(
        lambda way: (20e3, 300e3)[way] + min(5e3 * draws.paretovariate(1.2), 20e6)
    ),
    round_trip_ms=0.33,
)
