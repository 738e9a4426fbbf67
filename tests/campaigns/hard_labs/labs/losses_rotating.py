"""Each circuit loses 0.2 dB more in one polarization, which changes whenever it is made."""

from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(simulation={"switches": {"ocs": {"loss": {"polarization": "0.2 dB"}}}})
