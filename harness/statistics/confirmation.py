"""Confirmation of a departure by later nights, which separates a change from a single bad night.

A night that is off as a whole is off again when it is measured again the same night: no number of
its samples tells such a night from a change of the lab. Later nights do. One night that lies apart
has "departed, unconfirmed"; a level has "changed" once `CONFIRMING` nights in a row lie apart to
the same side from the nights before all of them.
"""

from collections.abc import Sequence

CONFIRMING = 3
"""Nights in a row, the first one included, that make a departure a change."""
LONGEST_RUN = 5
"""Most nights in a row that are compared with those before; a longer change is the new level."""

_AGREEMENT = 4 / 3
"""Exponent of what further nights add; 3 is independence, and 1 that they add nothing.

With 2, nights that are autocorrelated by 0.6 gave false changes on 25 % of pages.
"""


def p_of_run(each: Sequence[float]) -> float:
    """Return the probability of nights in a row that all depart to one side, if nothing changed.

    each: probability of every night's own miss. Of independent nights it would be their product.
    Nights share the estimate of their scatter, and may follow one another, so the greatest one
    counts, from `CONFIRMING` nights on raised to `_AGREEMENT`. `benchmarks.alarms` checks the rate
    for nights with heavy tails, for nights that are off one by one and for autocorrelated ones.
    """
    worst = max(each)
    return worst**_AGREEMENT if len(each) >= CONFIRMING else worst
