"""Keysight N7776C tunable laser sources, and those in 816x mainframes."""

import math
from collections.abc import Callable, Sequence

from instruments.capabilities import Identity
from instruments.clock import Clock
from instruments.errors import NotDoneError
from instruments.keysight_n77 import MEANINGS
from instruments.registry import Spec
from instruments.scpi_instrument import Meanings, ScpiInstrument
from instruments.way import Way

_TAKES = 30_000_000_000
_TOLERANCE_NM = 0.01
_TOLERANCE_DB = 0.001
_MEANINGS: Meanings = {
    **MEANINGS,
    -200: (
        "its state does not allow this: is the laser locked?",
        "unlock it at its front panel or viewer; this program does not override a safety lock",
    ),
    -284: ("a wavelength sweep is running", "stop it, or wait for its end"),
}


class KeysightN7776c:
    """A tunable laser with one output, channel 1; its light is off until it is switched on.

    Source: PyMeasure's driver of the N7776C uses these commands, and the N77xx Series
    Programming Guide, edition 7, has them for the N7711A and N7714A.

    Args:
        name: the source's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        launch_max_dbm: the greatest power that the testbed allows it to launch (`launch:`),
            None for the instrument's own limit.
        slot: where the laser is; 0 is the N7776C's own (option `slot`).
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "KeysightN7776c":
        """The driver of the source that `spec` describes."""
        launch_max = getattr(spec, "launch_max_dbm", None)
        slot = int(spec.options.get("slot", 0))
        return cls(spec.name, way, clock, launch_max_dbm=launch_max, slot=slot)

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        launch_max_dbm: float | None = None,
        slot: int = 0,
    ) -> None:
        self.name = name
        self._launch_max_dbm = launch_max_dbm
        self._source = f":SOUR{slot}"
        self._scpi = ScpiInstrument(name, way, clock, meanings=_MEANINGS)

    def identity(self) -> Identity:
        """Ask for model, serial number and firmware."""
        return self._scpi.identity()

    def set_wavelength(self, channel: int, nanometre: float) -> None:
        """Tune and wait until that is so; raises `DeniedError` or `NotDoneError`."""
        self._check(channel)
        command = f"{self._source}:WAV {nanometre:.4f}NM"
        self._scpi.do(command, _TAKES)
        found = self._scpi.number(f"{self._source}:WAV?") * 1e9
        if abs(found - nanometre) > _TOLERANCE_NM:
            raise self._scpi.failed(NotDoneError, f"said done, but is at {found:.4f} nm", command)

    def set_power(self, channel: int, dbm: float) -> None:
        """Set the launched power in dBm; raises `DeniedError` for more than is allowed."""
        self._check(channel)
        limit = self._launch_max_dbm
        if limit is not None and dbm > limit:
            raise self._scpi.cannot(
                f"{dbm:g} dBm is more than the testbed allows",
                f"`launch: {{max: {limit:g} dBm}}` stands in the testbed file",
                "ask for less, or state what the fibers and receivers behind it can take",
            )
        self._scpi.do(f"{self._source}:POW {dbm:.3f}DBM")

    def set_emission(self, channel: int, *, on: bool) -> None:
        """Switch the light on or off and wait until that is so; raises `NotDoneError`."""
        self._check(channel)
        command = f"{self._source}:POW:STAT {int(on)}"
        self._scpi.do(command, _TAKES)
        if self.emission(channel) != on:
            raise self._scpi.failed(
                NotDoneError,
                f"said done, but its light is {'off' if on else 'on'}",
                command,
                ("try", "is its remote interlock closed, is it locked?"),
            )

    def emission(self, channel: int) -> bool:
        """Whether its light is on."""
        self._check(channel)
        return self._scpi.flag(f"{self._source}:POW:STAT?")

    def wavelength(self, channel: int) -> float:
        """What it is tuned to, in nm."""
        self._check(channel)
        return self._scpi.number(f"{self._source}:WAV?") * 1e9

    def power_set(self, channel: int) -> float:
        """The launched power that is set, in dBm, whichever unit the source shows it in."""
        self._check(channel)
        in_watt = self._scpi.number(f"{self._source}:POW:UNIT?") != 0
        shown = self._scpi.number(f"{self._source}:POW?")
        return 10 * math.log10(shown * 1e3) if in_watt else shown

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note wavelength, power and light; what it returns puts them back."""
        found = {c: (self.wavelength(c), self.power_set(c), self.emission(c)) for c in channels}

        def put_back() -> None:
            for channel, (nanometre, dbm, on) in found.items():
                if not on and self.emission(channel):
                    self.set_emission(channel, on=False)
                if abs(self.wavelength(channel) - nanometre) > _TOLERANCE_NM:
                    self.set_wavelength(channel, nanometre)
                if abs(self.power_set(channel) - dbm) > _TOLERANCE_DB:
                    self.set_power(channel, dbm)
                if on and not self.emission(channel):
                    self.set_emission(channel, on=True)

        return put_back

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session; the light stays as it is."""
        self._scpi.close()

    def _check(self, channel: int) -> None:
        if channel != 1:
            raise self._scpi.cannot(f"no channel {channel}; there is only 1")
