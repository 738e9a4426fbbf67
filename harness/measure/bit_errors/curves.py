"""Bit error ratio over received power: sensitivity, and a floor if there is one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.measure.bit_errors.light import Arrival
from lightrig.harness.measure.bit_errors.rows import SENSITIVITY, SENSITIVITY_OMA
from lightrig.harness.measure.gates import Counted
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.sensitivity import (
    Modulation,
    NoSensitivity,
    Sensitivity,
    sensitivity,
)
from lightrig.testbeds.references import METER_DB

Numbers: TypeAlias = npt.NDArray[np.float64]

_STEP_DB = 0.01
POWER_SCALE_DB = METER_DB
"""Standard uncertainty of the scale of received powers, in dB (k = 1), that counts do not know."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Counts at several received powers, and what they say.

    points: light and count, as they were taken. found: a sensitivity for each ratio that the
    counts bound one for. reasons: why there is none for the others, one sentence each.
    """

    points: tuple[tuple[Arrival, Counted], ...]
    found: tuple[Sensitivity, ...]
    reasons: tuple[str, ...]

    def rows(
        self, subject: str, event: int, stated: Mapping[str, Scalar] | None = None
    ) -> Iterator[Row]:
        """Each sensitivity in dBm with its interval, as average power and as OMA if known.

        stated: conditions of the rows.
        """
        if not self.points:
            return
        time = self.points[-1][1].count.ended.latest
        first = self.points[0][0]
        apart = None if first.oma_dbm is None else first.oma_dbm - first.dbm
        for one in self.found:
            row_conditions: dict[str, Scalar] = {
                **(stated or {}),
                "event": event,
                "target": one.target,
                "slope": one.slope,
                "misfit": one.misfit,
                "points": one.points,
                "confidence": one.confidence,
                "power_scale_db": POWER_SCALE_DB,
                # A number with a fraction: what was fitted distinguishes no cases between nights.
                "levels": 4.0 if one.modulation == "PAM4" else 2.0,
            }
            if one.floor is not None:
                row_conditions["floor"] = one.floor
            for quantity, shift in ((SENSITIVITY, 0.0), (SENSITIVITY_OMA, apart)):
                if shift is not None:
                    value, lower, upper = (v + shift for v in (one.dbm, one.lower, one.upper))
                    yield Row(subject, quantity, value, lower, upper, "dBm", time, row_conditions)


def fit(
    points: Sequence[tuple[Arrival, Counted]],
    targets: Sequence[float],
    confidence: float,
    modulation: Modulation = "NRZ",
    burst: float | None = None,
) -> Curve:
    """Fit the counts; a floor is fitted only where a curve without one does not fit.

    burst: declared mean number of errors in a burst, by which errors scatter more than independent
    ones. Counts that fit neither curve of `modulation` give no sensitivity.
    """
    dbm = np.array([arrival.dbm for arrival, _ in points])
    noise = np.array([arrival.noise_db for arrival, _ in points])
    dispersion = 2 * (burst or 1.0) - 1  # as in `statistics.sequential`
    errors = np.array([counted.count.errors for _, counted in points], dtype=float) / dispersion
    bits = np.array([counted.count.bits for _, counted in points], dtype=float) / dispersion
    found: list[Sensitivity] = []
    reasons: list[str] = []
    for target in targets:
        fitted = partial(
            sensitivity,
            target=target,
            confidence=confidence,
            scale_db=POWER_SCALE_DB,
            modulation=modulation,
        )
        one = fitted(dbm, errors, bits, least_p=0.0)
        if isinstance(one, Sensitivity):
            counts = _as_good_as(one, dbm, noise, errors, bits)
            one = fitted(dbm, *counts)
            if isinstance(one, NoSensitivity) and one.misfit is not None:
                floored = fitted(dbm, *counts, with_floor=True)
                one = floored if isinstance(floored, Sensitivity) else one
        if isinstance(one, NoSensitivity):
            reasons.append(f"no sensitivity at {target:g}: {one.reason}")
        else:
            found.append(one)
    return Curve(tuple(points), tuple(found), tuple(reasons))


def _as_good_as(
    fitted: Sensitivity, dbm: Numbers, noise_db: Numbers, errors: Numbers, bits: Numbers
) -> tuple[Numbers, Numbers]:
    """Fewer errors of fewer bits, that say as little as these do at a power that is not exact.

    Noise of the power is, by the slope of the curve, noise of the logarithm of the ratio; its
    variance adds to that of the count, which is one over the errors.
    """
    above, below = (
        np.log([fitted.ratio_at(float(each) + step) for each in dbm])
        for step in (_STEP_DB, -_STEP_DB)
    )
    blurred = (above - below) / (2 * _STEP_DB) * noise_db
    share = 1 / (1 + errors * blurred**2)
    return errors * share, bits * share
