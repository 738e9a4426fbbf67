"""Counts of one night against those of the nights before: did more happen than happens?"""

import math

import scipy

from lightrig.harness.statistics.binomial import at_least
from lightrig.harness.statistics.confirmation import LONGEST_RUN, p_of_run
from lightrig.harness.statistics.departures import (
    CONFIDENCE,
    FEWEST_BEFORE,
    MOST_BEFORE,
    POWER,
    Departure,
    Reach,
)
from lightrig.harness.statistics.samples import Samples


def count_departure(counts: Samples, error: float, most: int = MOST_BEFORE) -> Departure | None:
    """Return the departure of the last nights' counts to more than before, if there is one.

    Of independent events at one rate, a night's share of all is binomial (Przyborowski and
    Wilenski, Biometrika 31 (1940) 313-323). Events that come in groups count as so many fewer:
    by the ratio of variance to mean of the nights before.

    counts: of the nights with data, oldest first. error: probability of a departure where nothing
    changed. most: latest nights before that are looked at.
    """
    found = list[Departure]()
    for length in range(1, LONGEST_RUN + 1):
        before = counts[: counts.size - length][-most:]
        if before.size < FEWEST_BEFORE:
            break
        p = p_of_run([_p(before, float(count)) for count in counts[-length:]])
        if p <= error:
            level = float(counts[-1])
            ends = _interval(before, level)
            found.append(Departure(float(before.mean()), level, p, before.size, *ends, length))
    return max(found, key=lambda one: one.precedence, default=None)


def count_reach(counts: Samples, error: float, most: int = MOST_BEFORE) -> Reach | None:
    """Return which count of the last night would be found; None with too few nights before."""
    before, count = counts[:-1][-most:], float(counts[-1])
    if before.size < FEWEST_BEFORE:
        return None
    usual, copies = float(before.mean()), bool((before == before[0]).all())
    least = math.floor(usual) + 1
    while _p(before, float(least)) > error:
        least += max(1, least // 8)
    # The mean of Poisson's counts that are at least as many with that probability.
    grouped = _grouped(before)
    above = grouped * float(scipy.special.gammaincinv(max(1.0, least / grouped), POWER))
    p, ends = _p(before, count), _interval(before, count)
    return Reach(usual, count, p, before.size, *ends, above, None, copies)


def _interval(before: Samples, count: float) -> tuple[float, float]:
    """Return the interval of the mean of which `count` is one of Poisson's (Garwood, 1936)."""
    grouped, tail = _grouped(before), (1 - CONFIDENCE) / 2
    events = count / grouped
    lower = float(scipy.special.gammaincinv(events, tail)) if events else 0.0
    return grouped * lower, grouped * float(scipy.special.gammaincinv(events + 1, 1 - tail))


def _grouped(before: Samples) -> float:
    """Return in groups of how many events come, by the ratio of variance to mean."""
    total = float(before.sum())
    return max(1.0, float(before.var(ddof=1)) * before.size / total) if total else 1.0


def _p(before: Samples, count: float) -> float:
    """Return the probability of at least `count`, given all events of these nights and `before`."""
    total = float(before.sum())
    grouped = _grouped(before)
    least, all_of_them = math.floor(count / grouped), math.floor((total + count) / grouped)
    share = 1 / (before.size + 1)
    return at_least(least, all_of_them, share)
