"""Light is often away for less than a window of the monitors, and then for no time at all."""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    simulation={"switches": {"ocs": {"dark": {"mean": "32 ms", "sd": "6 ms"}}}},
    declined=("los", "signal_recovered"),
    named="a shorter darkness may go unseen",
)
