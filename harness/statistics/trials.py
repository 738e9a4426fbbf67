"""Trials of settings: in which order they are measured, in how many blocks, and what differs.

A block measures each setting once, in an order of chance. What the lab does to all of a block, such
as a drift, is in each of its values; what comes of being measured first or last is in all settings
alike, since each is at each place as often. Neither is in the effect, nor in its interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import SampleError, Samples

Order: TypeAlias = tuple[int, ...]
"""Indices of settings, in the order in which a block measures them."""

Scale: TypeAlias = Literal["ratio", "difference"]

CONFIDENCE = 0.95
"""That all intervals of a trial hold what is true, together."""

POWER = 0.9
"""Probability that an effect as large as the smallest that matters is found."""

PILOT_BLOCKS = 8
FEWEST_BLOCKS = 8
_SPREAD_BOUND = 0.8
"""Confidence of the bound on the spread that blocks are planned with."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a setting differs by from the first one.

    Attributes:
        value, lower, upper: on the scale "ratio" a share of the first (0.02 for 2 % more), else in
            the unit of the values; the ends are at `CONFIDENCE` for all settings together.
        blocks: how many were measured.
    """

    value: float
    lower: float
    upper: float
    blocks: int

    @property
    def is_seen(self) -> bool:
        """Whether no effect at all is excluded."""
        return not self.lower <= 0 <= self.upper

    def is_less_than(self, matters: float, scale: Scale) -> bool:
        """Whether an effect of `matters`, up or down, is excluded; on the scale of ratios by it."""
        least = 1 / (1 + matters) - 1 if scale == "ratio" else -matters
        return least < self.lower and self.upper < matters


def orders(blocks: int, settings: int, generator: np.random.Generator) -> list[Order]:
    """Return the order of each block: Latin squares of chance, so that places are balanced.

    blocks: a multiple of `settings`. Raises `SampleError` for anything else.
    """
    if settings < 2 or blocks < 1 or blocks % settings:
        raise SampleError(
            f"found {blocks} blocks of {settings} settings, expected a multiple of at least 2"
        )
    turns = np.add.outer(np.arange(settings), np.arange(settings)) % settings
    found: list[Order] = []
    for _ in range(blocks // settings):
        names, rows, columns = (generator.permutation(settings) for _ in range(3))
        found += [tuple(map(int, row)) for row in names[turns[rows][:, columns]]]
    return found


def effects(values: npt.ArrayLike, in_order: Sequence[Order], scale: Scale) -> list[Effect]:
    """Return what each setting but the first differs by from it.

    Args:
        values: a row a block, a column a setting; above 0 on the scale "ratio".
        in_order: of each block, balanced as `orders` makes them.
        scale: "ratio" compares geometric means, "difference" means.

    The model is a block's level and a setting's and a place's share in it. Of balanced places the
    estimate is the mean of the differences within blocks; its interval is by Student's t of the
    residuals of that difference (D. C. Montgomery, Design and Analysis of Experiments, 4.2), and
    Bonferroni's for more settings than two. Raises `SampleError`.
    """
    levels = _levels(values, in_order, scale)
    blocks, settings = levels.shape
    spreads = _spreads(levels, in_order)
    quantile = _quantile(blocks, settings)
    found = []
    for index in range(1, settings):
        middle = float((levels[:, index] - levels[:, 0]).mean())
        half = quantile * float(spreads[index - 1]) / math.sqrt(blocks)
        ends = middle, middle - half, middle + half
        if scale == "ratio":
            ends = math.expm1(ends[0]), math.expm1(ends[1]), math.expm1(ends[2])
        found.append(Effect(*ends, blocks))
    return found


def planned_blocks(
    pilot: npt.ArrayLike, in_order: Sequence[Order], scale: Scale, matters: float
) -> int:
    """Return how many blocks find an effect of `matters` with a probability of `POWER`.

    By the spread of a pilot, at its upper confidence bound: with the spread itself every second
    trial would be too small (R. H. Browne, Stat. Med. 14 (1995) 1933-1940). A pilot's values are
    no part of the trial. Takes what `effects` takes; raises `SampleError`.
    """
    levels = _levels(pilot, in_order, scale)
    blocks, settings = levels.shape
    if not (math.isfinite(matters) and matters > 0):
        raise SampleError(f"found {matters} as the smallest effect, expected a number above 0")
    smallest = math.log1p(matters) if scale == "ratio" else matters
    freedom = blocks - 2
    bound = math.sqrt(freedom / float(scipy.special.chdtri(freedom, _SPREAD_BOUND)))
    spread = float(_spreads(levels, in_order).max()) * bound

    def is_enough(count: int) -> bool:
        power = float(scipy.special.stdtrit(count - 2, POWER))
        return (_quantile(count, settings) + power) * spread <= smallest * math.sqrt(count)

    least = settings * math.ceil(max(FEWEST_BLOCKS, blocks_of_pilot(settings)) / settings)
    most = least
    while not is_enough(most):
        most *= 2
    low, high = least // settings, most // settings
    while low < high:  # the least multiple that is enough
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle * settings) else (middle + 1, high)
    return int(high * settings)


def blocks_of_pilot(settings: int) -> int:
    """Return the number of blocks of a pilot: a multiple of the number of settings."""
    return settings * math.ceil(PILOT_BLOCKS / settings)


def _levels(values: npt.ArrayLike, in_order: Sequence[Order], scale: Scale) -> Samples:
    """Return the values on the scale that is additive."""
    levels = np.asarray(values, dtype=float)
    places = np.asarray(in_order)
    if levels.ndim != 2 or levels.shape != places.shape or levels.shape[1] < 2:
        raise SampleError(
            f"found values of shape {levels.shape} in orders of shape {places.shape}, expected a "
            "row a block and a column a setting in both"
        )
    blocks, settings = levels.shape
    if blocks <= 2 or blocks % settings:
        raise SampleError(f"found {blocks} blocks of {settings} settings, expected a multiple")
    counts = [np.bincount(column, minlength=settings) for column in places.T]
    if any((count != blocks // settings).any() for count in counts):
        raise SampleError("found orders in which a setting is at one place more often than another")
    if not np.isfinite(levels).all():
        raise SampleError("found a value that is not finite")
    if scale == "difference":
        return levels
    if (levels <= 0).any():
        raise SampleError(f"found {levels.min():g}, expected values above 0 to compare as a ratio")
    return np.asarray(np.log(levels))


def _spreads(levels: Samples, in_order: Sequence[Order]) -> Samples:
    """Return the standard deviation of each setting's difference to the first within a block."""
    blocks = len(levels)
    left = levels - levels.mean(axis=1, keepdims=True)
    left = left - left.mean(axis=0)
    by_place = np.take_along_axis(left, np.asarray(in_order), axis=1).mean(axis=0)
    place_of = np.argsort(np.asarray(in_order), axis=1)
    left = left - by_place[place_of]
    # Of k settings the residuals of a difference have (n - 2) degrees of freedom, as for two: each
    # of them spreads by 1 / (k - 1) less, and pairs of them are that much against each other.
    differences = left[:, 1:] - left[:, :1]
    return np.asarray(np.sqrt((differences**2).sum(axis=0) / (blocks - 2)))


def _quantile(blocks: int, settings: int) -> float:
    comparisons = settings - 1
    share = 1 - (1 - CONFIDENCE) / (2 * comparisons)
    return float(scipy.special.stdtrit(blocks - 2, share))
