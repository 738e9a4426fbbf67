"""The switch's monitors average over 50 ms, longer than light is away."""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    simulation={"switches": {"ocs": {"monitor": {"averaging": "50 ms", "noise": "0.1 dB"}}}},
    declined=("los", "signal_recovered"),
)
