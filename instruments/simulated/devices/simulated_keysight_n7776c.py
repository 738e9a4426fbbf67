"""Simulated Keysight N7776C tunable laser source.

Commands are those that PyMeasure's driver and the SOURce subsystem of the N77xx Programming
Guide use. Ranges, times and errors are chosen, not taken from a data sheet. A sweep takes its
time and moves the wavelength; a logged one leaves a wavelength for each step.
"""

import math
import struct

from lightrig.instruments.clock import Scheduled
from lightrig.instruments.simulated.devices.keysight_lightwave import (
    BUSY,
    CONFLICT,
    FAILED,
    KeysightDevice,
    keysight_float,
    parse_power_unit,
)
from lightrig.instruments.simulated.protocols.commands import Query, command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, block
from lightrig.instruments.simulated.protocols.scpi_values import (
    DBM,
    ILLEGAL_VALUE,
    METRES,
    WATTS,
    Choice,
    Flag,
    Number,
    Range,
    ScpiError,
    boolean,
    number_and_unit,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import InstrumentSpec

PASSWORD = "1234"  # noqa: S105 - the lock that every unit leaves the factory with
LASER_ON = 500_000_000
"""Time from the command to light, in ns."""
LASER_OFF = 1_000_000
TUNING = 200_000_000
"""Least time of tuning, in ns; each nanometre takes 5 ms more."""
TUNING_PER_NM = 5_000_000
LEVEL_DB = 0.05
"""Standard deviation of the difference between set and true power."""
STABILITY_DB = 0.01 / math.sqrt(3)
"""Standard deviation of that difference from one setting to the next: within ±0.01 dB."""

FLATNESS_DB_PER_NM = 0.001
"""Standard deviation of the slope of its power error, around 1550 nm (chosen)."""

_NM = 1e-9
_SWEEP = "SOURce#[:CHANnel#]:WAVelength:SWEep"


class SimulatedKeysightN7776c(KeysightDevice):
    """A tunable laser, channel 1 of the testbed; off and unlocked when it is switched on."""

    wavelength = Number(
        default=1550 * _NM, minimum=1480 * _NM, maximum=1620 * _NM, units=METRES
    )  # tuning takes time: it has commands of its own
    level = Number(default=0.0, minimum=-10.0, maximum=12.0, units=DBM)
    start = Number(
        f"{_SWEEP}:STARt",
        default=1480 * _NM,
        minimum=1480 * _NM,
        maximum=1620 * _NM,
        units=METRES,
    )
    stop = Number(
        f"{_SWEEP}:STOP",
        default=1620 * _NM,
        minimum=1480 * _NM,
        maximum=1620 * _NM,
        units=METRES,
    )
    step = Number(
        f"{_SWEEP}:STEP[:WIDTh]", default=1 * _NM, minimum=1e-13, maximum=140 * _NM, units=METRES
    )
    speed = Number(
        f"{_SWEEP}:SPEed",
        default=50 * _NM,
        minimum=0.5 * _NM,
        maximum=200 * _NM,
        units={"": 1.0, "M/S": 1.0, "NM/S": 1e-9, "PM/S": 1e-12},
    )
    mode = Choice(f"{_SWEEP}:MODE", default="STEP", names=("STEPped", "MANual", "CONTinuous"))
    repeat = Choice(f"{_SWEEP}:REPeat", default="ONEW", names=("ONEWay", "TWOWay"))
    logging = Flag(f"{_SWEEP}:LLOGging", default=False)
    trigger_in = Choice("TRIGger#[:CHANnel#]:INPut", default="IGN", names=("IGNore", "NEXT", "SWS"))
    trigger_out = Choice(
        "TRIGger#[:CHANnel#]:OUTPut", default="DIS", names=("DISabled", "STF", "SWF", "SWST")
    )

    def __init__(self, context: DeviceContext) -> None:
        identity = f"Keysight Technologies,N7776C,{context.serial},V2.01"
        super().__init__(context.spec.name, context.clock, identity)
        # A sweep keeps the limits of the class.
        self._range = type(self).wavelength.range
        stated = context.spec.wavelengths if isinstance(context.spec, InstrumentSpec) else None
        if stated is not None:
            middle = (stated.min + stated.max) / 2
            self._range = Range(stated.min * _NM, stated.max * _NM, middle * _NM, METRES)
        self.wavelength = self._range.default
        self._light = context.light
        self._draws = context.chance.stream(f"{self.name}/level")
        self._error_db = LEVEL_DB * self._draws.normal()
        slope = context.chance.stream(f"{self.name}/flatness").normal()
        self._slope_db = FLATNESS_DB_PER_NM * slope
        self._in_watt = False
        self._on = False
        self._locked = False
        self._sweep: Scheduled | None = None
        self._logged: list[float] = []

    @command("SYSTem:PRESet")
    def reset(self) -> None:
        """Set all parameters to their defaults, end a sweep, switch the laser off."""
        self.reset_parameters()
        self.wavelength = self._range.default
        self._end_sweep()
        self._in_watt, self._on = False, False
        self._emit()

    # -------------------------------------------------------------------------- light

    def _emit(self) -> None:
        if self._on:
            dbm = self.level + self._error_db + STABILITY_DB * self._draws.normal()
            dbm += self._slope_db * (self.wavelength / _NM - 1550)
            milliwatt = 10 ** (dbm / 10)
        else:
            milliwatt = 0.0
        self._light.tune(1, self.wavelength / _NM, self.clock.now())
        self._light.emit(1, milliwatt, self.clock.now())

    @command("LOCK")
    def _lock(self, state: str, password: str) -> None:
        if password != PASSWORD:
            raise ScpiError(*ILLEGAL_VALUE)
        self._locked = boolean(state)
        if self._locked and self._on:
            self._on = False
            self._emit()

    _query_lock = Query("LOCK?", reply=lambda self: self._locked)

    @command("SOURce#[:CHANnel#]:POWer:STATe", "OUTPut#[:CHANnel#][:STATe]")
    def _switch(self, text: str) -> DelayedReply:
        on = boolean(text)
        if on and self._locked:
            raise ScpiError(*FAILED)

        def finish() -> None:
            self._on = on
            self._emit()

        return DelayedReply(LASER_ON if on and not self._on else LASER_OFF, finish)

    @command("SOURce#[:CHANnel#]:POWer:STATe?", "OUTPut#[:CHANnel#][:STATe]?")
    def _query_switch(self) -> str:
        return str(int(self._on))

    @command("SOURce#[:CHANnel#]:POWer:UNIT", "OUTPut#[:CHANnel#]:POWer:UNit")
    def _set_unit(self, text: str) -> None:
        self._in_watt = parse_power_unit(text)

    @command("SOURce#[:CHANnel#]:POWer:UNIT?", "OUTPut#[:CHANnel#]:POWer:UNit?")
    def _query_unit(self) -> str:
        return "+1" if self._in_watt else "0"

    @command("SOURce#[:CHANnel#]:POWer[:LEVel][:IMMediate][:AMPLitude]")
    def _set_level(self, text: str) -> None:
        level = type(self).level
        if level.range.named(text) is None:
            value, unit = number_and_unit(text)
            if unit in WATTS or (not unit and self._in_watt):
                milliwatt = value * WATTS[unit or "W"] * 1e3
                if milliwatt <= 0:
                    raise self.out_of_range(too_large=False)
                text = f"{10 * math.log10(milliwatt):.12G}"
        self.level = level.parse(self, text)
        self._emit()

    @command("SOURce#[:CHANnel#]:POWer[:LEVel][:IMMediate][:AMPLitude]?")
    def _query_level(self, *limit: str) -> str:
        dbm = float(type(self).level.query(self, limit))
        return keysight_float(1e-3 * 10 ** (dbm / 10) if self._in_watt else dbm)

    @command(*(f"SOURce#[:CHANnel#]:WAVelength{word}" for word in ("", ":CW", ":FIXED")))
    def _tune(self, text: str) -> DelayedReply:
        if self._sweep is not None:
            raise ScpiError(*BUSY)
        before = self.wavelength
        self.wavelength = self._range.parse(self, text)
        self._light.tune(1, self.wavelength / _NM, self.clock.now())
        return DelayedReply(TUNING + round(abs(self.wavelength - before) / _NM * TUNING_PER_NM))

    @command(*(f"SOURce#[:CHANnel#]:WAVelength{word}?" for word in ("", ":CW", ":FIXED")))
    def _query_wavelength(self, *limit: str) -> str:
        return self._range.query(self, self.wavelength, limit)

    # -------------------------------------------------------------------------- sweeps

    @command(f"{_SWEEP}:CHECkparams?")
    def _query_check(self) -> str:
        return "368,sweepStop<=sweepStart" if self.stop <= self.start else "0,OK"

    @command(f"{_SWEEP}[:STATe]?")
    def _query_sweep(self) -> str:
        return f"+{int(self._sweep is not None)}"

    @command(f"{_SWEEP}[:STATe]")
    def _set_sweep(self, text: str) -> None:
        match text.upper():
            case "0" | "STOP":
                self._end_sweep()
            case "1" | "START" | "STAR":
                if self.stop <= self.start:
                    raise ScpiError(*CONFLICT)
                duration = (self.stop - self.start) / self.speed
                at = self.clock.now() + round(duration * 1e9)
                self._sweep = self.clock.schedule(at, f"{self.name}/sweep", self._complete_sweep)
            case _:
                raise ScpiError(*ILLEGAL_VALUE)

    @command("SOURce#[:CHANnel#]:READout:POINts?")
    def _query_points(self, function: str) -> str:
        self._check_function(function)
        return f"{len(self._logged):+d}"

    @command("SOURce#[:CHANnel#]:READout:DATA?")
    def _query_logged(self, function: str) -> bytes:
        """Return the wavelengths in m, as 8-byte floats in Intel's byte order."""
        self._check_function(function)
        return block(struct.pack(f"<{len(self._logged)}d", *self._logged))

    def _check_function(self, function: str) -> None:
        if function.upper() not in {"LLOG", "LLOGGING"}:
            raise ScpiError(*ILLEGAL_VALUE)

    def _complete_sweep(self) -> None:
        if self.logging:
            count = math.floor((self.stop - self.start) / self.step + 1e-6) + 1
            self._logged = [self.start + number * self.step for number in range(count)]
        self.wavelength = self.stop
        self._light.tune(1, self.wavelength / _NM, self.clock.now())
        self._sweep = None

    def _end_sweep(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
