"""The monitor of one egress is stuck at its first reading."""

from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(
    simulation={"faults": [{"fault": "stuck monitor", "at": ["ocs", "10"]}]},
    declined=("insertion_loss",),
    named=r"stuck monitor at ocs\.10",
)
