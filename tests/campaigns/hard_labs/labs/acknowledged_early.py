"""The switch acknowledges 30 ms before light is back."""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    simulation={
        "switches": {"ocs": {"acknowledge": {"mean": "10 ms"}, "settle": {"mean": "40 ms"}}}
    },
    named="ocs acknowledged .* before its light was back",
)
