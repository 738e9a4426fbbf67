"""Lasers lie 6 nm beside the wavelength of the references, which state 0.03 dB for that."""

from tests.campaigns.hard_labs.labs.losses_wavelength import SIMULATION, inject
from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(
    simulation=SIMULATION | {"references": {"uncertainty": "0.04 dB", "wavelength": "0.03 dB"}},
    inject=inject,
)
