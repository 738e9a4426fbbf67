"""Keysight N7776C tunable laser sources, and those in 816x mainframes."""

import math
from typing import ClassVar

from lightrig.instruments.core.instrument import Option, within
from lightrig.instruments.core.keysight_n77 import MEANINGS
from lightrig.instruments.core.scpi_instrument import (
    ErrorMeanings,
    RestorableScpiInstrument,
    Setting,
)
from lightrig.instruments.core.wire_facts import WireFact

_SETTLING_TIMEOUT = 30_000_000_000


class KeysightN7776c(RestorableScpiInstrument):
    """A tunable laser with one output, channel 1; its emission is off until it is switched on.

    Source: PyMeasure's driver of the N7776C uses these commands, and the N77xx Series
    Programming Guide, edition 7, has them for the N7711A and N7714A.
    """

    schemes = ("scpi", "visa")
    shares_address = True
    wire_facts = (
        WireFact("commands", "PyMeasure; Keysight N77xx Programming Guide, edition 7, for N7711A"),
    )
    error_meanings: ClassVar[ErrorMeanings] = {
        **MEANINGS,
        -200: (
            "its state does not allow this: is the laser locked?",
            "unlock it at its front panel or viewer; this program does not override a safety lock",
        ),
        -284: ("a wavelength sweep is running", "stop it, or wait for its end"),
    }
    channels = range(1, 2)
    wavelengths_nm = (1480.0, 1620.0)
    """Range of PyMeasure's driver; `wavelengths:` of the file states that of another laser of the
    family, such as one around 1310 nm."""
    launch_max_dbm: Option[float | None] = Option(
        float,
        None,
        "greatest power that the testbed allows (`launch:`), in dBm; None: the laser's limit",
        attribute="launch_max_dbm",
    )
    slot = Option(within(int, 0, 17), 0, "slot of the laser; 0 is the N7776C's")
    wavelength_setting = Setting(
        float,
        ":SOUR{driver.slot}:WAV",
        "wavelength",
        unit="nm",
        argument="{:.4f}NM",
        scale=1e9,
        tolerance=0.01,
        timeout=_SETTLING_TIMEOUT,
        verified=True,
    )

    def _read_power(self, channel: int) -> float:
        """Return the power setting in dBm, in whichever unit the laser shows it."""
        in_watt = self.query_number(f":SOUR{self.slot}:POW:UNIT?") != 0
        shown = self.query_number(f":SOUR{self.slot}:POW?")
        return 10 * math.log10(shown * 1e3) if in_watt else shown

    def _check_power(self, dbm: float) -> None:
        limit = self.launch_max_dbm
        if limit is not None and dbm > limit:
            raise self.refused(
                f"{dbm:g} dBm is more than the testbed allows",
                f"the testbed file has `launch: {{max: {limit:g} dBm}}`",
                "set less, or state what the fibers and receivers behind it can take",
            )

    power_setting = Setting(
        float,
        ":SOUR{driver.slot}:POW",
        "launched power",
        unit="dBm",
        argument="{:.3f}DBM",
        tolerance=0.01,
        verified=True,
        advice="is its attenuator set, or its power limited?",
        read=_read_power,
        light=1,
        check=_check_power,
    )
    emission_setting = Setting(
        bool,
        ":SOUR{driver.slot}:POW:STAT",
        "emission",
        timeout=_SETTLING_TIMEOUT,
        verified=True,
        advice="is its remote interlock closed, is it locked?",
        gates_light=True,
    )

    def set_wavelength(self, channel: int, nanometre: float) -> None:
        """Tune and wait until it is reached; raises `DeniedError` or `NotDoneError`."""
        self.wavelength_setting.set(nanometre, channel)

    def wavelength(self, channel: int) -> float:
        """Return the wavelength that is set, in nm."""
        return self.wavelength_setting.get(channel)

    def set_power(self, channel: int, dbm: float) -> None:
        """Set the launched power in dBm; raises `DeniedError` for more than is allowed."""
        self.power_setting.set(dbm, channel)

    def set_emission(self, channel: int, *, on: bool) -> None:
        """Switch the emission on or off and wait until it is; raises `NotDoneError`."""
        self.emission_setting.set(on, channel)

    def emission(self, channel: int) -> bool:
        """Return whether the emission is on."""
        return self.emission_setting.get(channel)
