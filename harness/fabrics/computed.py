"""What a control plane's arithmetic gives where a paper prints a figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that was computed, never measured, in the unit of the figure it stands beside.

    Times are in ns, loss in dB, rates in bit/s, shares from 0 to 1, counts and ratios plain.

    lower, upper: where `CONFIDENCE` of all draws lie; both are `value` where nothing is drawn.
    n: draws. note: what the value rests on, in a sentence or two.
    """

    value: float
    lower: float
    upper: float
    n: int
    note: str = ""


Registry: TypeAlias = Mapping[str, Callable[[], Computed]]
"""What `harness.fabrics.<system>.claims.COMPUTED` is: names to what computes them."""


def exactly(value: float, note: str = "") -> Computed:
    """A value that nothing random went into."""
    return Computed(value, value, value, 1, note)


def over_draws(values: Sequence[float], note: str = "") -> Computed:
    """The mean of independent draws, with the interval that holds one more draw.

    A paper prints one draw, or few, of its own: the question is whether ours could have been
    it, so the interval is Student's prediction interval, mean ± t s √(1 + 1/n), and not the
    narrower one of the mean. Raises `ValueError` for fewer than two draws.
    """
    drawn = np.asarray(values, dtype=float)
    if drawn.size < 2:
        raise ValueError(f"found {drawn.size} draw, expected at least 2 to tell how they scatter")
    quantile = float(special.stdtrit(drawn.size - 1, (1 + CONFIDENCE) / 2))
    reach = quantile * float(drawn.std(ddof=1)) * math.sqrt(1 + 1 / drawn.size)
    mean = float(drawn.mean())
    return Computed(mean, mean - reach, mean + reach, drawn.size, note)
