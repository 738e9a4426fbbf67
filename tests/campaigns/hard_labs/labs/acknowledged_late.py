"""The switch acknowledges 200 ms after light is back."""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    simulation={
        "switches": {"ocs": {"acknowledge": {"mean": "240 ms"}, "settle": {"mean": "40 ms"}}}
    }
)
