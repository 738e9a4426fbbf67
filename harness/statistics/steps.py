"""Abrupt steps in a row of numbers that scatter about a slow drift."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from lightrig.harness.statistics.samples import Samples

WINDOW = 12
"""As many values on either side of a step speak for it: over these, a slow drift is a line."""
FEWEST = 3
"""A step has at least as many values on either side."""

_ROUNDING = 1e-9
"""A step that is less, of the size of the values, is no step."""
_USUAL = 0.68
"""The share of places that show how large a step is usual; the others may hold some."""


@dataclass(frozen=True, slots=True)
class LevelStep:
    """A step up or down to the value at index `at`.

    p: the probability that the values show such a step anywhere if they hold none.
    """

    at: int
    p: float


def find_steps(values: Samples, error: float) -> list[LevelStep]:
    """The steps of which each has a p of at most `error`, in their order.

    At each place the step is estimated beside a straight line through up to `WINDOW` values on
    either side, as a t statistic. The largest is a candidate if it is significant among as
    many (Bonferroni), and is taken out, until none is. The places that are left should show
    what chance does; where they show more, values wander, and candidates must exceed that.
    """
    windows, places = _windows(values.size), np.arange(values.size)
    free = np.ones(windows.at.size, bool)
    least = -float(scipy.special.ndtri(error / (2 * free.size)))
    candidates: dict[int, float] = {}
    while True:
        found, size = _scan(values)
        best = int(np.argmax(np.where(free, found, 0)))
        if not free[best] or found[best] < least:
            break
        at = int(windows.at[best])
        candidates[at] = float(found[best])
        free &= np.abs(windows.at - at) >= FEWEST
        values = values - size[best] * (places >= at)
    # A share `_USUAL` of normal deviates is, in absolute value, below the quantile that it is
    # divided by: where chance does no more, `usual` is 1.
    usual = 1.0
    if candidates and free.any():
        usual = float(np.quantile(found[free], _USUAL) / scipy.special.ndtri((1 + _USUAL) / 2))
    steps = (
        LevelStep(at, min(1.0, 2 * free.size * float(scipy.special.ndtr(-size / max(1.0, usual)))))
        for at, size in sorted(candidates.items())
    )
    return [step for step in steps if step.p <= error]


@dataclass(frozen=True, slots=True)
class _Windows:
    """For each place of a step, what turns values into sums over its window; one row a place.

    step: the step beside a line, of unit length; size: by what it is to be divided.
    mean, slope: the line, of unit length; inside: the window.
    """

    at: Samples
    step: Samples
    size: Samples
    mean: Samples
    slope: Samples
    inside: Samples
    df: Samples


@lru_cache(maxsize=64)
def _windows(count: int) -> _Windows:
    at = np.arange(FEWEST, count - FEWEST + 1)
    places = np.arange(count)
    inside = ((places >= at[:, None] - WINDOW) & (places < at[:, None] + WINDOW)).astype(float)
    many = inside.sum(axis=1, keepdims=True)
    mean = inside / np.sqrt(many)
    slope = inside * (places - (inside @ places)[:, None] / many)
    slope /= np.linalg.norm(slope, axis=1, keepdims=True)
    step = inside * (places >= at[:, None])
    for line in (mean, slope):
        step -= line * np.sum(step * line, axis=1, keepdims=True)
    size = np.linalg.norm(step, axis=1)
    return _Windows(at, step / size[:, None], size, mean, slope, inside, many[:, 0] - 3)


def _scan(values: Samples) -> tuple[Samples, Samples]:
    """For each place, how many standard deviations of chance its step is, and the step."""
    windows = _windows(values.size)
    rounding = (_ROUNDING * float(np.abs(values).max())) ** 2 + float(np.finfo(float).tiny)
    values = values - values.mean()
    step = windows.step @ values
    rest = windows.inside @ values**2 - (windows.mean @ values) ** 2
    rest -= (windows.slope @ values) ** 2 + step**2
    t = np.abs(step) / np.sqrt(np.maximum(rest, rounding) / windows.df)
    # Windows at the ends have fewer degrees of freedom: as normal deviates of the same probability
    # all are comparable. Beyond lies what a float cannot hold.
    tail = np.maximum(scipy.special.stdtr(windows.df, -t), 1e-300)
    return -scipy.special.ndtri(tail), step / windows.size
