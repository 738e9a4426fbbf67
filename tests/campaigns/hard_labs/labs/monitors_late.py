"""The switch's monitors show the light of 80 ms ago, and nothing states it.

Light that is lost after its link's carrier is impossible, and must be said.
"""

from tests.campaigns.hard_labs.lab_faults import late_monitors
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    inject=lambda bench, draws: late_monitors(bench, 80_000_000),
    excused=dict.fromkeys(("los", "signal_recovered"), "the latency is not stated"),
    named="latency",
)
