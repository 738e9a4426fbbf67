"""One port of a Keysight N7744A or N7745A: its settings, its readings, its log.

Error numbers and their words are those of the N77xx Programming Guide, edition 7.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from instruments.clock import Scheduled, Span
from instruments.simulated.detector import Detector, Exposure, Photodiode
from instruments.simulated.keysight_power import INVALID, worded_power
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import ErrorQueue, ScpiError
from instruments.simulated.scpi_values import (
    DBM,
    DECIBELS,
    METRES,
    SECONDS,
    Choice,
    Setting,
)

ZEROING = 5_000_000_000
"""How long taking the dark offset lasts, in ns (a guess)."""

_MOST_POINTS = 1_000_000
_TOO_BRIGHT_TO_ZERO_MW = 1e-6
_ZERO_FAILED = 1

_NOT_YET = (-231, "Data questionable (StatValNYetAcc)")
_OVER_RANGE = (-231, "Data questionable (StatRangeTooLow)")
NOT_RUNNING = (-205, "Powermeter not running (StatMeterNotRunning)")
BUSY = (-284, "Function currently running (StatModuleBusy)")
_NOTHING_TO_SHOW = (-286, "No function currently running")
_FIRST_STOP = (-200, "Execution error (StatExecError)")
_CONFLICT = (-221, "Settings conflict (StatParmInconsistent)")

LogState = Literal["none", "armed", "running", "complete"]


@dataclass
class _Window:
    """The last reading: of which averaging window it is, and what it was."""

    number: int
    watt: float


class MeterSlot:
    """A port with its photodiode.

    Attributes:
        state: how far its log has come.
        continuous: whether it measures all the time, or once for each trigger.
    """

    def __init__(self, around: Surroundings, number: int, errors: ErrorQueue) -> None:
        self.number = number
        self.wavelength = Setting(1550e-9, 1250e-9, 1650e-9, METRES)
        self.averaging = Setting(0.2, 1e-6, 10.0, SECONDS)
        self.range = Setting(0.0, -30.0, 10.0, DBM)
        self.correction = Setting(0.0, -200.0, 200.0, DECIBELS)
        self.points = Setting(100, 1, _MOST_POINTS, {"": 1.0})
        self.period = Setting(0.1, 1e-6, 10.0, SECONDS)
        self.trigger_in = Choice("IGN", ("IGNore", "SMEasure", "CMEasure", "MMEasure"))
        self.trigger_out = Choice("DIS", ("DISabled", "AVGover", "MEASure"))
        self.zero_code = 0
        self._clock = around.clock
        self._truth = around.truth
        self._name = f"{around.spec.name}.{number}"
        self._errors = errors
        self._detector = Detector(self._name, around.chance, Photodiode())
        self.state: LogState = "none"
        self._exposure: Exposure | None = None
        self._completion: Scheduled | None = None
        self._result: bytes | None = None
        self._light = around.light
        around.light.on_arrival(number, self._arrived)
        self.reset()

    def reset(self) -> None:
        """As after switching on: dBm, automatic range, measuring all the time."""
        self.stop()
        for setting in (
            self.wavelength,
            self.averaging,
            self.range,
            self.correction,
            self.points,
            self.period,
        ):
            setting.reset()
        self.automatic = True
        self.automatic_gain = True
        self.in_watt = False
        self.trigger_in.value, self.trigger_out.value = "IGN", "DIS"
        self._last: _Window | None = None
        self.measure_continuously(on=True)

    def _arrived(self, at: int) -> None:
        self._detector.lit(at, self._light.level(self.number))

    # ------------------------------------------------------------------------ readings

    def measure_continuously(self, *, on: bool) -> None:
        """Measure one averaging time after the other from now on, or for each trigger only."""
        self.continuous = on
        self._since = self._clock.now()
        self._last = None

    def changed(self) -> None:
        """A parameter was changed: that stops a log and begins a new average."""
        self.stop()
        self._since = self._clock.now()
        self._last = None

    @property
    def averaging_ns(self) -> int:
        """The averaging time in ns."""
        return round(self.averaging.value * 1e9)

    def refuse_while_logging(self) -> None:
        """Raise the error of a port that has a log to take instead of readings."""
        if self.state == "running":
            raise ScpiError(*BUSY)
        if self.state != "none":
            raise ScpiError(*NOT_RUNNING)

    def expose(self) -> Exposure:
        """Begin a measurement of its own for a trigger."""
        return self._detector.expose(self._clock.now())

    def measured(self, exposure: Exposure) -> float:
        """The end of a triggered measurement: its reading in W."""
        self._detector.end(exposure)
        watt = self._watt(float(exposure.means(self.averaging_ns, 1)[0]), self.averaging_ns)
        self._last = _Window(-1, watt)
        return watt

    def fetched(self) -> float:
        """The last reading in W; raises `ScpiError` if there was none."""
        if not self.continuous:
            if self._last is None:
                raise ScpiError(*NOT_RUNNING)
            return self._last.watt
        now, width = self._clock.now(), self.averaging_ns
        number = (now - self._since) // width
        if number == 0:
            self._errors.put(*_NOT_YET)
            return self._watt(self._detector.mean(self._since, now), width)
        if self._last is None or self._last.number != number:
            end = self._since + number * width
            self._last = _Window(number, self._watt(self._detector.mean(end - width, end), width))
        return self._last.watt

    def worded(self, watt: float) -> str:
        """A reading in the unit that is set; what cannot be said goes to the error queue."""
        return worded_power(watt, self._errors, in_watt=self.in_watt)

    def _watt(self, milliwatt: float, averaging: int) -> float:
        upper = self._upper_limit_w(self._range_for(milliwatt))
        if milliwatt * 1e-3 > upper:
            self._errors.put(*_OVER_RANGE)
            return INVALID
        watt = self._detector.reading(
            milliwatt,
            averaging=averaging,
            wavelength_nm=self.wavelength.value * 1e9,
            full_scale_w=upper,
        )
        return float(np.float32(watt * self._factor))

    @property
    def range_dbm(self) -> float:
        """The range in use now."""
        return self._range_for(self._detector.level)

    def _range_for(self, milliwatt: float) -> float:
        """The range that is set, or the lowest that takes `milliwatt`."""
        if not self.automatic:
            return 10.0 * round(self.range.value / 10)
        watt = milliwatt * 1e-3
        fitting = [dbm for dbm in range(-30, 10, 10) if self._upper_limit_w(dbm) >= watt]
        return float(fitting[0]) if fitting else 10.0

    @staticmethod
    def _upper_limit_w(range_dbm: float) -> float:
        """19.999 mW in the range of +10 dBm, and so on."""
        return 1.9999e-3 * float(10 ** (range_dbm / 10))

    @property
    def _factor(self) -> float:
        return float(10 ** (self.correction.value / 10))

    # ----------------------------------------------------------------------------- log

    def set_log(self, points: str, period: str) -> None:
        """Set number and length of the samples; raises `ScpiError` while there is a log."""
        if self.state == "running":
            raise ScpiError(*BUSY)
        if self.state != "none":
            raise ScpiError(*_FIRST_STOP)
        self.points.set(points)
        self.period.set(period)
        self.changed()

    def start(self) -> None:
        """Begin the log, or wait for a trigger where triggers are not ignored."""
        if self.state != "none":
            raise ScpiError(*BUSY)
        if self.trigger_in.value == "SME":  # one sample a trigger is not simulated
            raise ScpiError(*_CONFLICT)
        self.state = "armed"
        if self.trigger_in.value == "IGN":
            self._begin(self._clock.now())

    def trigger(self, at: int) -> None:
        """A trigger came at `at`: begin the log that waits for it."""
        if self.state == "armed":
            self._begin(at)

    def stop(self) -> None:
        """Give up the log and its result."""
        if self._completion is not None:
            self._completion.cancel()
        if self.state == "running" and self._exposure is not None:
            self._detector.end(self._exposure)
        self.state, self._exposure, self._result = "none", None, None

    def result(self) -> bytes:
        """The samples of a full log as floats in Intel's byte order; raises `ScpiError`."""
        if self.state != "complete" or self._exposure is None:
            raise ScpiError(*(_NOTHING_TO_SHOW if self.state == "none" else BUSY))
        if self._result is None:
            self._result = self._samples(self._exposure)
        return self._result

    def _begin(self, at: int) -> None:
        self.state = "running"
        self._log_range = self.range_dbm
        self._exposure = self._detector.expose(at)
        self._truth.note(self._name, "log", up=True, at=Span(at, at))
        duration = round(self.points.value) * round(self.period.value * 1e9)
        self._completion = self._clock.schedule(at + duration, self._name, self._complete)

    def _complete(self) -> None:
        assert self._exposure is not None
        self._detector.end(self._exposure)
        self.state = "complete"

    def _samples(self, exposure: Exposure) -> bytes:
        period, upper = round(self.period.value * 1e9), self._upper_limit_w(self._log_range)
        milliwatt = exposure.means(period, round(self.points.value))
        watt = self._detector.readings(
            milliwatt,
            averaging=period,
            wavelength_nm=self.wavelength.value * 1e9,
            full_scale_w=upper,
        )
        watt *= self._factor
        if not self.in_watt:
            with np.errstate(invalid="ignore", divide="ignore"):
                watt = np.where(watt > 0, 10 * np.log10(watt * 1e3), INVALID)
        watt[milliwatt * 1e-3 > upper] = INVALID
        return watt.astype("<f4").tobytes()

    # ------------------------------------------------------------------------- zeroing

    def zero(self) -> None:
        """Take the dark offset, unless there is light; then the last one stays in use."""
        self.zero_code = _ZERO_FAILED if self._detector.level > _TOO_BRIGHT_TO_ZERO_MW else 0
        if self.zero_code == 0:
            self._detector.zero(ZEROING)
