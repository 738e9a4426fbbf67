"""A connector at an egress of the switch has become dirty: 1 dB in each of its circuits."""

from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(
    simulation={"faults": [{"fault": "dirty connector", "at": ["ocs", "10"], "loss": "1 dB"}]},
    named=r"dirty connector.* at ocs\.10",
)
