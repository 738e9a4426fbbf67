"""Answers like a Keysight N7776C tunable laser source; knows nothing of any driver.

Commands are those that PyMeasure's driver and the SOURce subsystem of the N77xx Programming
Guide use. Ranges, times and errors are chosen, not taken from a data sheet. A sweep takes its
time and moves the wavelength; lambda logging is left out.
"""

import math
from collections.abc import Callable, Mapping

from instruments.clock import Scheduled
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ILLEGAL_VALUE,
    MISSING_PARAMETER,
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    one,
)
from instruments.simulated.scpi_values import (
    DBM,
    METRES,
    WATTS,
    Choice,
    Setting,
    boolean,
    keysight_float,
    number_and_unit,
)

PASSWORD = "1234"  # noqa: S105 - the lock that every unit leaves the factory with
LASER_ON = 500_000_000
"""From the command until there is light, in ns."""
LASER_OFF = 1_000_000
TUNING = 200_000_000
"""How long tuning takes at least, in ns; a nanometre more takes 5 ms more."""
TUNING_PER_NM = 5_000_000
LEVEL_DB = 0.05
"""Standard deviation of the difference between the power that is set and the one that is so."""
STABILITY_DB = 0.005
"""Standard deviation of that difference from one setting to the next."""

_NM = 1e-9
_LOCKED = (-200, "Execution error (StatExecError)")


class KeysightN7776cPeer:
    """A tunable laser, channel 1 of the testbed; off and unlocked when it is switched on."""

    def __init__(self, around: Surroundings) -> None:
        self._name = around.spec.name
        self._clock = around.clock
        self._light = around.light
        self._draws = around.chance.stream(f"{self._name}/level")
        self._error_db = LEVEL_DB * self._draws.normal()
        self.wavelength = Setting(1550 * _NM, 1480 * _NM, 1620 * _NM, METRES)
        self.level = Setting(0.0, -10.0, 12.0, DBM)
        self.start = Setting(1480 * _NM, 1480 * _NM, 1620 * _NM, METRES)
        self.stop = Setting(1620 * _NM, 1480 * _NM, 1620 * _NM, METRES)
        self.step = Setting(1 * _NM, 1e-13, 140 * _NM, METRES)
        self.speed = Setting(
            50 * _NM, 0.5 * _NM, 200 * _NM, {"": 1.0, "M/S": 1.0, "NM/S": 1e-9, "PM/S": 1e-12}
        )
        self._in_watt = False
        self._on = False
        self._locked = False
        self._sweeping: Scheduled | None = None
        self.commands = ScpiCommands(
            f"Keysight Technologies,N7776C,{around.serial},V2.01",
            reset=self._reset,
            errors=ErrorQueue(30),
        )
        self._understand()

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket."""
        return {"scpi": self.session}

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        return ScpiDialogue(connection, self._clock, f"{self._name}#{index:04d}", self.commands)

    def _reset(self) -> None:
        for setting in (
            self.wavelength,
            self.level,
            self.start,
            self.stop,
            self.step,
            self.speed,
        ):
            setting.reset()
        self._end_sweep()
        self._in_watt, self._on = False, False
        self._shine()

    def _shine(self) -> None:
        if self._on:
            dbm = self.level.value + self._error_db + STABILITY_DB * self._draws.normal()
            milliwatt = 10 ** (dbm / 10)
        else:
            milliwatt = 0.0
        self._light.emit(1, milliwatt, self._clock.now())

    def _understand(self) -> None:
        add, head = self.commands.add, "SOURce#[:CHANnel#]:"
        add("LOCK", self._lock)
        add("LOCK?", lambda _: str(int(self._locked)))
        for switch in (f"{head}POWer:STATe", "OUTPut#[:CHANnel#][:STATe]"):
            add(switch, self._switch)
            add(f"{switch}?", lambda _: str(int(self._on)))
        for unit in (f"{head}POWer:UNIT", "OUTPut#[:CHANnel#]:POWer:UNit"):
            add(unit, self._set_unit)
            add(f"{unit}?", lambda _: f"{int(self._in_watt):+d}" if self._in_watt else "0")
        add(f"{head}POWer[:LEVel][:IMMediate][:AMPLitude]", self._set_level)
        add(f"{head}POWer[:LEVel][:IMMediate][:AMPLitude]?", self._get_level)
        for wavelength in ("WAVelength", "WAVelength:CW", "WAVelength:FIXED"):
            add(f"{head}{wavelength}", self._tune)
            add(f"{head}{wavelength}?", lambda request: self.wavelength.answer(request.arguments))
        Choice("IGN", ("IGNore", "NEXT", "SWS")).offer(self.commands, "TRIGger#[:CHANnel#]:INPut")
        Choice("DIS", ("DISabled", "STF", "SWF", "SWST")).offer(
            self.commands, "TRIGger#[:CHANnel#]:OUTPut"
        )
        self._understand_sweeps(f"{head}WAVelength:SWEep")
        add("SYSTem:PRESet", lambda _: self._reset())

    def _understand_sweeps(self, sweep: str) -> None:
        settings = {
            "STARt": self.start,
            "STOP": self.stop,
            "STEP[:WIDTh]": self.step,
            "SPEed": self.speed,
        }
        for word, setting in settings.items():
            setting.offer(self.commands, f"{sweep}:{word}")
        Choice("STEP", ("STEPped", "MANual", "CONTinuous")).offer(self.commands, f"{sweep}:MODE")
        Choice("ONEW", ("ONEWay", "TWOWay")).offer(self.commands, f"{sweep}:REPeat")
        Choice("0", ("0", "1")).offer(self.commands, f"{sweep}:LLOGging")
        self.commands.add(f"{sweep}:CHECkparams?", lambda _: self._checked())
        self.commands.add(f"{sweep}[:STATe]", self._sweep)
        self.commands.add(f"{sweep}[:STATe]?", lambda _: f"+{int(self._sweeping is not None)}")

    # -------------------------------------------------------------------------- light

    def _lock(self, request: ScpiRequest) -> None:
        if len(request.arguments) != 2:
            raise ScpiError(*MISSING_PARAMETER)
        if request.arguments[1] != PASSWORD:
            raise ScpiError(*ILLEGAL_VALUE)
        self._locked = boolean(request.arguments[0])
        if self._locked and self._on:
            self._on = False
            self._shine()

    def _switch(self, request: ScpiRequest) -> Later:
        on = boolean(one(request))
        if on and self._locked:
            raise ScpiError(*_LOCKED)
        return Later(LASER_ON if on and not self._on else LASER_OFF, None, self._then(on=on))

    def _then(self, *, on: bool) -> Callable[[], None]:
        def then() -> None:
            self._on = on
            self._shine()

        return then

    def _set_unit(self, request: ScpiRequest) -> None:
        text = one(request).upper()
        self._in_watt = text in {"W", "WATT"} or (text != "DBM" and boolean(text))

    def _set_level(self, request: ScpiRequest) -> None:
        text = one(request).upper()
        if text not in {"MIN", "MAX", "DEF"}:
            value, unit = number_and_unit(text)
            if unit in WATTS or (not unit and self._in_watt):
                milliwatt = value * WATTS[unit or "W"] * 1e3
                if milliwatt <= 0:
                    raise ScpiError(-222, "Data out of range (StatParmTooSmall)")
                text = f"{10 * math.log10(milliwatt):.12G}"
        self.level.set(text)
        self._shine()

    def _get_level(self, request: ScpiRequest) -> str:
        dbm = float(self.level.answer(request.arguments))
        return keysight_float(1e-3 * 10 ** (dbm / 10) if self._in_watt else dbm)

    def _tune(self, request: ScpiRequest) -> Later:
        if self._sweeping is not None:
            raise ScpiError(-284, "Function currently running (StatModuleBusy)")
        before = self.wavelength.value
        self.wavelength.set(one(request))
        way = abs(self.wavelength.value - before) / _NM
        return Later(TUNING + round(way * TUNING_PER_NM))

    # -------------------------------------------------------------------------- sweeps

    def _checked(self) -> str:
        return "368,sweepStop<=sweepStart" if self.stop.value <= self.start.value else "0,OK"

    def _sweep(self, request: ScpiRequest) -> None:
        match one(request).upper():
            case "0" | "STOP":
                self._end_sweep()
            case "1" | "START" | "STAR":
                if self.stop.value <= self.start.value:
                    raise ScpiError(-221, "Settings conflict (StatParmInconsistent)")
                duration = (self.stop.value - self.start.value) / self.speed.value
                at = self._clock.now() + round(duration * 1e9)
                self._sweeping = self._clock.schedule(at, f"{self._name}/sweep", self._swept)
            case _:
                raise ScpiError(*ILLEGAL_VALUE)

    def _swept(self) -> None:
        self.wavelength.value = self.stop.value
        self._sweeping = None

    def _end_sweep(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
