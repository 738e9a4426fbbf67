"""No monitor shows more than 0 dBm, as the testbed states, and some light is stronger."""

from tests.campaigns.hard_labs.lab_faults import saturated_monitors
from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(
    switch={"monitor_max": "0 dBm"},
    inject=lambda bench, draws: saturated_monitors(bench, 0.0),
    declined=("insertion_loss",),
    named="saturat",
)
