"""The prototype's 32 GPUs simulated: seven layers of Mixtral 8x7B on four servers (§6, Fig. 10).

EP 8 and TP 4 (Table 1) take all GPUs. The circuits of a server join it to each of the three others,
so no change is due. Computation and loads as in `simulated_steps`.
"""

from collections.abc import Sequence
from dataclasses import replace

from lightrig.harness.claims.computed import over_draws
from lightrig.harness.claims.figures.curves import Curve
from lightrig.suites.claims.mixnet.simulated_steps import (
    DRAWS,
    MODELS,
    SEQUENCE,
    job_of,
    network,
)

LAYERS, MICRO_BATCH, SERVERS, RATE = 7, 8, 4, 100
SWITCHING = 42_440_000
"""Mean delay of a change of four pairs in ns, without the NICs (Appendix C, Fig. 21)."""
NICS, OPTICAL = 4, 3
"""Of a server, of which so many are on circuits."""


def _steps(mode: str, optical: int, packet: int) -> list[int]:
    one = MODELS["Mixtral 8x7B"]
    tokens = SERVERS * one.shared * MICRO_BATCH * SEQUENCE
    job = job_of(replace(one.model, layers=LAYERS), one, SERVERS, 1, tokens)
    return [
        network(one.shared, RATE, optical, packet, draw).simulate(job, mode, SWITCHING).step
        for draw in range(DRAWS)
    ]


def prototype_steps() -> Sequence[Curve]:
    """Return the iteration time in ns on MixNet and on Ethernet (Fig. 10)."""
    bars = {
        "MixNet": _steps("block", OPTICAL, NICS - OPTICAL),
        "4 x 100G EPS": _steps("static", 0, NICS),
    }
    curves = []
    for name, steps in bars.items():
        one = over_draws(steps)
        curves.append(
            Curve(name, ("Mixtral 8x7B",), (one.value,), (one.lower,), (one.upper,), one.n)
        )
    return curves
