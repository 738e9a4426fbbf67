"""Ports whose times differ from those of the other ports of the same event."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.harness.statistics.samples import SampleError

WORTH = 0.1
"""Share of the others' time by which a port has to differ at least."""


class UnlikePort(NamedTuple):
    """A port that takes longer, or shorter, than the others.

    port: its place. excess: median over events of its time less the median of the others', with its
    interval `lower`, `upper` at `confidence`. usual: median time of the others. n: events.
    """

    port: int
    excess: float
    lower: float
    upper: float
    confidence: float
    usual: float
    n: int


def unlike_ports(
    earliest: npt.ArrayLike, latest: npt.ArrayLike, *, error: float = 0.01, least: float = WORTH
) -> list[UnlikePort]:
    """Return the ports that differ by `least` of the usual time or more, the greatest first.

    Ports of one event move together, so each is compared within its events: an event is one sample,
    whatever it has in common with the other ports. The interval of the median difference is by
    order statistics and needs no shape (see `quantile`); `error` is the chance that any port
    is returned where all are alike, divided by their number (Bonferroni).

    earliest, latest: bounds of shape (event, port), NaN where a port took no part. A port with too
    few events, or beside fewer than two others, is not judged.

    Raises `SampleError` for bounds of different shapes, or of another number of dimensions.
    """
    low, high = np.asarray(earliest, dtype=np.float64), np.asarray(latest, dtype=np.float64)
    if low.ndim != 2 or low.shape != high.shape:
        raise SampleError("found bounds of other shapes than (event, port), expected one each")
    ports = low.shape[1]
    found = []
    for port in range(ports):
        rest = np.arange(ports) != port
        beside = np.isfinite(low[:, rest]).sum(axis=1) >= 2
        judged = np.isfinite(low[:, port]) & beside
        if not judged.any():
            continue
        usual_low, usual_high = (
            np.nanmedian(each[judged][:, rest], axis=1) for each in (low, high)
        )
        median = quantile(
            low[judged, port] - usual_high, high[judged, port] - usual_low, 0.5, 1 - error / ports
        )
        usual = float(np.median((usual_low + usual_high) / 2))
        if isinstance(median, NotEnough) or median.lower is None:
            continue
        beyond = median.lower > 0 or median.upper < 0
        if beyond and abs(median.value) >= least * abs(usual):
            found.append(
                UnlikePort(
                    *(port, median.value, median.lower, median.upper, median.confidence),
                    *(usual, int(judged.sum())),
                )
            )
    return sorted(found, key=lambda one: -abs(one.excess))


def by_event_and_port(
    events: npt.ArrayLike, subjects: Sequence[str], *values: npt.ArrayLike
) -> tuple[list[str], list[npt.NDArray[np.float64]]]:
    """Return the ports of samples, and each of `values` by (event, port), NaN for none."""
    places = np.unique(np.asarray(events), return_inverse=True)[1]
    ports, columns = np.unique(np.asarray(subjects, dtype=object), return_inverse=True)
    tables = []
    for each in values:
        table = np.full((int(places.max(initial=-1)) + 1, ports.size), np.nan)
        table[places, columns] = np.asarray(each, dtype=np.float64)
        tables.append(table)
    return [str(port) for port in ports], tables
