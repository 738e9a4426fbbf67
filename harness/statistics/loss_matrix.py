"""Faults in an N x N matrix of losses: a port, a circuit, a laser, a monitor.

A loss is the sum of a common level, an ingress part, an egress part and a residual. A connector
fault affects its whole row or column; a laser fault grows with time; a stuck monitor has no
noise. Matrices have one row per ingress and one column per egress, in dB; NaN where nothing was
measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import SampleError

Numbers = npt.NDArray[np.float64]

_TO_SD = 1.4826
"""Factor from the median absolute deviation to the standard deviation of normal samples."""
_STILL = 1e-6
_EFFICIENCY = 0.37
"""Of the median absolute deviation, relative to the standard deviation, for normal samples."""


@dataclass(frozen=True, slots=True)
class Effects:
    """A matrix taken apart: whole + rows[:, None] + columns + rest, in its unit.

    The median of rows and that of columns are zero, as are about those of the rest.
    """

    whole: float
    rows: Numbers
    columns: Numbers
    rest: Numbers


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row, a column or a cell that stands out, by index; None for what it is not of.

    value: by how much it exceeds what its like have, in dB; `lower` and `upper` its 95 %
        interval, in which it counts that its like differ among themselves as well.
    """

    row: int | None
    column: int | None
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Slope:
    """Slope of a level: `value` in dB/s, with its interval at the requested error."""

    value: float
    lower: float
    upper: float


def take_apart(matrix: npt.ArrayLike, *, rounds: int = 20) -> Effects:
    """Separate rows and columns by medians, which few high rows or cells do not move.

    Median polish (Tukey, Exploratory Data Analysis, 1977, ch. 11). A row or column without a
    single value has the effect NaN. Raises `SampleError` for what is no matrix, or an empty one.
    """
    rest = np.array(matrix, dtype=np.float64)
    if rest.ndim != 2 or not np.isfinite(rest).any():
        raise SampleError("found no matrix with values in it")
    rows, columns, whole = np.zeros(rest.shape[0]), np.zeros(rest.shape[1]), 0.0
    for _ in range(rounds):
        by_row = _medians(rest, 1)
        rest -= np.nan_to_num(by_row)[:, None]
        rows = rows + by_row
        by_column = _medians(rest, 0)
        rest -= np.nan_to_num(by_column)
        columns = columns + by_column
        moved = (_medians(rows[None], 1)[0], _medians(columns[None], 1)[0])
        rows, columns, whole = rows - moved[0], columns - moved[1], whole + float(sum(moved))
        if np.nanmax(np.abs(by_column)) < _STILL:
            break
    return Effects(whole, rows, columns, rest)


def outliers(
    effects: Effects, *, least: float = 0.3, error: float = 0.01, alike: Sequence[Effects] = ()
) -> list[Outlier]:
    """Rows and columns, then cells, that lose more than their like, by `least` or more.

    How far their like scatter is measured robustly, on ports of both sides together and on
    cells. `error` is the chance that any of either is named where all are normal and alike
    (Bonferroni); `least` is what is worth a walk to the lab, in dB. Where there are fewer than
    six ports or cells nobody is unlike the others.

    alike: other matrices whose effects scatter as these do.
    """
    high = effects.rest.shape[0]
    ports, *alike_ports = (np.concatenate([one.rows, one.columns]) for one in (effects, *alike))
    found = []
    for index, value, half in _beyond(
        [(ports, 2), *((one, 2) for one in alike_ports)], least, error
    ):
        row, column = (index, None) if index < high else (None, index - high)
        found.append(Outlier(row, column, value, value - half, value + half))
    named = {(one.row, one.column) for one in found}
    cells = [
        (one.rest.ravel(), int(np.isfinite(one.rows).sum() + np.isfinite(one.columns).sum()) - 1)
        for one in (effects, *alike)
    ]
    for index, value, half in _beyond(cells, least, error):
        row, column = divmod(index, effects.rest.shape[1])
        if (row, None) not in named and (None, column) not in named:
            found.append(Outlier(row, column, value, value - half, value + half))
    return found


def outliers_since(
    matrix: Numbers, before: Sequence[Numbers], *, least: float = 0.3, error: float = 0.01
) -> list[Outlier]:
    """Rows and columns, then cells, that lose more than in matrices before, as `outliers`.

    Each matrix is taken less the medians of the others, so that what ports differ by every time
    is no part of their scatter, which all matrices show together.
    """
    flat = np.array([one.ravel() for one in before])
    rests = (flat, *(np.delete(flat, at, axis=0) for at in range(len(flat))))
    found = []
    for one, rest in zip((matrix, *before), rests, strict=True):
        change = one - _medians(rest, 0).reshape(one.shape)
        if np.isfinite(change).any():
            found.append(take_apart(change))
        elif one is matrix:
            return []
    return outliers(found[0], least=least, error=error, alike=found[1:])


def _beyond(
    matrices: Sequence[tuple[Numbers, int]], least: float, error: float
) -> list[tuple[int, float, float]]:
    """Index, excess and half the 95 % interval of each value of the first matrix that stands out.

    matrices: values, and how many medians were taken off them; each leaves one at zero.
    """
    # The medians' zeros say nothing of how far the others scatter.
    away = [np.sort(np.abs(each[np.isfinite(each)]))[fitted:] for each, fitted in matrices]
    values = matrices[0][0]
    known = int(np.isfinite(values).sum())
    scattered = np.concatenate(away)
    if not away[0].size or known + scattered.size - away[0].size < 6:
        return []
    scatter = _TO_SD * float(np.median(scattered))
    degrees = max(_EFFICIENCY * scattered.size, 1.0)
    factor, usual = (float(scipy.special.stdtrit(degrees, 1 - p)) for p in (error / known, 0.025))
    return [
        (index, value, usual * scatter)
        for index, value in enumerate(values.tolist())
        if value > max(least, factor * scatter)
    ]


def slope(seconds: npt.ArrayLike, levels: npt.ArrayLike, *, error: float = 0.01) -> Slope:
    """Slope of a level, robust to outliers: the median of the slopes of all pairs.

    The interval is by ranks and needs no normal samples (Theil 1950; Sen 1968); it has no ends
    where even all slopes of one sign are likelier than `error`. Raises `SampleError` for fewer than
    five levels.
    """
    x, y = np.asarray(seconds, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    retained = np.isfinite(y)
    x, y = x[retained], y[retained]
    if y.size < 5:
        raise SampleError(f"found {y.size} levels, expected five or more")
    first, second = np.triu_indices(y.size, 1)
    apart = x[second] - x[first]
    slopes = np.sort((y[second] - y[first])[apart != 0] / apart[apart != 0])
    count, n = slopes.size, y.size
    width = -float(scipy.special.ndtri(error / 2)) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low, high = round((count - width) / 2) - 1, round((count + width) / 2)
    return Slope(
        float(np.median(slopes)),
        float(slopes[low]) if low >= 0 else -math.inf,
        float(slopes[high]) if high < count else math.inf,
    )


def standing_still(readings: npt.ArrayLike, *, share: float = 0.1) -> list[int]:
    """Return the monitors that read the same where the others' readings scatter, by index.

    readings: of shape (setting, repeat, monitor), NaN for none. A monitor stands still if it
    scatters by less than `share` of what the median one does, within settings and between
    them. Nothing can be said where the others do not scatter either, or of a monitor with
    readings in fewer than three settings or fewer than ten to spare.
    """
    found = np.asarray(readings, dtype=np.float64)
    counts = np.isfinite(found).sum(axis=1)
    means = np.nansum(found, axis=1) / np.maximum(counts, 1)
    squares = np.nansum((found - means[:, None, :]) ** 2, axis=1)
    degrees = np.maximum(counts - 1, 0).sum(axis=0)
    judged = ((counts > 0).sum(axis=0) >= 3) & (degrees >= 10)
    if not judged.any():
        return []
    within = np.sqrt(squares.sum(axis=0) / np.maximum(degrees, 1))
    usual = float(np.median(within[judged])) * share
    if not usual > 0:
        return []
    still = judged & (within < usual)
    return [n for n in np.flatnonzero(still).tolist() if np.ptp(means[counts[:, n] > 0, n]) < usual]


def at_ceiling(readings: npt.ArrayLike) -> tuple[float, npt.NDArray[np.bool_]] | None:
    """Return the greatest value that monitors show, and which (setting, monitor) reach it.

    readings: as for `standing_still`. None unless, in two settings or at two monitors, three or
    more readings of one setting equal the greatest value of all, and a larger share of them than
    of any that did not reach it equals its own greatest: light with noise does so only where
    monitors show no more. Monitors that show coarse steps repeat a value at every level, which
    proves nothing.
    """
    found = np.asarray(readings, dtype=np.float64)
    if not np.isfinite(found).any():
        return None
    greatest = float(np.nanmax(found))
    reached = (found == greatest).sum(axis=1)
    counts = np.isfinite(found).sum(axis=1)
    below = (reached == 0) & (counts >= 3)
    if not below.any():
        return None
    tops = np.max(np.where(np.isfinite(found), found, -math.inf), axis=1)
    repeated = (found == tops[:, None, :]).sum(axis=1) / np.maximum(counts, 1)
    usual = float(repeated[below].max())
    if ((reached >= 3) & (repeated > usual)).sum() < 2:
        return None
    return greatest, reached > 0


def _medians(matrix: Numbers, axis: int) -> Numbers:
    """The median of each row (`axis` 1) or column that has values, else NaN."""
    ordered = np.sort(matrix, axis=axis)  # NaN comes last
    count = np.isfinite(matrix).sum(axis=axis)
    middle = np.stack([(np.maximum(count, 1) - 1) // 2, np.minimum(count // 2, count)])
    middle = np.minimum(middle, matrix.shape[axis] - 1)
    if axis == 1:
        found = ordered[np.arange(len(matrix)), middle].mean(axis=0)
    else:
        found = ordered[middle, np.arange(matrix.shape[1])].mean(axis=0)
    return np.asarray(np.where(count > 0, found, np.nan))
