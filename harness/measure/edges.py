"""Times when light came and went, from a log of a power meter.

What lies between two edges of one log, or of logs whose samples are simultaneous, is known to
the sample, however uncertain it is when the log itself began.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerLog

LEAST_DB = 3.0
"""Two levels closer than this are one light that varies, not light and darkness."""

_LEAST_TO_NOISE = 30.0
_PLATEAU = 500
_DARK, _LIGHT = 0.25, 0.75
_END = 0.05

Samples = npt.NDArray[np.float64]


class Edge(NamedTuple):
    """Light came, or went.

    Attributes:
        at: when it passed the middle between its levels before and after, in ns from the
            beginning of the log.
        rising: whether it came.
    """

    at: Span
    rising: bool

    def on_clock(self, log: PowerLog) -> Span:
        """Time on the bench's clock: as uncertain as the start of its log."""
        return Span(log.start.earliest + self.at.earliest, log.start.latest + self.at.latest)


def edges(log: PowerLog, *, least_db: float = LEAST_DB) -> list[Edge]:
    """Every coming and going of light in `log`, in order.

    An edge lies between the last sample on one side of it and the first on the other: samples
    of less than a quarter of the step are on its dark side, of more than three quarters on its
    light side. Light that passes from one level to the other without turning back has passed
    the middle between the middles of those two samples, since a sample is a mean: if it had
    passed it before, less than half of the dark one would be dark. Levels are taken around
    each edge, so light may come back stronger or weaker than it left.

    Args:
        log: the samples.
        least_db: by how much light must exceed darkness.

    Returns:
        No edges where the light stays what it is, but for noise.
    """
    coarse = _changes(log.milliwatt, least_db)
    bounds = [0, *(index for index, _ in coarse), len(log.milliwatt)]
    found = []
    for number, (index, rising) in enumerate(coarse):
        before = log.milliwatt[max(bounds[number], index - _PLATEAU) : index]
        after = log.milliwatt[index : min(bounds[number + 2], index + _PLATEAU)]
        first, last = _around(before, after, index, rising=rising)
        half = log.period // 2
        found.append(Edge(Span(first * log.period + half, last * log.period + half), rising))
    return found


def _changes(samples: Samples, least_db: float) -> list[tuple[int, bool]]:
    """Roughly where light comes or goes: index of the first sample behind it, and whether up.

    Light up to 7 dB weaker than the strongest of the log counts as light.
    """
    if len(samples) < 2:
        return []
    least, most = float(samples.min()), float(samples.max())
    dark = float(np.median(samples[samples <= least + 0.1 * (most - least)]))
    light = float(np.median(samples[samples >= (least + most) / 2]))
    noise = float(np.median(np.abs(np.diff(samples))))
    step = light - dark
    if step <= _LEAST_TO_NOISE * noise or light <= dark * 10 ** (least_db / 10):
        return []
    state = np.zeros(len(samples), dtype=np.int8)
    state[samples > dark + 0.2 * step] = 1
    state[samples < dark + 0.1 * step] = -1
    known = np.maximum.accumulate(np.where(state != 0, np.arange(len(samples)), 0))
    state = state[known]
    changed = np.flatnonzero((state[1:] != state[:-1]) & (state[:-1] != 0)) + 1
    return [(int(index), bool(state[index] > 0)) for index in changed]


def _around(before: Samples, after: Samples, index: int, *, rising: bool) -> tuple[int, int]:
    """The last sample before an edge at about `index`, and the first behind it."""
    low, high = (before, after) if rising else (after, before)
    # Not medians: what leads to a slow edge may be longer than the level before it.
    dark, light = float(np.quantile(low, _END)), float(np.quantile(high, 1 - _END))
    if light <= dark:  # too short to have levels of its own
        return index - 1, index
    nearby = np.concatenate((before, after))
    is_dark = nearby < dark + _DARK * (light - dark)
    is_light = nearby > dark + _LIGHT * (light - dark)
    old, new = (is_dark, is_light) if rising else (is_light, is_dark)
    settled = int(np.flatnonzero(old[: len(before)])[-1])
    behind = settled + 1 + int(np.flatnonzero(new[settled + 1 :])[0])
    ahead = int(np.flatnonzero(old[:behind])[-1])
    return index - len(before) + ahead, index - len(before) + behind
