"""Simulated Thorlabs PM100D power meter, and its successors, with a photodiode sensor.

Commands are those that several independent drivers use. Not confirmed, and therefore chosen:
its replies without a sensor, and to zeroing with light on the sensor; how long zeroing takes.
"""

import math

from lightrig.instruments.simulated.protocols.commands import Constant, Ignored, command
from lightrig.instruments.simulated.protocols.scpi_device import (
    DelayedReply,
    ErrorQueue,
    ScpiDevice,
)
from lightrig.instruments.simulated.protocols.scpi_status import StatusSubsystem
from lightrig.instruments.simulated.protocols.scpi_values import (
    DECIBELS,
    PLAIN,
    WATTS,
    Choice,
    Flag,
    Number,
    ScpiError,
    ScpiNode,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.detector import Detector, Photodiode
from lightrig.testbeds import LightrigError

SAMPLE = 3_000_000
"""Time of one sample in ns; several drivers state 3 ms."""
ZEROING = 2_000_000_000
GREATEST_W = 3e-3
"""End of the simulated sensor's range."""
NO_VALUE = "9.90000000E+37"
"""Reply for infinity (SCPI-99): here, for too much light."""

_TOO_BRIGHT_TO_ZERO_MW = 1e-5
_LOWEST_RANGE_W = 10e-9
NANOMETRES = {"": 1.0, "NM": 1.0}
POWERS = {**PLAIN, **WATTS}


class PhotodiodeInput(ScpiNode):
    """An input with a photodiode sensor; subclasses name the patterns of its commands.

    Args:
        context: of the instrument.
        number: of the channel, from 1.
        errors: the instrument's error queue.

    Attributes:
        sample: time of one averaged sample, in ns.
        sensor: the reply to the query of the sensor: name, serial number, calibration, type,
            subtype, flags.
    """

    sample: int = SAMPLE
    flags: int = 33
    """Power, and wavelength settable: the mask of PM100D and PM400."""

    wavelength = Number(default=1550.0, minimum=800.0, maximum=1700.0, units=NANOMETRES)
    loss = Number(default=0.0, minimum=-60.0, maximum=60.0, units=DECIBELS)
    count = Number(default=1, minimum=1, maximum=10_000)
    range = Number(default=GREATEST_W, minimum=_LOWEST_RANGE_W, maximum=GREATEST_W, units=POWERS)
    automatic = Flag(default=True)
    unit = Choice(default="W", names=("W", "DBM"))

    def plug(self, context: DeviceContext, number: int, errors: ErrorQueue) -> None:
        """Connect the sensor, or none, to the light of the channel."""
        name = f"{context.spec.name}.{number}"
        self.has_sensor = bool(context.spec.options.get("sensor", True))
        self.sensor = f"S154C,{context.serial},04-Mar-2026,1,2,{self.flags}"
        self.zeroing = False
        self.last: str | None = None
        self._name, self._number, self._errors = name, number, errors
        self._clock, self._light = context.clock, context.light
        diode = Photodiode(noise_w=2e-11, offset_w=5e-10, gain_db=0.1)
        self._detector = Detector(name, context.chance, diode)
        context.light.on_arrival(number, self._on_light)

    def _on_light(self, at: int) -> None:
        self._detector.lit(at, self._light.level(self._number))

    def zero(self) -> None:
        """Begin to take the dark offset; light on the sensor is an error at its end."""

        def finish() -> None:
            self.zeroing = False
            if self._detector.level > _TOO_BRIGHT_TO_ZERO_MW:
                self._errors.put(-200, "Execution error")
            else:
                self._detector.zero(ZEROING)

        self.zeroing = True
        self._clock.schedule(self._clock.now() + ZEROING, f"{self._name}/zero", finish)

    def begin_reading(self) -> DelayedReply:
        """Begin a reading, whose reply comes once its samples are averaged."""
        if not self.has_sensor:
            raise ScpiError(-241, "Hardware missing")
        averaging = round(self.count) * self.sample
        exposure = self._detector.expose(self._clock.now())

        def finish() -> str:
            self._detector.end(exposure)
            self.last = self._format(float(exposure.means(averaging, 1)[0]), averaging)
            return self.last

        return DelayedReply(averaging, finish)

    def fetch(self) -> str:
        """Return the last reading."""
        if self.last is None:
            raise ScpiError(-230, "Data corrupt or stale")
        return self.last

    def _format(self, milliwatt: float, averaging: int) -> str:
        upper = self._upper_w(milliwatt * 1e-3)
        if milliwatt * 1e-3 > upper:
            return NO_VALUE
        watt = self._detector.reading(
            milliwatt,
            averaging=averaging,
            wavelength_nm=self.wavelength,
            full_scale_w=upper,
        )
        watt *= 10 ** (self.loss / 10)
        if self.unit == "W":
            return f"{watt:.8E}"
        return f"{10 * math.log10(watt * 1e3):.8E}" if watt > 0 else f"-{NO_VALUE}"

    def _upper_w(self, watt: float) -> float:
        """Return the end of the range in use; ranges are decades up to the sensor's end."""
        wanted = watt if self.automatic else self.range
        upper = _LOWEST_RANGE_W
        while upper < wanted and upper < GREATEST_W:
            upper *= 10
        return min(upper, GREATEST_W)


CONSOLES = {
    "PM100D": (SAMPLE, 33),
    "PM100D2": (1_000_000, 1 << 31 | 0b101),
    "PM103": (1_000_000, 0b101),
    "PM400": (1_000_000, 33),
}
"""Time of a sample and flags of a photodiode, by console (Thorlabs' command references)."""


class SimulatedThorlabsPm100d(PhotodiodeInput, StatusSubsystem, ScpiDevice):
    """One power meter console, that of the option `console`; PM100D without it.

    Its option `sensor: false` leaves the sensor unplugged.
    """

    schemes = ("scpi", "serial")

    wavelength = Number(
        "[SENSe:]CORRection:WAVelength",
        default=1550.0,
        minimum=800.0,
        maximum=1700.0,
        units=NANOMETRES,
    )
    loss = Number(
        "[SENSe:]CORRection[:LOSS][:INPut][:MAGNitude]",
        default=0.0,
        minimum=-60.0,
        maximum=60.0,
        units=DECIBELS,
    )
    count = Number("[SENSe:]AVERage[:COUNt]", default=1, minimum=1, maximum=10_000)
    range = Number(
        "[SENSe:]POWer[:DC]:RANGe[:UPPer]",
        default=GREATEST_W,
        minimum=_LOWEST_RANGE_W,
        maximum=GREATEST_W,
        units=POWERS,
    )
    automatic = Flag("[SENSe:]POWer[:DC]:RANGe:AUTO", "[SENSe:]RANGe:AUTO", default=True)
    unit = Choice("[SENSe:]POWer[:DC]:UNIT", default="W", names=("W", "DBM"))

    def __init__(self, context: DeviceContext) -> None:
        name, console = context.spec.name, context.spec.options.get("console", "PM100D")
        if console not in CONSOLES:
            known = ", ".join(CONSOLES)
            raise LightrigError(f"{name}: console: found {console!r}, expected one of {known}")
        self.sample, self.flags = CONSOLES[console]
        super().__init__(name, context.clock, f"Thorlabs,{console},{context.serial},2.4.0")
        self.plug(context, 1, self.errors)

    def reset(self) -> None:
        """Set all parameters to their defaults and discard the last reading."""
        super().reset()
        self.last = None

    @command("[SENSe:]AVERage[:COUNt]?")
    def _query_count(self, *limit: str) -> str:
        """Return an integer, as InstrumentKit and others read it."""
        return str(round(float(type(self).count.query(self, limit))))

    _abort = Ignored("ABORt")
    """Do nothing: a measurement ends before the next command is read."""

    @command("SYSTem:SENSor:IDN?")
    def _query_sensor(self) -> str:
        return self.sensor if self.has_sensor else "no sensor"

    @command("[SENSe:]CORRection:COLLect:ZERO[:INITiate]")
    def _begin_zeroing(self) -> None:
        self.zero()

    @command("[SENSe:]CORRection:COLLect:ZERO:STATe?")
    def _query_zeroing(self) -> str:
        return str(int(self.zeroing))

    _ignore = Ignored(
        "CONFigure[:SCALar][:POWer]", "MEASure[:SCALar][:POWer]", "SYSTem:BEEPer[:IMMediate]"
    )
    """Power is all that this sensor measures, and nobody hears the beeper."""

    _query_configuration = Constant("CONFigure?", reply="POW")

    # ------------------------------------------------------------------------ readings

    @command("MEASure[:SCALar][:POWer]?", "READ?")
    def _read(self) -> DelayedReply:
        return self.begin_reading()

    @command("INITiate[:IMMediate]")
    def _trigger(self) -> DelayedReply:
        reading = self.begin_reading()

        def finish() -> None:
            reading.finish()

        return DelayedReply(reading.after, finish)

    @command("FETCh?")
    def _fetch(self) -> str:
        return self.fetch()
