"""Deviations that settings and monitors show in a matrix of losses: unsteady, or swapped.

Each setting makes every port's circuit once, so that what all of its circuits lose more is neither
of an ingress nor of an egress: rows, columns and settings are the three factors of a Latin square.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy

from lightrig.harness.measure.insertion_loss.matrix import Losses
from lightrig.harness.measure.insertion_loss.readings import Numbers
from lightrig.harness.statistics.loss_matrix import take_apart
from lightrig.testbeds import Circuit

_TO_SD = 1.4826
"""Factor from the median absolute deviation to the standard deviation of normal samples."""

_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of many normal samples."""

_EFFICIENCY = 0.37
"""Of the median absolute deviation, relative to the standard deviation, for normal samples."""

_FEWEST = 4
"""Circuits of a setting from which on their median is of the setting, not of one of them."""

_UNSTEADY_DB = 0.1
"""Smallest difference of a setting that counts, in dB: the usual limit of a check standard."""

_ERROR = 0.01
"""Chance that a setting is found where none is unsteady."""

_EXPLAINED = 4.0
"""Factor by which the scatter of two ports must fall once their readings are exchanged."""


@dataclass(frozen=True, slots=True)
class UnsteadySetting:
    """Setting whose circuits lose more than those of the first one, beyond what ports explain.

    number: its place, from 0. value: by how much, in dB. half: half its 95 % interval.
    """

    number: int
    circuits: tuple[Circuit, ...]
    value: float
    half: float


def circuits_of(losses: Losses) -> list[list[Circuit]]:
    """Return the circuits with a loss, setting by setting."""
    when = {at: number for number, at in enumerate(losses.times)}
    found: list[list[Circuit]] = [[] for _ in losses.times]
    for circuit, loss in losses.losses.items():
        found[when[loss.at]].append(circuit)
    return found


def unsteady_settings(losses: Losses, matrix: Numbers) -> list[UnsteadySetting]:
    """Return the settings in which all circuits lose more, or less, than in the first.

    The first one is the check standard. Where ports explain the losses, the median of what is left
    of a setting's circuits is near zero.

    matrix: of the losses, NaN where they say nothing.
    """
    chain, settings = losses.chain, circuits_of(losses)
    if len(settings) < _FEWEST or not np.isfinite(matrix).any():
        return []
    rest = take_apart(matrix).rest
    row = {port: n for n, port in enumerate(chain.ingress)}
    column = {port: n for n, port in enumerate(chain.egress)}
    left = [np.array([rest[row[c.ingress], column[c.egress]] for c in one]) for one in settings]
    left = [one[np.isfinite(one)] for one in left]
    if any(one.size < _FEWEST for one in left):
        return []
    middles = np.array([float(np.median(one)) for one in left])
    around = np.concatenate([one - middle for one, middle in zip(left, middles, strict=True)])
    fitted = sum(np.isfinite(matrix).any(axis=axis).sum() for axis in (0, 1)) + len(left) - 1
    lost = math.sqrt(around.size / max(around.size - fitted, 1))  # by what was taken off
    scatter = _TO_SD * float(np.median(np.abs(around))) * lost
    share = _MEDIAN * math.sqrt(2 / min(one.size for one in left)) * scatter
    degrees = max(_EFFICIENCY * (around.size - fitted), 1.0)
    several = _ERROR / 2 / len(settings)
    factor, usual = (float(scipy.special.stdtrit(degrees, 1 - p)) for p in (several, 0.025))
    return [
        UnsteadySetting(number, tuple(settings[number]), float(more), usual * share)
        for number, more in enumerate(middles - middles[0])
        if abs(more) > max(_UNSTEADY_DB, factor * share)
    ]


def swapped_egresses(losses: Losses, matrix: Numbers, *, least: float) -> Iterator[tuple[int, int]]:
    """Yield the pairs of monitors at egress ports that show each other's light, by their columns.

    Losses of two such ports scatter as the powers of their light do from setting to setting, and
    no longer once their readings are exchanged in every setting. Light that enters is the same in
    every setting: two monitors at ingress ports are found by `swapped_ingresses`.

    matrix: of the losses, NaN where they say nothing. least: scatter in dB that needs a cause.
    """
    before = _scatter(matrix)
    known = before[np.isfinite(before)]
    if known.size < _FEWEST:
        return
    wild = np.flatnonzero(before > max(least, _EXPLAINED * float(np.median(known)))).tolist()
    tried = {
        pair: max(_scatter(_exchanged(losses, matrix, *pair))[[*pair]])
        for pair in combinations(wild, 2)
    }
    used: set[int] = set()
    for pair, after in sorted(tried.items(), key=lambda item: item[1]):
        if used.isdisjoint(pair) and _EXPLAINED * after < min(before[[*pair]]):
            used.update(pair)
            yield pair


def _exchanged(losses: Losses, matrix: Numbers, first: int, second: int) -> Numbers:
    """Return the matrix with the readings of two columns exchanged in every setting."""
    found, columns = matrix.copy(), (first, second)
    level = _means(losses.left)
    level -= np.array([losses.chain.planes[port].correction_db for port in losses.chain.egress])
    for number, circuits in enumerate(circuits_of(losses)):
        for circuit in circuits:
            column = losses.chain.egress.index(circuit.egress)
            if column in columns:
                row = losses.chain.ingress.index(circuit.ingress)
                shown = level[number, first + second - column]
                found[row, column] += level[number, column] - shown
    return found


def _means(readings: Numbers) -> Numbers:
    """Return the mean of each setting's readings, of shape (setting, port); NaN without any."""
    counts = np.isfinite(readings).sum(axis=1)
    sums = np.nansum(readings, axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _scatter(matrix: Numbers) -> Numbers:
    """Return the robust scatter of what is left of each column, in dB."""
    found = np.full(matrix.shape[1], np.nan)
    if not np.isfinite(matrix).any():
        return found
    for column, values in enumerate(np.abs(take_apart(matrix).rest).T):
        known = values[np.isfinite(values)]
        if known.size >= _FEWEST:
            found[column] = _TO_SD * float(np.median(known))
    return found
