"""Light rises in 2 ms and falls in 1 ms, and the mirrors ring."""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    simulation={"switches": {"ocs": {"edge": {"rise": "2 ms", "fall": "1 ms", "ringing": {}}}}}
)
