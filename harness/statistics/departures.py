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
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.confirmation import CONFIRMING, LONGEST_RUN, p_of_run
from lightrig.harness.statistics.heavy_tails import degrees_of_tails
from lightrig.harness.statistics.nights import Yardstick, expect
from lightrig.harness.statistics.precedents import PRECEDENT, deviations, share_of_nights
from lightrig.harness.statistics.samples import Samples

MOST_BEFORE = 20
"""Latest nights before that are looked at."""
FEWEST_BEFORE = 3
"""Least number of nights before; so few find only departures of many times their scatter."""
FEWEST_SERIES = 5
"""Least number of series whose scatters are worth comparing with each other."""

CONFIDENCE = 0.95
"""Of the interval of a change."""
POWER = 0.8
"""Probability with which a change of `Reach.above` or `Reach.below` departs on its first night."""

_GREATEST_LOGARITHM = 700.0
_ROUNDING = 1e-9
"""Nights that differ by less, of their own size, are copies of each other."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A level that lies apart from the nights before.

    before: the level that they led to expect. level: that of the night. Both in the unit of the
    levels. p: the probability of a miss this large, on either side, if nothing changed.
    nights: number of nights before the first that departs.
    lower, upper: interval of the level at `CONFIDENCE`, by how far nights lie apart: as far from
    `before` as the change may be. run: nights in a row, the last one of them, that depart to one
    side.
    """

    before: float
    level: float
    p: float
    nights: int
    lower: float
    upper: float
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
class Reach:
    """What the nights before would have shown of a series on its last night.

    before, level, p, nights, lower, upper: as of a `Departure` of the last night alone, whether it
    departs or not. above, below: least levels on either side that depart with a probability of
    `POWER`; None where none would. copies: whether the nights before agree to the last digit, so
    that they do not say how far nights lie apart.
    """

    before: float
    level: float
    p: float
    nights: int
    lower: float
    upper: float
    above: float | None
    below: float | None
    copies: bool

    @property
    def differs(self) -> bool:
        """Whether the level is not the expected one to the last digit."""
        return abs(self.level - self.before) > _ROUNDING * (1 + abs(self.before))


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
    kin: Sequence[Samples] = (),
    tails: bool = False,
    most: int = MOST_BEFORE,
) -> list[Departure | None]:
    """Return, for each series of a family, the departure of its last nights, if there is one.

    Args:
        family: levels of the nights with data of each series, oldest first, in one unit; they are
            compared by ratio if all are positive, else by difference.
        uncertainties: standard uncertainty of the levels of each series, in the same unit: one
            for all nights, or one a night.
        error: probability of a departure of one series where nothing changed.
        kin: levels of like series, such as those of the same quantity in other tests, whose spread
            a family of fewer than `FEWEST_SERIES` series takes into account too.
        tails: whether a level is of the tail of its night, such as the greatest value, so that
            one rare event moves it. Where the family has precedents of a miss, p is at least the
            probability of as many such nights (`harness.statistics.precedents`).
        most: latest nights before that are looked at.

    A miss is divided by the spread of the series' misses before (`nights.expect`), which is
    raised by those of the family: Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, a t
    statistic whose degrees of freedom grow with the likeness of the spreads. For one night the
    error holds for nights that scatter normally, also about a drift; `benchmarks.alarms` has the
    rates where they do not, and those of confirmed departures. Nights that agree to the last
    digit say nothing of how far nights lie apart: beside n of them another has p = 1 / (n + 1).

    Up to `LONGEST_RUN` last nights are compared with those before all of them. A confirmed
    departure takes precedence, then the least probable.
    """
    found: list[Departure | None] = [None] * len(family)
    for length in range(1, LONGEST_RUN + 1):
        nights = _Nights(family, uncertainties, length, most, kin=kin, tails=tails)
        for at in range(len(family)):
            one = nights.departure(at, error)
            if one is None:
                continue
            known = found[at]
            if known is None or one.precedence > known.precedence:
                found[at] = one
    return found


def find_reaches(
    family: Sequence[Samples],
    uncertainties: Sequence[npt.ArrayLike],
    error: float,
    *,
    kin: Sequence[Samples] = (),
    tails: bool = False,
    most: int = MOST_BEFORE,
) -> list[Reach | None]:
    """Return, for each series of a family, which change of its last night would be found.

    None where there are too few nights before. Arguments are those of `find_departures`.
    """
    nights = _Nights(family, uncertainties, 1, most, kin=kin, tails=tails)
    return [nights.reach(at, error) for at in range(len(family))]


class _Nights:
    """The last `length` nights of a family beside those before them."""

    def __init__(
        self,
        family: Sequence[Samples],
        uncertainties: Sequence[npt.ArrayLike],
        length: int,
        most: int,
        *,
        kin: Sequence[Samples],
        tails: bool,
    ) -> None:
        self._family, self._length, self._tails = family, length, tails
        self._ratio = all(levels.size == 0 or levels.min() > 0 for levels in family)
        self._misses = [
            [
                self._miss(levels, float(levels[-ago]), float(uncertain[-ago]), most)
                for ago in range(1, length + 1)
            ]
            if levels.size > length
            else [None]
            for levels, uncertainty in zip(family, uncertainties, strict=True)
            for uncertain in [np.broadcast_to(uncertainty, levels.shape)]
        ]
        known = [each[0] for each in self._misses if each[0] is not None]
        scattered = [one for one in known if not one.is_of_copies]
        if len(scattered) < FEWEST_SERIES:
            scattered += self._of_kin(kin, most)
        self._kin, self._most = kin, most
        self._prior = _prior([one.spread for one in scattered], [one.df for one in scattered])
        self._usual = float(np.median([one.spread for one in scattered])) if scattered else 0.0
        self._earlier = [self._deviations(levels, most) for levels in family] if tails else []

    def departure(self, at: int, error: float) -> Departure | None:
        """Return the departure of all of these nights of a series to one side, if there is one."""
        found = self._departure(at, error, math.inf)
        # Few series depart as normal ones: only for them it matters how heavy the tails are.
        return None if found is None else self._departure(at, error, self._tail_df)

    def _departure(self, at: int, error: float, tail_df: float) -> Departure | None:
        nights = [one for one in self._misses[at] if one is not None and not one.is_none]
        if len(nights) < self._length or len({one.miss > 0 for one in nights}) > 1:
            return None
        of_nights = [self._p(one, tail_df) for one in nights]
        p = p_of_run(of_nights)
        last = nights[0]
        if last.is_of_copies:  # the nights before agree by chance once, not once a night
            p = max(of_nights)
        if self._tails:
            rest = [*self._earlier[:at], *self._earlier[at + 1 :]]
            # Rare events strike nights one by one, so their shares multiply. Misses of nights that
            # follow one another do not: the product is only a lower bound of p.
            shares = [share_of_nights(abs(one.miss), self._earlier[at], rest) for one in nights]
            p = max(p, math.prod(map(max, of_nights, shares)))
        if p > error:
            return None
        level, ends = float(self._family[at][-1]), self._interval(last)
        return Departure(self._level(last.expected), level, p, last.df + 1, *ends, self._length)

    def reach(self, at: int, error: float) -> Reach | None:
        """Return which change of the last night would be found at this error."""
        last = self._misses[at][0]
        if last is None:
            return None
        found: float | None = None
        if not last.is_of_copies:
            found = self._yardstick(last, self._tail_df).found(error / 2, POWER)
            found = found if math.isfinite(found) else None
            # A tail that has a precedent is no surprise: what lies further out has none.
            if self._tails and found is not None:
                farthest = max(float(each.max(initial=0)) for each in self._earlier)
                found = max(found, farthest / PRECEDENT)
        return Reach(
            self._level(last.expected),
            float(self._family[at][-1]),
            1.0 if last.is_none else self._p(last, self._tail_df),
            last.df + 1,
            *self._interval(last),
            None if found is None else self._level(last.expected + found),
            None if found is None else self._level(last.expected - found),
            last.is_of_copies,
        )

    @cached_property
    def _tail_df(self) -> float:
        """Degrees of freedom of the nights before, of the family and its kin."""
        if self._tails:  # rare events give them no distribution: precedents decide
            return math.inf
        before = [
            levels[: max(levels.size - self._length, 0)][-self._most :]
            for levels in (*self._family, *self._kin)
        ]
        if not self._ratio:
            return degrees_of_tails(before)
        return degrees_of_tails([np.log(each) for each in before if (each > 0).all()])

    def _of_kin(self, kin: Sequence[Samples], most: int) -> list[_Miss]:
        """Return the misses of the last nights of series that are like the family's."""
        found = [
            self._miss(levels, float(levels[-1]), 0.0, most)
            for levels in kin
            if levels.size > self._length and (not self._ratio or levels.min() > 0)
        ]
        return [one for one in found if one is not None and not one.is_of_copies]

    def _level(self, value: float) -> float:
        return math.exp(min(value, _GREATEST_LOGARITHM)) if self._ratio else value

    def _miss(self, levels: Samples, level: float, uncertainty: float, most: int) -> _Miss | None:
        before = levels[: levels.size - self._length][-most:]
        return _miss_of(before, level, uncertainty, self._ratio)

    def _deviations(self, levels: Samples, most: int) -> Samples:
        before = levels[: max(levels.size - self._length, 0)][-most:]
        return deviations(np.log(before) if self._ratio else before)

    def _yardstick(self, one: _Miss, tail_df: float) -> Yardstick:
        prior_df, prior = self._prior
        df = prior_df + one.df
        spread = math.sqrt((prior_df * prior**2 + one.df * one.spread**2) / df)
        # Never less than its own: a noisy series of a quiet family keeps its scatter.
        spread = max(spread, one.spread)
        if tail_df < df:
            # Without one of the rare nights, a series of twenty seems to scatter by half of what it
            # does, and far out the probability of a miss grows with a power of that. Of Student's t
            # the scale is less than the standard deviation.
            df, spread = tail_df, max(spread, self._usual) * math.sqrt(1 - 2 / tail_df)
        return Yardstick(max(spread, one.floor), df)

    def _p(self, one: _Miss, tail_df: float) -> float:
        if one.is_of_copies:
            return 1 / (one.df + 2)  # `df` is one less than the nights before
        return 2 * self._yardstick(one, tail_df).tail(abs(one.miss))

    def _interval(self, one: _Miss) -> tuple[float, float]:
        reach = 0.0
        if not one.is_of_copies:
            reach = self._yardstick(one, self._tail_df).reach((1 - CONFIDENCE) / 2)
        value = one.expected + one.miss
        return self._level(value - reach), self._level(value + reach)


def _miss_of(values: Samples, level: float, uncertainty: float, ratio: bool) -> _Miss | None:
    if values.size < FEWEST_BEFORE or not math.isfinite(uncertainty):
        return None
    expected = expect((np.log(values) if ratio else values).tolist())
    floor = uncertainty / level if ratio else uncertainty
    return _Miss(
        expected.value,
        (math.log(level) if ratio else level) - expected.value,
        expected.misses.spread,
        floor * expected.growth,
        values.size - 1,
    )


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
