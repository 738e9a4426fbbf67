"""Thorlabs PM100D, PM100USB and PM400 power meters, with one sensor."""

import math
from collections.abc import Callable, Sequence

from instruments.capabilities import Identity, PowerReading
from instruments.clock import Clock
from instruments.detected_power import NO_VALUE, dbm, over_range
from instruments.errors import NotDoneError
from instruments.registry import Spec
from instruments.scpi_instrument import Meanings, ScpiInstrument
from instruments.way import Way

_PATIENCE = 5_000_000_000
_ZEROING = 60_000_000_000
_POLL = 100_000_000
_POWER_SENSOR = 1
_KEPT = ("SENS:CORR:WAV", "SENS:AVER:COUN")

_MEANINGS: Meanings = {
    -113: ("this meter does not know the command", "is the model in the testbed file right?"),
    -222: ("the value is outside what the sensor or the console can do", "ask it for MIN and MAX"),
    -230: ("there is no reading yet", "measure first"),
    -241: ("the sensor is missing", "plug it in; the console recognises it by itself"),
}


class ThorlabsPm100d:
    """A power meter with one sensor, channel 1.

    A reading is triggered, so none of its light is older than the question. It averages a
    number of samples of 3 ms each; what is below `floor` is reported as `floor`, too much light
    is an error, never a number.

    Source: the PM100D's SCPI commands as PyMeasure, InstrumentKit and other independent drivers
    use them.

    Args:
        name: the meter's name in the testbed.
        way: how it is reached; the PM100D itself by USB (visa://).
        clock: the bench's clock.
        floor: least power that is reported, in dBm (option `floor`; -60 is a guess, since it
            depends on the sensor).
        sample: how long one sample takes, in ns (option `sample_ms`; 3 ms as several drivers
            say).
        baud: of a serial line (option `baud`; 115200 is a guess).
    """

    schemes = ("visa", "scpi", "serial")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "ThorlabsPm100d":
        """The driver of the meter that `spec` describes."""
        options = spec.options
        return cls(
            spec.name,
            way,
            clock,
            floor=float(options.get("floor", -60)),
            sample=round(float(options.get("sample_ms", 3)) * 1e6),
            baud=int(options.get("baud", 115200)),
        )

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        floor: float = -60,
        sample: int = 3_000_000,
        baud: int = 115200,
    ) -> None:
        self.name = name
        self._floor = floor
        self._sample = sample
        self._clock = clock
        self._scpi = ScpiInstrument(name, way, clock, meanings=_MEANINGS, baud=baud)
        self._window: int | None = None

    def identity(self) -> Identity:
        """Ask for model, serial number and firmware of the console."""
        return self._scpi.identity()

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set wavelength (nm) and averaging (ns, rounded up to samples), automatic range.

        Raises `DeniedError` for what the sensor cannot do, and where there is none.
        """
        self._check(channels)
        self._require_sensor()
        self._scpi.do(f"SENS:CORR:WAV {wavelength_nm:.4f}")
        self._scpi.do("SENS:POW:RANG:AUTO 1")
        if averaging is not None:
            self._scpi.do(f"SENS:AVER:COUN {max(math.ceil(averaging / self._sample), 1)}")
        self._learn()

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note wavelength and averaging; what it returns puts them back."""
        self._check(channels)
        found = {setting: self._scpi.number(f"{setting}?") for setting in _KEPT}

        def put_back() -> None:
            for setting, value in found.items():
                if self._scpi.number(f"{setting}?") != value:
                    self._scpi.do(f"{setting} {value:g}")
            self._window = None

        return put_back

    def zero(self, channels: Sequence[int]) -> None:
        """Take the sensor's dark offset; raises `NotDoneError`."""
        self._check(channels)
        command, late = "SENS:CORR:COLL:ZERO:INIT", self._clock.now() + _ZEROING
        self._scpi.do(command)
        while self._scpi.flag("SENS:CORR:COLL:ZERO:STAT?"):
            if self._clock.now() > late:
                raise self._scpi.failed(
                    NotDoneError, f"was still zeroing after {_ZEROING / 1e9:g} s", command
                )
            self._clock.sleep(_POLL)
        for code, text in self._scpi.objections():
            raise self._scpi.failed(
                NotDoneError,
                "could not take the sensor's dark offset",
                command,
                ("answered", f"{code} {text}"),
                ("try", "cap the sensor: is there light on it?"),
            )

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Power on the sensor (dBm), over the averaging time that is set."""
        self._check(ports)
        window = self._window
        if window is None:
            self._require_sensor()
            window = self._learn()
        asked = self._clock.now()
        watt = self._scpi.number("READ?", _PATIENCE + 2 * window)
        answered = self._clock.now()
        if abs(watt) > NO_VALUE:
            raise over_range(self._scpi, "READ?", 1, "attenuate, or use a sensor for more power")
        return PowerReading(
            asked, answered, window, {port: dbm(watt, self._floor) for port in ports}
        )

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _check(self, channels: Sequence[int]) -> None:
        if unknown := sorted(set(channels) - {1}):
            raise self._scpi.cannot(f"no channel {unknown[0]}; there is only 1")

    def _require_sensor(self) -> None:
        query = "SYST:SENS:IDN?"
        answer = self._scpi.ask(query)
        if answer.lower().startswith("no sensor"):
            raise self._scpi.cannot(answer, advice="plug a sensor in")
        flags = answer.rpartition(",")[2].strip()
        if not flags.isdigit():
            raise self._scpi.garbled(query, answer, "description of a sensor")
        if not int(flags) & _POWER_SENSOR:
            raise self._scpi.cannot(
                "its sensor does not measure power", answer, "plug in one that does"
            )

    def _learn(self) -> int:
        """Let readings be of power and in watt, and ask over what they average, in ns."""
        self._scpi.do("CONF:POW")
        self._scpi.do("SENS:POW:UNIT W")
        self._window = round(self._scpi.number("SENS:AVER:COUN?")) * self._sample
        return self._window
