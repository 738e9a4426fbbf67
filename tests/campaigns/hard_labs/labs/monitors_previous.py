"""The switch's monitors answer with what they had read for the query before."""

from tests.campaigns.hard_labs.lab_faults import previous_readings
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(
    inject=lambda bench, draws: previous_readings(bench),
    excused=dict.fromkeys(("los", "signal_recovered"), "the latency is not stated"),
    named="latency",
)
