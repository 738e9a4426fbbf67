"""The switch's monitors show the light of 80 ms ago, and the testbed states it."""

from tests.campaigns.hard_labs.lab_faults import late_monitors
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    switch={"monitor_latency": "80 ms"},
    inject=lambda bench, draws: late_monitors(bench, 80_000_000),
)
