"""Lasers lie 6 nm beside the wavelength of the references, and losses depend on it."""

from tests.campaigns.hard_labs.losses import Losses


def inject(bench, draws):
    beside = {}
    matrix = bench.world.matrices["ocs"]
    matrix.detuning = lambda ingress: beside.setdefault(ingress, draws.gauss(0, 6))


SIMULATION = {"switches": {"ocs": {"loss": {"per_nm": "0.005 dB"}}}}

LAB = Losses(
    simulation=SIMULATION,
    inject=inject,
    declined=("insertion_loss",),
    excused={"insertion_loss": "the light's wavelength is not known"},
    named="wavelength not included",
)
