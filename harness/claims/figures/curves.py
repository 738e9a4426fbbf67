"""Series of a figure: points with intervals, and single values that stand for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.claims.computed import Computed, over_draws

Values: TypeAlias = npt.NDArray[np.float64]
_DRAWS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Curve:
    """One series; its sequences have one length, in the units of the axes.

    name: as the paper calls it. x: numbers in ascending order, or names of categories. y: NaN
    where nothing is known. lower, upper: the interval of each y, equal to y where it is exact. n:
    number of draws or events of a point. numbers: values of the whole series by name, such as its
    mean over time, in the unit of the axis along which a declaration places them.
    """

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    lower: Sequence[float]
    upper: Sequence[float]
    n: int = 1
    numbers: Mapping[str, Computed] = field(default_factory=dict)

    @property
    def categories(self) -> tuple[str, ...] | None:
        """The names of the categories; None where x is a number."""
        return tuple(map(str, self.x)) if self.x and isinstance(self.x[0], str) else None

    def at(self, x: float | str) -> Computed | None:
        """Return y at a category or number, interpolated between neighbours; None beyond."""
        if self.categories is not None:
            if str(x) not in self.categories:
                return None
            place = self.categories.index(str(x))
            y, lower, upper = self.y[place], self.lower[place], self.upper[place]
        else:
            places = np.asarray(self.x, dtype=float)
            if not places[0] <= float(x) <= places[-1]:
                return None
            y, lower, upper = (
                float(np.interp(float(x), places, np.asarray(each, dtype=float)))
                for each in (self.y, self.lower, self.upper)
            )
        return Computed(y, lower, upper, self.n) if np.isfinite(y) else None

    def reaching(self, y: float) -> Computed | None:
        """Return x where the series first reaches y from below; None where it does not.

        Its interval ends where the bounds of y reach it, and has no end where they do not.
        """
        if self.categories is not None:
            return None
        ends = [_reached(self.x, each, y) for each in (self.y, self.upper, self.lower)]
        middle, first, last = ends
        if middle is None:
            return None
        first, last = middle if first is None else first, inf if last is None else last
        return Computed(middle, first, last, self.n)


def _reached(x: Sequence[float] | Sequence[str], y: Sequence[float], level: float) -> float | None:
    places, values = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    above = np.flatnonzero(values >= level)
    if not above.size:
        return None
    place = int(above[0])
    if place == 0 or values[place] == values[place - 1]:
        return float(places[place])
    share = (level - values[place - 1]) / (values[place] - values[place - 1])
    return float(places[place - 1] + share * (places[place] - places[place - 1]))


Figures: TypeAlias = Mapping[str, Callable[..., Sequence[Curve]]]
"""Functions that return the series of a panel, by the name that a declaration refers to."""


def exact_curve(name: str, points: Mapping[float, float] | Mapping[str, float]) -> Curve:
    """Return a series without random draws from its values by x."""
    y = tuple(map(float, points.values()))
    x: Sequence[float] | Sequence[str] = tuple(points)  # type: ignore[assignment]
    return Curve(name, x, y, y, y)


def drawn_curve(
    name: str,
    x: npt.ArrayLike,
    draws: npt.ArrayLike,
    numbers: Mapping[str, Sequence[float]] | None = None,
) -> Curve:
    """Return the mean of independent draws, an array of draws x places, and where 95 % lie.

    numbers: values of the whole series by name, one a draw.
    """
    found = np.asarray(draws, dtype=float)
    low, high = np.quantile(found, _DRAWS, axis=0)
    return Curve(
        name,
        tuple(np.asarray(x, dtype=float).tolist()),
        tuple(found.mean(axis=0).tolist()),
        tuple(low.tolist()),
        tuple(high.tolist()),
        len(found),
        {key: over_draws(values) for key, values in (numbers or {}).items()},
    )


def time_below(durations: npt.NDArray[np.int64], values: Values, levels: Values) -> Values:
    """Return the share of the time for which a value is at most each level."""
    order = np.argsort(values, kind="stable")
    cumulated = np.concatenate([[0.0], np.cumsum(durations[order])])
    return np.asarray(
        cumulated[np.searchsorted(values[order], levels, side="right")] / cumulated[-1]
    )
