"""A photodiode and what it makes of the light that falls on it."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.instruments.simulated.world.light import LightTrace
from lightrig.instruments.simulated.world.randomness import Chance

CALIBRATED_NM = 1310.0
"""Wavelength at which a photodiode's responsivity is known best."""


@dataclass(frozen=True, slots=True)
class Photodiode:
    """Properties of a photodiode. These numbers are chosen, not taken from a data sheet.

    Attributes:
        noise_w: standard deviation of a reading of one second in the dark, in W; it falls
            with the root of the averaging time.
        offset_w: standard deviation of the dark offset of a diode that was never zeroed, in W.
        gain_db: standard deviation of the calibration's error, in dB.
        slope_db_per_nm: standard deviation of what that error grows by, away from 1310 nm.
        resolution: noise of a one-second reading relative to the end of the range in use.
    """

    noise_w: float = 1e-12
    offset_w: float = 20e-12
    gain_db: float = 0.05
    slope_db_per_nm: float = 2e-4
    resolution: float = 1e-8


class Exposure:
    """Record of the light on a detector from a moment on.

    Attributes:
        start: when it began, in ns.
    """

    def __init__(self, start: int, milliwatt: float) -> None:
        self.start = start
        self._times = [0]
        self._levels = [milliwatt]

    def lit(self, at: int, milliwatt: float) -> None:
        """Set the light to `milliwatt` from `at` on."""
        self._times.append(at - self.start)
        self._levels.append(milliwatt)

    def means(self, period: float, count: int, after: float = 0.0) -> npt.NDArray[np.float64]:
        """Mean power in mW of `count` samples of `period` ns, the first `after` ns on.

        Before the beginning it was as it was then.
        """
        times = np.array(self._times, dtype=np.float64)
        levels = np.array(self._levels)
        energy_until = np.concatenate(([0.0], np.cumsum(levels[:-1] * np.diff(times))))
        bounds = np.arange(count + 1, dtype=np.float64) * period + after
        step = np.maximum(np.searchsorted(times, bounds, side="right") - 1, 0)
        energy = energy_until[step] + levels[step] * (bounds - times[step])
        return np.diff(energy) / period


class Detector:
    """One photodiode with its errors; draws come from streams named after it.

    Args:
        name: of the channel, such as `meter.1`.
        kind: what it is like.
    """

    def __init__(self, name: str, chance: Chance, kind: Photodiode) -> None:
        errors = chance.stream(f"{name}/detector")
        self._kind = kind
        self._noise = chance.stream(f"{name}/noise")
        self._gain_db = kind.gain_db * errors.normal()
        self._slope_db = kind.slope_db_per_nm * errors.normal()
        self._offset_w = kind.offset_w * errors.normal()
        self._zeroed_w = 0.0
        self._trace = LightTrace()
        self._exposures: list[Exposure] = []

    def lit(self, at: int, milliwatt: float) -> None:
        """Set the light on it to `milliwatt` from `at`, which is now."""
        self._trace.plan(at, milliwatt)
        for exposure in self._exposures:
            exposure.lit(at, milliwatt)

    @property
    def level(self) -> float:
        """Light on it now, in mW."""
        return self._trace.last

    def expose(self, now: int) -> Exposure:
        """Begin a record of the light on it."""
        exposure = Exposure(now, self.level)
        self._exposures.append(exposure)
        return exposure

    def end(self, exposure: Exposure) -> None:
        """End the record `exposure`."""
        self._exposures.remove(exposure)

    def mean(self, start: int, end: int) -> float:
        """Mean light in mW in the last two seconds, or the part of them from `start` to `end`."""
        return self._trace.mean(start, end)

    def zero(self, averaging: int) -> None:
        """Take its reading in the dark as its offset, averaged over `averaging` ns."""
        noise = self._kind.noise_w / math.sqrt(averaging / 1e9)
        self._zeroed_w = self._offset_w + noise * self._noise.normal()

    def reading(
        self, milliwatt: float, *, averaging: int, wavelength_nm: float, full_scale_w: float
    ) -> float:
        """Return the reading in W for a mean of `milliwatt` over `averaging` ns."""
        shown = self.readings(
            np.array([milliwatt]),
            averaging=averaging,
            wavelength_nm=wavelength_nm,
            full_scale_w=full_scale_w,
        )
        return float(shown[0])

    def readings(
        self,
        milliwatt: npt.NDArray[np.float64],
        *,
        averaging: int,
        wavelength_nm: float,
        full_scale_w: float,
    ) -> npt.NDArray[np.float64]:
        """Return the readings in W, sample by sample, corrected for light of `wavelength_nm`."""
        error_db = self._gain_db + self._slope_db * (wavelength_nm - CALIBRATED_NM)
        watt = milliwatt * (1e-3 * 10 ** (error_db / 10))
        one_second = math.hypot(self._kind.noise_w, self._kind.resolution * full_scale_w)
        noise = self._noise.normals(len(watt)) * (one_second / math.sqrt(averaging / 1e9))
        return watt + (self._offset_w - self._zeroed_w) + noise
