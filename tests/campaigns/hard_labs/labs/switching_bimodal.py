"""One change of five takes 120 ms instead of 40 ms."""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    simulation={
        "switches": {
            "ocs": {
                "dark": {"mean": "3 ms", "sd": "1 ms"},
                "settle": {
                    "mean": "40 ms",
                    "sd": "3 ms",
                    "slow": {"share": "20 %", "mean": "120 ms", "sd": "10 ms"},
                },
            }
        }
    }
)
