"""Nights of tails, which rare events move: has a night lain as far out before?

The greatest value of a night, or its 99th percentile, takes one of a few levels where something
happens now and then, such as a second try of a link's training. Nights without it lie close
together, so that one with it lies apart by any measure of their scatter. What happens to one
member of a family, such as a switch's ports, happens to rest: as long as any night of any of
them has lain as far out, such a night is no surprise, and its probability is their share.
"""

from collections.abc import Sequence

import numpy as np

from lightrig.harness.statistics.samples import Samples

PRECEDENT = 3 / 4
"""Share of a miss that an earlier night must have lain out by to be its precedent.

With less, the ordinary scatter of some hundred nights would count as precedents of a departure that
is just large enough. With more, those of rare events that are not all of one size would not.
"""


def deviations(levels: Samples) -> Samples:
    """Return how far each night lies from the median of all, on either side."""
    return np.abs(levels - np.median(levels)) if levels.size else levels


def share_of_nights(size: float, before: Samples, rest: Sequence[Samples]) -> float:
    """Return the probability of a night that lies out by `size`; 0 where none has before.

    before, rest: deviations of the nights before of the series, and of the rest of its family. What
    one night more would make of their share is taken, of the series alone or of the whole family,
    whichever is greater, since something may happen to some members more often than to others.
    """
    of_series, *of_rest = (int((each >= PRECEDENT * size).sum()) for each in (before, *rest))
    known = of_series + sum(of_rest)
    if not known:
        return 0.0
    nights = before.size + sum(each.size for each in rest)
    return max((of_series + 1) / (before.size + 1), (known + 1) / (nights + 1))
