"""Each circuit loses 0.4 dB more in one polarization, and that of each fiber is fixed.

Where the check standard's circuits differ alike from their references, the losses are void.
"""

import math

from tests.campaigns.hard_labs.losses import Losses


def _inject(bench, draws):
    states = {}

    def fixed(ingress):
        if ingress not in states:
            state = [draws.gauss(0, 1) for _ in range(3)]
            states[ingress] = tuple(one / math.hypot(*state) for one in state)
        return states[ingress]

    bench.world.matrices["ocs"].polarization = fixed


LAB = Losses(
    simulation={"switches": {"ocs": {"loss": {"polarization": "0.4 dB"}}}},
    inject=_inject,
    excused={"insertion_loss": "the light's polarization is not known"},
    declined=("insertion_loss",),
    named="polarization not included|shifted meter",
)
