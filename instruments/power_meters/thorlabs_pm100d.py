"""Thorlabs PM100D, PM100D2, PM100D3, PM100USB, PM101, PM103 and PM400: one sensor each."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import Identity, PowerReading
from lightrig.instruments.core.detected_power import dbm, missing_value, no_value
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option, from_milliseconds, line_speed
from lightrig.instruments.core.scpi_instrument import (
    ErrorMeanings,
    RestorableScpiInstrument,
    Setting,
)
from lightrig.instruments.core.wire_facts import WireFact

_READING_TIMEOUT = 5_000_000_000
_ZEROING_TIMEOUT = 60_000_000_000
_POLL = 100_000_000
_SAMPLE_NS, _OLD_SAMPLE_NS = 1_000_000, 3_000_000
_NEWER = re.compile(r"PM(100D[23]|10[123]|400|6\d|5020)", re.IGNORECASE)
"""Consoles whose command references say that they take at most 1,000 readings a second."""
_POWER_SENSORS = frozenset({1, 2, 4, 5})
"""Types of sensors of power: photodiode, thermopile, four-quadrant thermopile (4 or 5).

Type 3 is pyroelectric and measures energy. The flags tell it on older consoles alone: bit 0 of the
newer mask (bit 31 set; the PM103 leaves that out) says that a sensor has automatic ranges.
"""


class ThorlabsPm100d(RestorableScpiInstrument):
    """A power meter with one sensor, channel 1; the PM100D is connected by USB (visa://).

    A reading is triggered, so none of its light is older than the query. It averages a number
    of samples, of 3 ms each on a PM100D or PM100USB and of 1 ms on newer consoles; what is below
    `floor` is reported as `floor`, too much light is an error, never a number.

    Source: the PM100D's SCPI commands as PyMeasure, InstrumentKit and other independent drivers
    use them. Types of sensors, and the newer flags of PM100D2, PM100D3 and PM103: Thorlabs' command
    references (Light_Analysis_Examples, commandDocu), and PyMeasure's pull request 1430.

    Attributes:
        numbered: whether commands name the channel, as those of a console of two sensors do.
    """

    schemes: ClassVar[Collection[str]] = ("visa", "scpi", "serial")
    wire_facts: ClassVar[Sequence[WireFact]] = (
        WireFact(
            "commands", "PM100D manual, page 49, as PyMeasure, InstrumentKit and QCoDeS use them"
        ),
        WireFact(
            "1 ms for an averaged sample of PM100D2, PM100D3, PM101 to PM103, PM400, PM60 to PM62",
            "Thorlabs' command references of each",
        ),
        WireFact("3 ms for each averaged sample of others"),
        WireFact("least power that is reported (option); speed of a serial line (option)"),
    )
    shared_options = ("sensor", "console")
    numbered: ClassVar[bool] = False
    error_meanings: ClassVar[ErrorMeanings] = {
        -113: ("this meter does not know the command", "is the model in the testbed file right?"),
        -222: (
            "the value is outside the range of the sensor or the console",
            "query its MIN and MAX",
        ),
        -230: ("there is no reading yet", "measure first"),
        -241: ("the sensor is missing", "plug it in; the console recognises it by itself"),
    }
    channels = range(1, 2)
    baud = line_speed(115_200)
    floor = Option(float, -60.0, "least power that is reported, in dBm (it depends on the sensor)")
    sample: Option[int | None] = Option(
        from_milliseconds,
        None,
        "duration of one averaged sample, in ms; without it 1 or 3, by the console",
        key="sample_ms",
    )
    wavelength = Setting(
        float,
        "SENS:CORR:WAV",
        "wavelength",
        unit="nm",
        argument="{:.4f}",
        tolerance=0.5,  # newer consoles take whole nm
        verified=True,
        advice="does its sensor measure there? query SENS:CORR:WAV? MIN and MAX",
    )
    averages = Setting(
        float,
        "SENS:AVER:COUN",
        "averaging",
        unit="samples",
        argument="{:.0f}",
        verified=False,
        reason="the console may limit it; the window of a reading is the number that it reports",
    )
    unverified: ClassVar[Mapping[str, str]] = {
        "SENS*:POW:RANG:AUTO 1": "a sensor with one range does not take it; what a range does not "
        "show is an error, or reported as the floor",
        "CONF*:POW": "a measurement begins by READ?, whose reply to another quantity is refused: "
        "the sensor measures power",
        "SENS*:POW:UNIT W": "W or DBM: no console is known to coerce it, and a refused word stands "
        "in the error queue, which is read after the command",
    }

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._windows: dict[int, int] = {}
        self._console: str | None = None

    def identity(self) -> Identity:
        """Return manufacturer, model, serial number and firmware."""
        found = super().identity()
        self._console = found.model
        return found

    def restored(self) -> None:
        """Forget the averaging windows, which may be others now."""
        self._windows = {}

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set wavelength (nm) and averaging (ns, rounded up to samples), automatic range.

        Raises `DeniedError` for what the sensor cannot do, and where there is none.
        """
        for channel in channels:
            n = self._suffix(channel)
            self._require_sensor(channel)
            self.wavelength.set(wavelength_nm, channel)
            self.write(f"SENS{n}:POW:RANG:AUTO 1")
            if averaging is not None:
                self.averages.set(max(math.ceil(averaging / self._sample()), 1), channel)
            self._configure(channel)

    def zero(self, channels: Sequence[int]) -> None:
        """Take the sensors' dark offsets, one after the other; raises `NotDoneError`."""
        for channel in channels:
            self._zero(channel)

    def _zero(self, channel: int) -> None:
        n = self._suffix(channel)
        command, late = f"SENS{n}:CORR:COLL:ZERO:INIT", self.clock.now() + _ZEROING_TIMEOUT
        self.write(command)
        while self.query_bool(f"SENS{n}:CORR:COLL:ZERO:STAT?"):
            if self.clock.now() > late:
                raise self.failed(
                    NotDoneError, f"was still zeroing after {_ZEROING_TIMEOUT / 1e9:g} s", command
                )
            self.clock.sleep(_POLL)
        for code, text in self.read_error_queue():
            raise self.failed(
                NotDoneError,
                "could not take the sensor's dark offset",
                command,
                ("answered", f"{code} {text}"),
                ("try", "cap the sensor: is there light on it?"),
            )

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power on the sensors (dBm), over the averaging times that are set.

        They are read one after the other: the window of the reading is from the first to the last.
        """
        numbers = {port: self._suffix(port) for port in ports}
        for port in ports:
            if port not in self._windows:
                self._require_sensor(port)
                self._configure(port)
        asked, found = self.clock.now(), {}
        for port, n in numbers.items():
            command = f"READ{n}?"
            watt = self.query_number(command, _READING_TIMEOUT + 2 * self._windows[port])
            if missing_value(watt) is not None:
                advice = "attenuate, or use a sensor for more power"
                raise no_value(self, command, port, watt, advice)
            found[port] = dbm(watt, self.floor)
        answered = self.clock.now()
        window = sum(self._windows[port] for port in numbers)
        return PowerReading(asked, answered, window, found)

    def _sample(self) -> int:
        """Return the duration of one averaged sample, in ns."""
        if self.sample is not None:
            return self.sample
        model = self.identity().model if self._console is None else self._console
        return _SAMPLE_NS if _NEWER.match(model) else _OLD_SAMPLE_NS

    def _suffix(self, channel: int) -> str:
        """Return what follows a command's first word; raises `DeniedError` for no channel."""
        number = self.address_of(channel)
        return str(number) if self.numbered else ""

    def _require_sensor(self, channel: int) -> None:
        query = f"SYST:SENS{self._suffix(channel)}:IDN?"
        answer = self.query(query)
        if answer.lower().startswith("no sensor"):
            raise self.refused(answer, advice="plug a sensor in")
        *_, kind, _, flags = ("", "", "", *(field.strip() for field in answer.split(",")))
        if not (kind.isdigit() and flags.isdigit()):
            raise self.garbled(query, answer, "description of a sensor")
        if int(kind) not in _POWER_SENSORS:
            raise self.refused("its sensor does not measure power", answer, "plug in one that does")

    def _configure(self, channel: int) -> None:
        """Have readings be of power and in watt, and note over how many ns they average."""
        n = self._suffix(channel)
        self.write(f"CONF{n}:POW")
        self.write(f"SENS{n}:POW:UNIT W")
        self._windows[channel] = round(self.averages.get(channel)) * self._sample()
