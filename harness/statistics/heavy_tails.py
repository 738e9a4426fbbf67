"""How heavy the tails of nights are: by the nights of a whole family of series.

Nights of some labs lie far out now and then, without a fault. Of one series some twenty nights do
not tell that; those of all series of a family, such as the ports of a switch, do.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import Samples

TRIMMED = 3
"""Series left out at both ends: a part of those with the heaviest tails may have failed."""

FEWEST = 4
"""Series besides those, each of `FEWEST_NIGHTS`, without which tails are taken for normal."""

FEWEST_NIGHTS = 8

_DEGREES = np.array([2.5, 3.0, 4.0, 6.0, 10.0])
"""Degrees of freedom of Student's t that are tried beside the normal distribution."""

_GAIN = 1.0
"""Logarithm of the likelihood that one of them has to gain over the normal distribution.

Of sixteen series of twenty nights, without the six at the ends, it is gained by about 98 % of those
with three degrees of freedom, fewer than 1 % of normal ones, and 17 % of normal ones of which three
had failed for two nights; with 3, the first figure was 82 %.
"""

_NOT_EXCLUDED = 2.0
"""Logarithm of the likelihood by which heavier tails may lie below the most likely ones.

Far out the probability of a night depends on a power of its distance: with four degrees of freedom,
where there are three, what is seen at 75 scales is held for ten times as rare as it is.
"""

_IN_COMMON = 2.0
"""By how much more than by chance medians of nights scatter where series have much in common."""

_STEPS = 15


def degrees_of_tails(series: Sequence[Samples]) -> float:
    """Return the fewest degrees of freedom of Student's t that nights do not exclude.

    Infinity if they are normal. series: levels of the nights of each series of a family, in one
    unit.

    What all of them did in a night, such as the light of one source, is one draw and not one a
    series: it is taken away, or it decides alone. Each series has its own scale, of which the most
    likely one is taken for each distribution (Lange, Little and Taylor, J. Am. Stat. Assoc. 84
    (1989) 881).
    """
    centred = _each_alone([each for each in series if each.size >= FEWEST_NIGHTS])
    scaled = [each / np.sqrt(np.mean(each**2)) for each in centred if each.any()]
    if len(scaled) < 2 * TRIMMED + FEWEST:
        return math.inf
    counts = np.array([each.size for each in scaled])
    squares = np.zeros((counts.size, counts.max()))
    for row, each in zip(squares, scaled, strict=True):
        row[: each.size] = each**2
    gains = np.sort(_gains(squares, counts), axis=1)[:, TRIMMED:-TRIMMED].sum(axis=1)
    if gains.max() <= _GAIN:
        return math.inf
    return float(_DEGREES[gains > gains.max() - _NOT_EXCLUDED].min())


def _each_alone(series: Sequence[Samples]) -> list[Samples]:
    """Return series around their medians, without what those of the same nights have in common."""
    centred = [each - np.median(each) for each in series]
    found = list(centred)
    for size in {each.size for each in centred}:
        alike = [at for at, each in enumerate(centred) if each.size == size]
        if len(alike) < 2 * TRIMMED + FEWEST:
            continue
        whole = np.array([centred[at] for at in alike])
        usual = np.median(np.abs(whole), axis=1)
        in_scale = whole[usual > 0] / usual[usual > 0, None]
        if not in_scale.size:
            continue
        # Of series that have nothing in common this would add the scatter of others to the least.
        # The median of k has about 1.25 / sqrt(k) of the deviation of one.
        by_chance = 1.25 / math.sqrt(len(in_scale))
        if np.median(np.abs(np.median(in_scale, axis=0))) > _IN_COMMON * by_chance:
            for at, each in zip(alike, whole - np.median(whole, axis=0), strict=True):
                found[at] = each
    return found


def _gains(squares: Samples, counts: npt.NDArray[np.int_]) -> Samples:
    """Return by how much each Student's t is likelier than the normal distribution, by series.

    squares: those of nights around their median, in units of their mean square, a row each series;
    0 beyond their counts. The result, a logarithm, has a row for each of `_DEGREES`.
    """
    df = _DEGREES[:, None, None]
    scale = np.ones((_DEGREES.size, counts.size, 1))
    for _ in range(_STEPS):  # the most likely scale, by the EM algorithm
        weights = (df + 1) / (df + squares / scale)
        scale = ((weights * squares).sum(axis=2) / counts)[:, :, None]
    gamma = scipy.special.gammaln
    df, scale = df[:, :, 0], scale[:, :, 0]
    constant = gamma((df + 1) / 2) - gamma(df / 2) - np.log(df * math.pi * scale) / 2
    # Nights that are not there add nothing: their squares are 0.
    logarithms = np.log1p(squares / (df * scale)[:, :, None]).sum(axis=2)
    normal = -(math.log(2 * math.pi) * counts + squares.sum(axis=1)) / 2
    return np.asarray(counts * constant - (df + 1) / 2 * logarithms - normal)
