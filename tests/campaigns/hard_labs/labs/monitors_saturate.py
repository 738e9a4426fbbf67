"""The switch's monitors saturate at -3 dBm: old and new light look alike."""

from tests.campaigns.hard_labs.lab_faults import saturated_monitors
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(inject=lambda bench, draws: saturated_monitors(bench, -3.0))
