"""Simulated Keysight N7744A or N7745A multiport power meter.

Commands, formats and errors are those of the N77xx Programming Guide, edition 7. Left out:
stability and min/max functions, loops and buffers of the log, references, stored settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lightrig.instruments.clock import Scheduled, Span
from lightrig.instruments.simulated.devices.keysight_lightwave import (
    BUSY,
    FAILED,
    INVALID,
    NO_SUCH_SLOT,
    KeysightDevice,
    KeysightNode,
    format_power,
    keysight_float,
    parse_power_unit,
    power_block,
    slot_block,
)
from lightrig.instruments.simulated.protocols.commands import Constant, Query, command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, block
from lightrig.instruments.simulated.protocols.scpi_values import (
    DBM,
    DECIBELS,
    ILLEGAL_VALUE,
    METRES,
    SECONDS,
    Choice,
    Flag,
    Number,
    Parameter,
    ScpiError,
    boolean,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.detector import Detector, Exposure, Photodiode

ZEROING = 5_000_000_000
"""Time to take the dark offset, in ns (a guess)."""

_MOST_POINTS = 1_000_000
_TOO_BRIGHT_TO_ZERO_MW = 1e-6
_ZERO_FAILED = 1

_NOT_YET = (-231, "Data questionable (StatValNYetAcc)")
_OVER_RANGE = (-231, "Data questionable (StatRangeTooLow)")
_IGNORED = (-211, "Trigger ignored")
_NOT_RUNNING = (-205, "Powermeter not running (StatMeterNotRunning)")
_NO_FUNCTION = (-286, "No function currently running")
_ZEROING = (-616, "Not allowed while ongoing zeroing")

LogState = Literal["none", "armed", "running", "complete"]
_STATES: dict[LogState, str] = {
    "none": "NONE,PROGRESS",
    "armed": "LOGGING_STABILITY,PROGRESS",
    "running": "LOGGING_STABILITY,PROGRESS",
    "complete": "LOGGING_STABILITY,COMPLETE",
}

_READ = "READ#[:CHANnel#][:SCALar]:POWer[:DC]"
_FETCH = "FETCh#[:CHANnel#][:SCALar]:POWer[:DC]"
_SENSE = "SENSe#[:CHANnel#]"


@dataclass
class _Window:
    """The last reading: number of its averaging window, and its value."""

    number: int
    watt: float


class MeterSlot(KeysightNode):
    """A port with its photodiode: its parameters, its readings, its log.

    Attributes:
        state: progress of the log.
        continuous: whether it measures all the time, or once for each trigger.
    """

    wavelength = Number(
        f"{_SENSE}:POWer:WAVelength",
        default=1550e-9,
        minimum=1250e-9,
        maximum=1650e-9,
        units=METRES,
    )
    averaging = Number(
        f"{_SENSE}:POWer:ATIMe", default=0.2, minimum=1e-6, maximum=10.0, units=SECONDS
    )
    range = Number(
        f"{_SENSE}:POWer:RANGe[:UPPer]", default=0.0, minimum=-30.0, maximum=10.0, units=DBM
    )
    correction = Number(
        f"{_SENSE}:CORRection[:LOSS][:INPut][:MAGNitude]",
        default=0.0,
        minimum=-200.0,
        maximum=200.0,
        units=DECIBELS,
    )
    points = Number(default=100, minimum=1, maximum=_MOST_POINTS)
    period = Number(default=0.1, minimum=1e-6, maximum=10.0, units=SECONDS)
    automatic = Flag(f"{_SENSE}:POWer:RANGe:AUTO", default=True)
    automatic_gain = Flag(f"{_SENSE}:POWer:GAIN:AUTO", default=True)
    trigger_in = Choice(
        "TRIGger#[:CHANnel#]:INPut",
        default="IGN",
        names=("IGNore", "SMEasure", "CMEasure", "MMEasure"),
    )
    trigger_out = Choice(
        "TRIGger#[:CHANnel#]:OUTPut", default="DIS", names=("DISabled", "AVGover", "MEASure")
    )

    def __init__(
        self, context: DeviceContext, number: int, meter: "SimulatedKeysightN7745a"
    ) -> None:
        super().__init__()
        self.number = number
        self.zero_code = 0
        self._meter = meter
        self._clock = context.clock
        self._truth = context.truth
        self._name = f"{context.spec.name}.{number}"
        self._errors = meter.errors
        self._detector = Detector(self._name, context.chance, Photodiode())
        self.state: LogState = "none"
        self._exposure: Exposure | None = None
        self._completion: Scheduled | None = None
        self._result: bytes | None = None
        self._single: Exposure | None = None
        self._singles: list[float] = []
        self._light = context.light
        context.light.on_arrival(number, self._on_light)
        self.reset()

    def reset(self) -> None:
        """As after switching on: dBm, automatic range, measuring all the time."""
        self.stop()
        self.reset_parameters()
        self.in_watt = False
        self._last: _Window | None = None
        self._measure_continuously(on=True)

    def _on_light(self, at: int) -> None:
        self._detector.lit(at, self._light.level(self.number))

    # ------------------------------------------------------------------------ settings

    def parameter_changed(self, parameter: Parameter[Any]) -> None:
        """Stop a log and begin a new average; triggers may be set without that."""
        if not isinstance(parameter, Choice):
            self._restart()

    def _restart(self) -> None:
        self.stop()
        self._since = self._clock.now()
        self._last = None

    @command(f"{_SENSE}:POWer:RANGe[:UPPer]?")
    def _query_range(self) -> str:
        return keysight_float(self._range_dbm)  # the one in use, not the one that was set

    @command(f"{_SENSE}:POWer:UNIT")
    def _set_unit(self, text: str) -> None:
        self.in_watt = parse_power_unit(text)
        self._restart()

    _query_unit = Query(f"{_SENSE}:POWer:UNIT?", reply=lambda self: f"{int(self.in_watt):+d}")

    @command("INITiate#[:CHANnel#]:CONTinuous")
    def _set_continuous(self, text: str) -> None:
        self._measure_continuously(on=boolean(text))

    @command("INITiate#[:CHANnel#]:CONTinuous?")
    def _query_continuous(self) -> str:
        return str(int(self.continuous))

    def _measure_continuously(self, *, on: bool) -> None:
        self.continuous = on
        self._since = self._clock.now()
        self._last = None

    # ------------------------------------------------------------------------- zeroing

    @command(f"{_SENSE}:CORRection:COLLect:ZERO")
    def _zero(self) -> DelayedReply:
        return self._meter.zero([self])

    @command(f"{_SENSE}:CORRection:COLLect:ZERO:ALL")
    def _zero_all(self) -> DelayedReply:
        return self._meter.zero(self._meter.slots)

    @command(f"{_SENSE}:CORRection:COLLect:ZERO?")
    def _query_zero(self) -> str:
        return str(self.zero_code)

    def take_dark_offset(self) -> None:
        """Take the dark offset, unless there is light; then the last one stays in use."""
        self.zero_code = _ZERO_FAILED if self._detector.level > _TOO_BRIGHT_TO_ZERO_MW else 0
        if self.zero_code == 0:
            self._detector.zero(ZEROING)

    # ------------------------------------------------------------------------ readings

    @property
    def averaging_ns(self) -> int:
        """The averaging time in ns."""
        return round(self.averaging * 1e9)

    def refuse_while_logging(self) -> None:
        """Raise the error of a port that has a log to take instead of readings."""
        if self.state == "running":
            raise ScpiError(*BUSY)
        if self.state != "none":
            raise ScpiError(*_NOT_RUNNING)

    @command(f"{_FETCH}?")
    def _query_fetch(self) -> str:
        self.refuse_while_logging()
        return self._format(self.fetch())

    @command(f"{_READ}?")
    def _query_read(self) -> str | DelayedReply:
        self.refuse_while_logging()
        if self.continuous:
            return self._format(self.fetch())
        exposure = self.expose()
        return DelayedReply(self.averaging_ns, lambda: self._format(self.finish(exposure)))

    @command("INITiate#[:CHANnel#][:IMMediate]")
    def _trigger(self) -> DelayedReply | None:
        armed = [slot for slot in self._meter.slots if slot.state == "armed"]
        if self.continuous:
            raise ScpiError(-213, "Init ignored")
        if armed:  # in logging mode one trigger starts the logs of all slots
            now = self._clock.now()
            for slot in armed:
                slot.trigger_log(now)
            return None
        self.refuse_while_logging()
        exposure = self.expose()

        def finish() -> None:
            self.finish(exposure)

        return DelayedReply(self.averaging_ns, finish)

    @command(f"{_FETCH}:ALL?")
    def _query_fetch_all(self) -> bytes:
        return power_block(self._fetch_all())

    @command(f"{_FETCH}:ALL:CSV?")
    def _query_fetch_csv(self) -> str:
        return ",".join(map(keysight_float, self._fetch_all()))

    def _fetch_all(self) -> list[float]:
        for slot in self._meter.slots:
            slot.refuse_while_logging()
        return [slot.fetch() for slot in self._meter.slots]

    @command(f"{_READ}:ALL?")
    def _query_read_all(self) -> DelayedReply:
        slots = self._meter.slots
        for slot in slots:
            slot.refuse_while_logging()
        exposures = {slot.number: slot.expose() for slot in slots if not slot.continuous}

        def finish() -> bytes:
            return power_block(
                [
                    slot.finish(exposures[slot.number])
                    if slot.number in exposures
                    else slot.fetch()
                    for slot in slots
                ]
            )

        longest = max((slot.averaging_ns for slot in slots if not slot.continuous), default=0)
        return DelayedReply(longest, finish)

    def expose(self) -> Exposure:
        """Begin a triggered measurement."""
        return self._detector.expose(self._clock.now())

    def finish(self, exposure: Exposure) -> float:
        """End a triggered measurement; return its reading in W."""
        self._detector.end(exposure)
        watt = self._watt(float(exposure.means(self.averaging_ns, 1)[0]), self.averaging_ns)
        self._last = _Window(-1, watt)
        return watt

    def fetch(self) -> float:
        """Return the last reading in W; raise `ScpiError` if there is none."""
        if not self.continuous:
            if self._last is None:
                raise ScpiError(*_NOT_RUNNING)
            return self._last.watt
        now, width = self._clock.now(), self.averaging_ns
        number = (now - self._since) // width
        if number == 0:
            self._errors.put(*_NOT_YET)
            return self._watt(self._detector.mean(self._since, now), width)
        # One window gives one reading, however often it is asked for: noise is drawn once.
        if self._last is None or self._last.number != number:
            end = self._since + number * width
            self._last = _Window(number, self._watt(self._detector.mean(end - width, end), width))
        return self._last.watt

    def _format(self, watt: float) -> str:
        return format_power(watt, self._errors, in_watt=self.in_watt)

    def _watt(self, milliwatt: float, averaging: int) -> float:
        upper = self._upper_limit_w(self._range_for(milliwatt))
        if milliwatt * 1e-3 > upper:
            self._errors.put(*_OVER_RANGE)
            return INVALID
        watt = self._detector.reading(
            milliwatt,
            averaging=averaging,
            wavelength_nm=self.wavelength * 1e9,
            full_scale_w=upper,
        )
        return float(np.float32(watt * self._factor))

    @property
    def _range_dbm(self) -> float:
        """The range in use now."""
        return self._range_for(self._detector.level)

    def _range_for(self, milliwatt: float) -> float:
        """Return the range that is set, or the lowest automatic one that fits `milliwatt`."""
        if not self.automatic:
            return 10.0 * round(self.range / 10)
        watt = milliwatt * 1e-3
        for dbm in (-30.0, -20.0, -10.0, 0.0):
            if self._upper_limit_w(dbm) >= watt:
                return dbm
        return 10.0

    @staticmethod
    def _upper_limit_w(range_dbm: float) -> float:
        """19.999 mW in the range of +10 dBm, and so on."""
        return 1.9999e-3 * float(10 ** (range_dbm / 10))

    @property
    def _factor(self) -> float:
        return float(10 ** (self.correction / 10))

    # ----------------------------------------------------------------------------- log

    @command(f"{_SENSE}:FUNCtion:PARameter:LOGGing")
    def _set_log(self, points: str, period: str) -> None:
        if self.state == "running":
            raise ScpiError(*BUSY)
        if self.state != "none":
            raise ScpiError(*FAILED)  # a complete log must be stopped first
        cls = type(self)
        self.points, self.period = cls.points.parse(self, points), cls.period.parse(self, period)
        self._restart()

    @command(f"{_SENSE}:FUNCtion:PARameter:LOGGing?")
    def _query_log(self) -> str:
        return f"{round(self.points):+d},{keysight_float(self.period)}"

    @command(f"{_SENSE}:FUNCtion:STATe")
    def _set_state(self, function: str, verb: str) -> None:
        if function.upper() not in {"LOGG", "LOGGING"}:
            raise ScpiError(*ILLEGAL_VALUE)
        match verb.upper():
            case "STOP":
                self.stop()
            case "STAR" | "START":
                self._start()
            case _:
                raise ScpiError(*ILLEGAL_VALUE)

    _query_state = Query(f"{_SENSE}:FUNCtion:STATe?", reply=lambda self: _STATES[self.state])

    @command(f"{_SENSE}:FUNCtion:RESult?")
    def _query_result(self) -> bytes:
        if self.state != "complete":
            raise ScpiError(*(_NO_FUNCTION if self.state == "none" else BUSY))
        if self._result is None:
            period, points = round(self.period * 1e9), round(self.points)
            exposed = self._exposure
            means = np.array(self._singles) if exposed is None else exposed.means(period, points)
            self._result = self._samples(means)
        return block(self._result)

    def _start(self) -> None:
        """Begin the log, or wait for a trigger where triggers are not ignored."""
        if self.state != "none":
            raise ScpiError(*BUSY)
        self._singles = []
        self.state = "armed"
        if self.trigger_in == "IGN":
            self.begin_log(self._clock.now())

    def trigger_log(self, at: int) -> None:
        """Take a trigger at `at`, which is now: for the whole log, or for its next sample."""
        if self.trigger_in != "SME":
            self.begin_log(at)
            return
        if self._single is not None:
            self._errors.put(*_IGNORED)
            return
        if not self._singles:
            self._log_range = self._range_dbm
            self._truth.note(self._name, "log", up=True, at=Span(at, at))
        self._single = self._detector.expose(at)
        period = round(self.period * 1e9)
        self._completion = self._clock.schedule(at + period, self._name, self._complete_sample)

    def _complete_sample(self) -> None:
        assert self._single is not None
        exposure, self._single = self._single, None
        self._detector.end(exposure)
        self._singles.append(float(exposure.means(round(self.period * 1e9), 1)[0]))
        if len(self._singles) == round(self.points):
            self.state = "complete"

    def begin_log(self, at: int) -> None:
        """Begin an armed log at `at`, which is now."""
        self.state = "running"
        self._log_range = self._range_dbm
        self._exposure = self._detector.expose(at)
        self._truth.note(self._name, "log", up=True, at=Span(at, at))
        duration = round(self.points) * round(self.period * 1e9)
        self._completion = self._clock.schedule(at + duration, self._name, self._complete)

    def stop(self) -> None:
        """Discard the log and its result."""
        if self._completion is not None:
            self._completion.cancel()
        if self.state == "running" and self._exposure is not None:
            self._detector.end(self._exposure)
        if self._single is not None:
            self._detector.end(self._single)
        self.state, self._exposure, self._result = "none", None, None
        self._single, self._singles = None, []

    def _complete(self) -> None:
        assert self._exposure is not None
        self._detector.end(self._exposure)
        self.state = "complete"

    def _samples(self, milliwatt: npt.NDArray[np.float64]) -> bytes:
        """Return the samples as 4-byte floats in Intel's byte order, in the unit that is set."""
        period, upper = round(self.period * 1e9), self._upper_limit_w(self._log_range)
        watt = self._detector.readings(
            milliwatt,
            averaging=period,
            wavelength_nm=self.wavelength * 1e9,
            full_scale_w=upper,
        )
        watt *= self._factor
        if not self.in_watt:
            with np.errstate(invalid="ignore", divide="ignore"):
                watt = np.where(watt > 0, 10 * np.log10(watt * 1e3), INVALID)
        watt[milliwatt * 1e-3 > upper] = INVALID
        return watt.astype("<f4").tobytes()


class SimulatedKeysightN7745a(KeysightDevice):
    """A multiport power meter: N7744A with up to four `channels` in the testbed, else N7745A."""

    channel_type = MeterSlot

    def __init__(self, context: DeviceContext) -> None:
        count = 4 if getattr(context.spec, "channels", 8) <= 4 else 8
        model = "N7744A" if count == 4 else "N7745A"
        identity = f"Keysight Technologies,{model},{context.serial},V1.18"
        self._model = model
        super().__init__(context.spec.name, context.clock, identity)
        self.slots = [MeterSlot(context, number, self) for number in range(1, count + 1)]
        self._zeroing = False

    def channel(self, suffixes: tuple[int, ...]) -> MeterSlot:
        """Return the slot of a number; raise `ScpiError`, also while the meter zeroes itself."""
        if not 1 <= suffixes[0] <= len(self.slots):
            raise ScpiError(*NO_SUCH_SLOT)
        if self._zeroing:
            raise ScpiError(*_ZEROING)
        return self.slots[suffixes[0] - 1]

    _query_options = Query("*OPT?", reply=lambda self: ",".join([self._model] * len(self.slots)))

    @command("SLOT#:HEAD#?")
    def _query_head(self) -> str:
        """Return the identity of a slot's head; here that of the meter (a guess)."""
        return self.identity

    _query_trigger_configuration = Constant("TRIGger#:CONFiguration?", reply="DEF")

    @command("SYSTem:PRESet")
    def reset(self) -> None:
        """Reset every slot."""
        for slot in self.slots:
            slot.reset()

    def zero(self, slots: Sequence[MeterSlot]) -> DelayedReply:
        """Take the dark offsets of `slots`."""

        def finish() -> None:
            self._zeroing = False
            for slot in slots:
                slot.take_dark_offset()

        for slot in slots:
            slot.refuse_while_logging()
        self._zeroing = True
        return DelayedReply(ZEROING, finish)

    @command(f"{_SENSE}:CORRection:COLLect:ZERO:ALL?")
    def _query_zero_all(self) -> str:
        return str(sum(slot.zero_code << 4 * (slot.number - 1) for slot in self.slots))

    @command(f"{_FETCH}:ALL:CONFig?", f"{_READ}:ALL:CONFig?")
    def _query_layout(self) -> bytes:
        return slot_block([slot.number for slot in self.slots])
