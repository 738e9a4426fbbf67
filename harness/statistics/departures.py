"""Last night against the nights before it: is one level farther off than nights are?

A change of level shows in `harness.statistics.changes` from its third night on, where there are
ten nights. A departure needs one night, and nights before that lie close together; it is
unconfirmed until three nights in a row depart to one side (`harness.statistics.confirmation`).
Series of one family, such as the losses of a switch's circuits, scatter alike: what their nights
show together makes up for few nights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.confirmation import CONFIRMING, LONGEST_RUN, p_of_run
from lightrig.harness.statistics.nights import expect
from lightrig.harness.statistics.precedents import deviations, share_of_nights
from lightrig.harness.statistics.samples import Samples

MOST_BEFORE = 20
"""Latest nights before that are looked at."""
FEWEST_BEFORE = 3
"""Least number of nights before; so few find only departures of many times their scatter."""
FEWEST_SERIES = 5
"""Least number of series whose scatters are worth comparing with each other."""

_ROUNDING = 1e-9
"""Nights that differ by less, of their own size, are copies of each other."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A level that lies apart from the nights before.

    before: the level that they led to expect. level: that of the night. Both in the unit of the
    levels. p: the probability of a miss this large, on either side, if nothing changed.
    nights: number of nights before the first that departs.
    run: nights in a row, the last one of them, that depart to one side.
    """

    before: float
    level: float
    p: float
    nights: int
    run: int = 1

    @property
    def confirmed(self) -> bool:
        """Whether later nights confirm the first one: the level has changed."""
        return self.run >= CONFIRMING

    @property
    def precedence(self) -> tuple[bool, float]:
        """Key that is greatest for a confirmed one, then for the least probable."""
        return self.confirmed, -self.p


@dataclass(frozen=True, slots=True)
class _Miss:
    """Miss of one level, with its sign; `spread` is of such misses, with `df` degrees of freedom.

    floor: least spread that is believed, since a level has an uncertainty of its own.
    """

    expected: float
    miss: float
    spread: float
    floor: float
    df: int

    @property
    def is_of_copies(self) -> bool:
        """Whether the nights before agree to the last digit."""
        return self.spread <= _ROUNDING * (1 + abs(self.expected))

    @property
    def is_none(self) -> bool:
        """Whether the level is the expected one to the last digit."""
        return abs(self.miss) <= _ROUNDING * (1 + abs(self.expected))


def find_departures(
    family: Sequence[Samples],
    uncertainties: Sequence[npt.ArrayLike],
    error: float,
    *,
    tails: bool = False,
) -> list[Departure | None]:
    """Return, for each series of a family, the departure of its last nights, if there is one.

    Args:
        family: levels of the nights with data of each series, oldest first, in one unit; they are
            compared by ratio if all are positive, else by difference.
        uncertainties: standard uncertainty of the levels of each series, in the same unit: one
            for all nights, or one a night.
        error: probability of a departure of one series where nothing changed.
        tails: whether a level is of the tail of its night, such as the greatest value, so that
            one rare event moves it. Where the family has precedents of a miss, p is at least the
            probability of as many such nights (`harness.statistics.precedents`).

    A miss is divided by the spread of the series' misses before (`nights.expect`), which is
    raised by those of the family: Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, a t
    statistic whose degrees of freedom grow with the likeness of the spreads. For one night the
    error holds for nights that scatter normally, also about a drift; `benchmarks.alarms` has the
    rates where they do not, and those of confirmed departures. Nights that agree to the last
    digit say nothing of how far nights lie apart: beside n of them another has p = 1 / (n + 1).

    Up to `LONGEST_RUN` last nights are compared with those before all of them. A confirmed
    departure takes precedence, then the least probable.
    """
    ratio = all(levels.size == 0 or levels.min() > 0 for levels in family)
    spreads = [
        np.broadcast_to(uncertainty, levels.shape)
        for levels, uncertainty in zip(family, uncertainties, strict=True)
    ]
    found: list[Departure | None] = [None] * len(family)
    for length in range(1, LONGEST_RUN + 1):
        for at, one in enumerate(_runs(family, spreads, length, ratio, tails=tails)):
            if one is None or one.p > error:
                continue
            known = found[at]
            if known is None or one.precedence > known.precedence:
                found[at] = one
    return found


def _runs(
    family: Sequence[Samples],
    uncertainties: Sequence[Samples],
    length: int,
    ratio: bool,
    *,
    tails: bool,
) -> list[Departure | None]:
    """Return the departure of the last `length` nights of each series, whatever its p."""
    misses = [
        [
            _miss_of(levels[: levels.size - length], float(levels[-ago]), float(each[-ago]), ratio)
            for ago in range(1, length + 1)
        ]
        if levels.size > length
        else [None]
        for levels, each in zip(family, uncertainties, strict=True)
    ]
    scattered = [each[0] for each in misses if each[0] is not None and not each[0].is_of_copies]
    prior_df, prior = _prior([one.spread for one in scattered], [one.df for one in scattered])
    earlier = [_deviations(levels, length, ratio) for levels in family] if tails else []
    found: list[Departure | None] = []
    for at, (levels, each) in enumerate(zip(family, misses, strict=True)):
        nights = [one for one in each if one is not None and not one.is_none]
        if len(nights) < length or len({one.miss > 0 for one in nights}) > 1:
            found.append(None)
            continue
        of_nights = [_p(one, prior_df, prior) for one in nights]
        p = p_of_run(of_nights)
        last = nights[0]
        if last.is_of_copies:  # the nights before agree by chance once, not once a night
            p = max(of_nights)
        if tails:
            rest = [*earlier[:at], *earlier[at + 1 :]]
            # Rare events strike nights one by one, so their shares multiply. Misses of nights that
            # follow one another do not: the product is only a lower bound of p.
            shares = [share_of_nights(abs(one.miss), earlier[at], rest) for one in nights]
            p = max(p, math.prod(map(max, of_nights, shares)))
        before = math.exp(last.expected) if ratio else last.expected
        found.append(Departure(before, float(levels[-1]), p, last.df + 1, length))
    return found


def _miss_of(before: Samples, level: float, uncertainty: float, ratio: bool) -> _Miss | None:
    if before.size < FEWEST_BEFORE or not math.isfinite(uncertainty):
        return None
    values = before[-MOST_BEFORE:]
    expected = expect((np.log(values) if ratio else values).tolist())
    floor = uncertainty / level if ratio else uncertainty
    return _Miss(
        expected.value,
        (math.log(level) if ratio else level) - expected.value,
        expected.misses.spread,
        floor * expected.growth,
        expected.misses.df,
    )


def _deviations(levels: Samples, length: int, ratio: bool) -> Samples:
    """Return the deviations of the nights before the last `length`."""
    before = levels[: max(levels.size - length, 0)][-MOST_BEFORE:]
    return deviations(np.log(before) if ratio else before)


def _p(one: _Miss, prior_df: float, prior: float) -> float:
    if one.is_of_copies:
        return 1 / (one.df + 2)  # `df` is one less than the nights before
    df = prior_df + one.df
    spread = math.sqrt((prior_df * prior**2 + one.df * one.spread**2) / df)
    # Never less than its own: a noisy series of a quiet family keeps its scatter.
    least = max(spread, one.spread, one.floor)
    return 2 * float(scipy.special.stdtr(df, -abs(one.miss) / least))


def _prior(spreads: Sequence[float], dfs: Sequence[int]) -> tuple[float, float]:
    """Return degrees of freedom and spread that the family lends to each series.

    By the moments of the logarithms of the variances (Smyth 2004, section 6.2).
    """
    if len(spreads) < FEWEST_SERIES:
        return 0.0, 0.0
    half = np.array(dfs) / 2
    logs = 2 * np.log(spreads) - scipy.special.digamma(half) + np.log(half)
    excess = float(logs.var(ddof=1) - scipy.special.polygamma(1, half).mean())
    # Where they are as alike as chance allows, the family counts as one series of all its nights.
    df = float(sum(dfs)) if excess <= 0 else 2 * _trigamma_inverse(excess)
    shift = float(scipy.special.digamma(df / 2) - math.log(df / 2))
    return df, math.exp((float(logs.mean()) + shift) / 2)


def _trigamma_inverse(value: float) -> float:
    """Return x with trigamma(x) = `value`, by Newton's method (Smyth 2004, appendix)."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(scipy.special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(scipy.special.polygamma(2, x))
        x += step
        if -step < 1e-8 * x:
            break
    return x
