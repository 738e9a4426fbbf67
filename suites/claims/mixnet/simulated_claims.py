"""What the paper says of simulated steps, answered by simulated steps (Fig. 12, 14, 26, 28)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from lightrig.harness.claims.computed import Computed, over_draws
from lightrig.suites.claims.mixnet.simulated_steps import (
    DRAWS,
    GPUS,
    NETWORKS,
    Compared,
    efficiency_by_size,
    failures,
    step_time,
)

_NOTE = "simulated; loads of experts are drawn with the spread of the authors' token matrix"
_LARGE = "Mixtral 8x22B"
_MS = 1_000_000
_LATENCIES = (1_000, 10 * _MS, 20 * _MS, 30 * _MS, 50 * _MS, 100 * _MS)
_OVERSUBSCRIBED = Compared("static", 0, GPUS / 3)


def longest(more: float) -> Computed:
    """Return the switching time in ns from which a step is longer than at 1 us by this part.

    Circuits follow predicted loads, so that compute can hide changes, as the paper has it.
    """
    kind, found = replace(NETWORKS["MixNet"], mode="predict"), []
    for draw in range(DRAWS):
        steps = [step_time(_LARGE, kind, draw, switching=at) for at in _LATENCIES]
        found.append(_crossing(_LATENCIES, steps, steps[0] * (1 + more)))
    return over_draws(found, f"a step is {more:.0%} longer from there on; {_NOTE}")


def _crossing(x: Sequence[int], y: Sequence[int], level: float) -> float:
    """Return where a line through these points first has a level; the last x if it has not."""
    for (left, right), (low, high) in zip(pairwise(x), pairwise(y), strict=True):
        if low < level <= high:
            return left + (right - left) * (level - low) / (high - low)
    return x[-1]


def oversubscribed() -> Computed:
    """Return the step on a fat tree with a third of the rate over MixNet's, at 100 Gbit/s."""
    found = [
        step_time(_LARGE, _OVERSUBSCRIBED, draw, rate=100)
        / step_time(_LARGE, NETWORKS["MixNet"], draw, rate=100)
        for draw in range(DRAWS)
    ]
    return over_draws(found, f"at 100 Gbit/s, where it is greatest; {_NOTE}")


def failed(name: str) -> Computed:
    """Return by which part a step of Mixtral 8x22B is longer where this has failed."""
    (curve,) = failures([name])
    return Computed(curve.y[0], curve.lower[0], curve.upper[0], curve.n, _NOTE)


def per_dollar() -> Computed:
    """Return tokens a second and dollar over a fat tree's, of 1,024 GPUs."""
    (curve,) = efficiency_by_size((128,))
    return Computed(
        curve.y[0], curve.lower[0], curve.upper[0], curve.n, f"1,024 GPUs, 400 Gbit/s; {_NOTE}"
    )


SIMULATED: Mapping[str, Callable[[], Computed]] = {
    "failure-gpu": lambda: failed("a GPU"),
    "fast-switch": lambda: longest(0.01),
    "slow-switch": lambda: longest(0.1),
    "over-subscribed": oversubscribed,
    "scale-per-dollar": per_dollar,
}
"""By the name of the claim in results/published/mixnet.yaml."""
