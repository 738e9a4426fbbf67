"""EXFO PM-1613 high-speed power meters, with one detector."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import PowerReading
from lightrig.instruments.core.detected_power import (
    NoReadingError,
    dbm,
    missing_value,
    no_value,
)
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.instrument import Option, from_milliseconds, line_speed
from lightrig.instruments.core.scpi_instrument import (
    ErrorMeanings,
    RestorableScpiInstrument,
    Setting,
)
from lightrig.instruments.core.wire_facts import WireFact

_ZEROING_TIMEOUT = 60_000_000_000
_READING_TIMEOUT = 5_000_000_000
_POLL = 100_000_000
_READ = "READ:ALL:POW:DC?"
_SYMBOLS = re.compile(r"[*!]{2,}")
"""In place of a power while the meter changes its range."""
_OUT_OF_RANGE = re.compile(r"(\+{2,})|-{2,}")
"""Too much light, or too little, as displays of EXFO's meters have it (IQS-1700)."""


class ExfoPm1613(RestorableScpiInstrument):
    """A bench power meter on GPIB (visa://), a gateway to it (scpi://) or RS-232 (serial://).

    The meter averages a number of measurements before it answers, which may be older than the
    query. While it changes its range it has no power to show; then it is read again. What is below
    `floor` is reported as `floor`.

    Source: EXFO's user manual of the PM-1600 series (structure of commands over GPIB and RS-232,
    SENS:POW:REF:STAT, the error while an acquisition runs), and autolab's driver exfo_PM1613, which
    has all commands here. Symbols in place of a power: autolab's notes of changes, and EXFO's
    manual of the IQS-1700.
    """

    schemes = ("visa", "scpi", "serial")
    wire_facts = (
        WireFact(
            "`SENS:POW:REF:STAT`; SCPI over GPIB and RS-232",
            "EXFO PM-1600 user manual, pages 82 and 147",
            second="autolab's driver exfo_PM1613",
        ),
        WireFact(
            "`READ:ALL:POW:DC?`, `SENS:POW:WAVE`, `SENS:POW:UNIT`, `SENS:POW:RANG:AUTO`, "
            "`SENS:AVER:STAT`, `SENS:AVER:COUN`, `SENS:CORR:COLL:ZERO`; stars while it changes "
            "its range",
            "autolab's driver exfo_PM1613",
        ),
        WireFact("plus and minus signs in place of a power", "EXFO IQS-1700 user manual, page 63"),
        WireFact("duration of one measurement (option); speed of a serial line (option)"),
        WireFact("least power that is reported (option)"),
    )
    error_meanings: ClassVar[ErrorMeanings] = {
        -104: ("the value is none that the command takes", "is it a wavelength in nm?"),
        -113: ("this meter does not know the command", "is the model in the testbed file right?"),
        -222: ("the value is outside the detector's range", "query it without a value"),
    }
    channels = range(1, 2)
    baud = line_speed(9600)
    floor = Option(float, -70.0, "least power that is reported, in dBm (by the detector)")
    sample = Option(
        from_milliseconds,
        250_000,
        "duration of one measurement, in ns; chosen",
        key="sample_ms",
    )
    wavelength = Setting(
        float,
        "SENS:POW:WAVE",
        "wavelength",
        unit="nm",
        argument="{:.2f}",
        tolerance=0.01,
        verified=True,
        advice="is it within the detector's spectral range?",
    )
    averaged = Setting(
        bool, "SENS:AVER:STAT", "averaging", argument="{:d}", written=("0", "1"), verified=True
    )
    averages = Setting(
        float,
        "SENS:AVER:COUN",
        "number of averages",
        unit="measurements",
        argument="{:.0f}",
        verified=True,
        advice="does the meter average so many?",
    )
    unverified: ClassVar[Mapping[str, str]] = {
        "SENS:POW:RANG:AUTO 1": "a range that does not fit shows no power, which is an error",
        "SENS:POW:REF:STAT 0": "0 or 1, and a refused value stands in the error queue",
        "SENS:POW:UNIT W": "W or DBM, and a refused word stands in the error queue",
    }

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._window: int | None = None

    def restored(self) -> None:
        """Forget the averaging window, which may be another one now."""
        self._window = None

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set wavelength (nm) and averaging (ns, rounded up to measurements), automatic range.

        Raises `DeniedError` for what the detector cannot do.
        """
        for channel in channels:
            self.address_of(channel)
        self.wavelength.set(wavelength_nm)
        self.write("SENS:POW:RANG:AUTO 1")
        if averaging is not None:
            count = max(math.ceil(averaging / self.sample), 1)
            if count > 1:
                self.averages.set(count)
            self.averaged.set(count > 1)
        self._configure()

    def zero(self, channels: Sequence[int]) -> None:
        """Take the detector's dark offset; raises `DeniedError` where the meter refuses."""
        for channel in channels:
            self.address_of(channel)
        self.write("SENS:CORR:COLL:ZERO", _ZEROING_TIMEOUT)

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power on the detector (dBm), over the averaging time that is set."""
        for port in ports:
            self.address_of(port)
        window = self._configure() if self._window is None else self._window
        asked, deadline = self.clock.now(), self.clock.now() + _READING_TIMEOUT + 2 * window
        while _SYMBOLS.fullmatch(shown := self.query(_READ, _READING_TIMEOUT + window).strip()):
            if self.clock.now() > deadline:
                problem = f"shows no power on channel 1: it answers {shown}"
                advice = ("try", "is its range stable? a steadier light, or no automatic range")
                raise self.failed(NoReadingError, problem, _READ, advice)
            self.clock.sleep(_POLL)
            asked = self.clock.now()
        if signs := _OUT_OF_RANGE.fullmatch(shown):
            watt = math.inf if signs[1] else -math.inf
        else:
            try:
                watt = float(shown)
            except ValueError:
                raise self.garbled(_READ, shown, "power") from None
        if missing_value(watt) is not None:
            raise no_value(self, _READ, 1, watt, "attenuate")
        answered = self.clock.now()
        return PowerReading(
            asked, answered, window, {port: dbm(watt, self.floor) for port in ports}
        )

    def _configure(self) -> int:
        """Have readings be absolute and in watt; return over how many ns they average."""
        self.write("SENS:POW:REF:STAT 0")
        self.write("SENS:POW:UNIT W")
        count = round(self.averages.get()) if self.averaged.get() else 1
        self._window = count * self.sample
        return self._window
