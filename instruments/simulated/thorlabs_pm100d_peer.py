"""Answers like a Thorlabs PM100D with a photodiode sensor; knows nothing of any driver.

Commands are those that several independent drivers use. Not confirmed, and therefore chosen:
what it answers without a sensor, and to zeroing with light on the sensor; how long zeroing takes.
"""

import math
from collections.abc import Mapping

from instruments.simulated.detector import Detector, Photodiode
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ILLEGAL_VALUE,
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    one,
)
from instruments.simulated.scpi_values import WATTS, Setting, boolean, when_done

SAMPLE = 3_000_000
"""How long one sample takes, in ns; several drivers say 3 ms."""
ZEROING = 2_000_000_000
GREATEST_W = 3e-3
"""The end of the simulated sensor's range."""
NO_VALUE = "9.90000000E+37"
"""What SCPI-99 lets instruments answer for infinity: here, for too much light."""

_TOO_BRIGHT_TO_ZERO_MW = 1e-5
_NO_SENSOR = (-241, "Hardware missing")
_LOWEST_RANGE_W = 10e-9


class ThorlabsPm100dPeer:
    """One power meter console; its option `sensor: false` leaves the sensor unplugged."""

    def __init__(self, around: Surroundings) -> None:
        name = around.spec.name
        self._name = name
        self._clock = around.clock
        self._light = around.light
        self._serial = around.serial
        self._has_sensor = bool(around.spec.options.get("sensor", True))
        self._detector = Detector(
            f"{name}.1", around.chance, Photodiode(noise_w=2e-11, offset_w=5e-10, gain_db=0.1)
        )
        self.wavelength = Setting(1550.0, 800.0, 1700.0, {"": 1.0, "NM": 1.0}, keysight=False)
        self.count = Setting(1, 1, 10_000, {"": 1.0}, keysight=False)
        self.range = Setting(
            GREATEST_W, _LOWEST_RANGE_W, GREATEST_W, {"": 1.0, **WATTS}, keysight=False
        )
        self._automatic = True
        self._in_watt = True
        self._zeroing = False
        self._last: str | None = None
        around.light.on_arrival(1, self._arrived)
        self.commands = ScpiCommands(
            f"Thorlabs,PM100D,{around.serial},2.4.0", reset=self._reset, errors=ErrorQueue(30)
        )
        self._understand()

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket and on a serial line."""
        return {"scpi": self.session, "serial": self.session}

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        return ScpiDialogue(connection, self._clock, f"{self._name}#{index:04d}", self.commands)

    def _arrived(self, at: int) -> None:
        self._detector.lit(at, self._light.level(1))

    def _reset(self) -> None:
        for setting in (self.wavelength, self.count, self.range):
            setting.reset()
        self._automatic, self._in_watt, self._last = True, True, None

    def _understand(self) -> None:
        add = self.commands.add
        add("SYSTem:SENSor:IDN?", lambda _: self._sensor())
        self.wavelength.offer(self.commands, "[SENSe:]CORRection:WAVelength")
        self.count.offer(self.commands, "[SENSe:]AVERage[:COUNt]")
        self.range.offer(self.commands, "[SENSe:]POWer[:DC]:RANGe[:UPPer]")
        for automatic in ("[SENSe:]POWer[:DC]:RANGe:AUTO", "[SENSe:]RANGe:AUTO"):
            add(automatic, self._set_automatic)
            add(f"{automatic}?", lambda _: str(int(self._automatic)))
        add("[SENSe:]POWer[:DC]:UNIT", self._set_unit)
        add("[SENSe:]POWer[:DC]:UNIT?", lambda _: "W" if self._in_watt else "DBM")
        zero = "[SENSe:]CORRection:COLLect:ZERO"
        add(f"{zero}[:INITiate]", lambda _: self._zero())
        add(f"{zero}:STATe?", lambda _: str(int(self._zeroing)))
        add("CONFigure[:SCALar][:POWer]", lambda _: None)
        add("CONFigure?", lambda _: "POW")
        add("MEASure[:SCALar][:POWer]?", lambda _: self._read())
        add("READ?", lambda _: self._read())
        add("FETCh?", lambda _: self._fetch())
        add("INITiate[:IMMediate]", self._trigger)
        add("SYSTem:BEEPer[:IMMediate]", lambda _: None)

    def _sensor(self) -> str:
        """Name, serial number, calibration, type, subtype, flags (power, wavelength settable)."""
        return f"S154C,{self._serial},04-Mar-2026,1,2,33" if self._has_sensor else "no sensor"

    def _set_automatic(self, request: ScpiRequest) -> None:
        self._automatic = boolean(one(request))

    def _set_unit(self, request: ScpiRequest) -> None:
        text = one(request).upper()
        if text not in {"W", "DBM"}:
            raise ScpiError(*ILLEGAL_VALUE)
        self._in_watt = text == "W"

    def _zero(self) -> None:
        def then() -> None:
            self._zeroing = False
            if self._detector.level > _TOO_BRIGHT_TO_ZERO_MW:
                self.commands.errors.put(-200, "Execution error")
            else:
                self._detector.zero(ZEROING)

        self._zeroing = True
        self._clock.schedule(self._clock.now() + ZEROING, f"{self._name}/zero", then)

    # ------------------------------------------------------------------------ readings

    @property
    def _averaging(self) -> int:
        return round(self.count.value) * SAMPLE

    def _read(self) -> Later:
        if not self._has_sensor:
            raise ScpiError(*_NO_SENSOR)
        averaging, exposure = self._averaging, self._detector.expose(self._clock.now())

        def answer() -> str:
            self._detector.end(exposure)
            self._last = self._shown(float(exposure.means(averaging, 1)[0]), averaging)
            return self._last

        return when_done(averaging, answer)

    def _trigger(self, _: ScpiRequest) -> Later:
        return Later(self._averaging, None, self._read().then)

    def _fetch(self) -> str:
        if self._last is None:
            raise ScpiError(-230, "Data corrupt or stale")
        return self._last

    def _shown(self, milliwatt: float, averaging: int) -> str:
        upper = self._upper_w(milliwatt * 1e-3)
        if milliwatt * 1e-3 > upper:
            return NO_VALUE
        watt = self._detector.reading(
            milliwatt,
            averaging=averaging,
            wavelength_nm=self.wavelength.value,
            full_scale_w=upper,
        )
        if self._in_watt:
            return f"{watt:.8E}"
        return f"{10 * math.log10(watt * 1e3):.8E}" if watt > 0 else f"-{NO_VALUE}"

    def _upper_w(self, watt: float) -> float:
        """The end of the range in use; ranges are decades up to the sensor's end."""
        wanted = watt if self._automatic else self.range.value
        upper = _LOWEST_RANGE_W
        while upper < wanted and upper < GREATEST_W:
            upper *= 10
        return min(upper, GREATEST_W)
