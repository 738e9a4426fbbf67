"""Acme PM4: a power meter with four channels."""

from collections.abc import Sequence
from typing import ClassVar

from lightrig.drivers import (
    ErrorMeanings,
    Option,
    PowerReading,
    RestorableScpiInstrument,
    Setting,
    dbm,
)


class AcmePm4(RestorableScpiInstrument):
    """Channels 1 to 4; a reading averages over `averaging`.

    Source: Acme PM4 programming guide, 2nd edition.
    """

    schemes = ("scpi", "visa")
    error_query = ":SYST:ERR?"  # the default; other makers differ
    error_meanings: ClassVar[ErrorMeanings] = {
        -222: ("the value is outside its range", "query its MIN and MAX")
    }
    channels = range(1, 5)  # another one is refused before it is sent
    floor = Option(float, -70.0, "least power that is reported, in dBm")
    wavelength = Setting(
        float, ":SENS{channel}:POW:WAV", "wavelength", unit="nm", argument="{:.3f}NM", scale=1e9
    )
    averaging = Setting(
        float, ":SENS{channel}:POW:ATIM", "averaging", unit="ns", argument="{:.0f}NS", scale=1e9
    )

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set wavelength (nm) and averaging (ns)."""
        for channel in channels:
            self.wavelength.set(wavelength_nm, channel)
            if averaging is not None:
                self.averaging.set(averaging, channel)

    def zero(self, channels: Sequence[int]) -> None:
        """Take the dark offsets, one after another."""
        for channel in channels:
            self.write(f":SENS{channel}:CORR:ZERO")

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power at `ports`, in dBm, one reading after another."""
        window = max(round(self.averaging.get(port)) for port in ports)
        asked = self.clock.now()
        watts = {port: self.query_number(f":READ{port}:POW?") for port in ports}
        shown = {port: dbm(watt, self.floor) for port, watt in watts.items()}
        return PowerReading(asked, self.clock.now(), window, shown)
