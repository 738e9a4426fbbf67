"""Ports whose times differ from those of the other ports of the same event."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.harness.statistics.samples import SampleError

Numbers: TypeAlias = npt.NDArray[np.float64]

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
    rest_low, rest_high = medians_of_rest(low), medians_of_rest(high)
    found = []
    for port in range(ports):
        judged = np.isfinite(low[:, port]) & (np.isfinite(low).sum(axis=1) > 2)
        if not judged.any():
            continue
        usual_low, usual_high = rest_low[judged, port], rest_high[judged, port]
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
                    port=port,
                    excess=median.value,
                    lower=median.lower,
                    upper=median.upper,
                    confidence=median.confidence,
                    usual=usual,
                    n=int(judged.sum()),
                )
            )
    return sorted(found, key=lambda one: -abs(one.excess))


def medians_of_rest(values: Numbers) -> Numbers:
    """Return for each event and port the median of the event's other ports; NaN is no port."""
    order = np.argsort(values, axis=1)  # NaN last
    rank = np.argsort(order, axis=1)
    ranked = np.take_along_axis(values, order, axis=1)
    count = np.maximum(np.isfinite(values).sum(axis=1, keepdims=True) - 1, 1)
    middles = [
        np.take_along_axis(ranked, np.minimum(at + (rank <= at), values.shape[1] - 1), axis=1)
        for at in ((count - 1) // 2, count // 2)
    ]
    return (middles[0] + middles[1]) / 2


def by_event_and_port(
    events: npt.ArrayLike, subjects: Sequence[str], *values: npt.ArrayLike
) -> tuple[list[str], list[Numbers]]:
    """Return the ports of samples, and each of `values` by (event, port), NaN for none."""
    places = np.unique(np.asarray(events), return_inverse=True)[1]
    ports, columns = np.unique(np.asarray(subjects, dtype=object), return_inverse=True)
    tables = []
    for each in values:
        table = np.full((int(places.max(initial=-1)) + 1, ports.size), np.nan)
        table[places, columns] = np.asarray(each, dtype=np.float64)
        tables.append(table)
    return [str(port) for port in ports], tables
