"""Values that systems compute where a paper prints a figure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy

from lightrig.harness.system_registry import installed_systems

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Computed:
    """A computed value, in the unit of the published figure.

    Times are in ns, loss in dB, rates in bit/s, shares from 0 to 1, counts and ratios plain.

    lower, upper: the range of `CONFIDENCE` of all draws; `value` where nothing is drawn. n: number
    of draws. note: the assumptions of the value, in a sentence or two.
    """

    value: float
    lower: float
    upper: float
    n: int
    note: str = ""


Registry: TypeAlias = Mapping[str, Callable[[], Computed]]
"""Functions that compute what a paper prints, by the name that a claim refers to."""


def computed_by(system: str) -> Registry:
    """Return the functions that an installed system computes claims with; none for any other.

    Raises `SystemRegistryError` where they cannot be imported.
    """
    found = installed_systems().get(system)
    registry: Registry | None = found.load("claims") if found is not None else None
    return registry or {}


def exactly(value: float, note: str = "") -> Computed:
    """Return a value without random draws."""
    return Computed(value, value, value, 1, note)


def share(cases: Iterable[bool], note: str = "") -> Computed:
    """Return the share of cases that hold, from 0 to 1, with their numbers in the note."""
    found = list(cases)
    return exactly(sum(found) / len(found), f"{sum(found)} of {len(found)} cases. {note}".strip())


def over_draws(values: Sequence[float], note: str = "") -> Computed:
    """Return the mean of independent draws with the prediction interval of one more draw.

    A paper prints one draw or few: the question is whether it could be one of ours, so the
    interval is Student's prediction interval, mean ± t s √(1 + 1/n), and not the narrower one
    of the mean. Raises `ValueError` for fewer than two draws.
    """
    drawn = np.asarray(values, dtype=float)
    if drawn.size < 2:
        raise ValueError(f"found {drawn.size} draw, expected at least 2 for an interval")
    quantile = float(scipy.special.stdtrit(drawn.size - 1, (1 + CONFIDENCE) / 2))
    half_width = quantile * float(drawn.std(ddof=1)) * math.sqrt(1 + 1 / drawn.size)
    mean = float(drawn.mean())
    return Computed(mean, mean - half_width, mean + half_width, drawn.size, note)
