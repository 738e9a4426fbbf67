"""Every monitor drifts by 0.3 dB an hour, and each circuit repeats within 0.05 dB."""

from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(
    simulation={
        "switches": {"ocs": {"loss": {"repeatability": "0.05 dB"}, "monitor": {"drift": "0.3 dB"}}}
    }
)
