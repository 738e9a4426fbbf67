"""No monitor shows more than 0 dBm, and some light is stronger."""

from tests.campaigns.hard_labs.lab_faults import saturated_monitors
from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(
    inject=lambda bench, draws: saturated_monitors(bench, 0.0),
    declined=("insertion_loss",),
    named="saturat",
)
