"""Lasers lie 6 nm beside the wavelength of the references, and losses depend on it."""

from tests.campaigns.hard_labs.losses import Losses


def _inject(bench, draws):
    beside = {}
    matrix = bench.world._matrices["ocs"]
    matrix._detuning = lambda ingress: beside.setdefault(ingress, draws.gauss(0, 6))


LAB = Losses(simulation={"switches": {"ocs": {"loss": {"per_nm": "0.005 dB"}}}}, inject=_inject)
