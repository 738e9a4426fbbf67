"""Counts of one night against those of the nights before: did more happen than happens?"""

import math

from lightrig.harness.statistics.binomial import at_least
from lightrig.harness.statistics.confirmation import LONGEST_RUN, p_of_run
from lightrig.harness.statistics.departures import FEWEST_BEFORE, MOST_BEFORE, Departure
from lightrig.harness.statistics.samples import Samples


def count_departure(counts: Samples, error: float) -> Departure | None:
    """Return the departure of the last nights' counts to more than before, if there is one.

    Of independent events at one rate, a night's share of all is binomial (Przyborowski and
    Wilenski, Biometrika 31 (1940) 313-323). Events that come in groups count as so many fewer:
    by the ratio of variance to mean of the nights before.

    counts: of the nights with data, oldest first. error: probability of a departure where nothing
    changed.
    """
    found = list[Departure]()
    for length in range(1, LONGEST_RUN + 1):
        before = counts[: counts.size - length][-MOST_BEFORE:]
        if before.size < FEWEST_BEFORE:
            break
        p = p_of_run([_p(before, float(count)) for count in counts[-length:]])
        if p <= error:
            level = float(counts[-1])
            found.append(Departure(float(before.mean()), level, p, before.size, length))
    return max(found, key=lambda one: one.precedence, default=None)


def _p(before: Samples, count: float) -> float:
    """Return the probability of at least `count`, given all events of these nights and `before`."""
    total = float(before.sum())
    grouped = max(1.0, float(before.var(ddof=1)) * before.size / total) if total else 1.0
    least, all_of_them = math.floor(count / grouped), math.floor((total + count) / grouped)
    share = 1 / (before.size + 1)
    return at_least(least, all_of_them, share)
