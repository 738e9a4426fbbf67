"""Keysight N7764A variable attenuators."""

from collections.abc import Callable, Sequence

from instruments.capabilities import Identity, PowerReading
from instruments.clock import Clock
from instruments.detected_power import NO_VALUE, dbm, over_range
from instruments.errors import NotDoneError
from instruments.keysight_n77 import MEANINGS
from instruments.registry import Spec
from instruments.scpi_instrument import ScpiInstrument
from instruments.way import Way

_CHANNELS = range(1, 5)
_POLL = 2_000_000
_TOLERANCE_DB = 0.01


class KeysightN7764a:
    """Four attenuators in one box, channels 1 to 4; each has a shutter and a power monitor.

    A channel occupies two slots of the box: channel 2 is slots 3 and 4. The monitors see the
    light behind the attenuator and average all the time, so a reading may be of light up to
    two averaging times old; `window` says so.

    Source: Keysight N77xx Series Programming Guide, edition 7.

    Args:
        name: the attenuator's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        wavelength_nm: what the filters are corrected for (option `wavelength`), None to leave
            them as they are.
        floor: least power that a monitor reports, in dBm (option `floor`; -50 is a guess).
        patience: how long a change may take, in ns (option `patience`, in s); a slow
            transition speed may need more.
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "KeysightN7764a":
        """The driver of the attenuator that `spec` describes."""
        options = spec.options
        wavelength = options.get("wavelength")
        return cls(
            spec.name,
            way,
            clock,
            wavelength_nm=None if wavelength is None else float(wavelength),
            floor=float(options.get("floor", -50)),
            patience=round(float(options.get("patience", 10)) * 1e9),
        )

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        wavelength_nm: float | None = None,
        floor: float = -50,
        patience: int = 10_000_000_000,
    ) -> None:
        self.name = name
        self._wavelength_nm = wavelength_nm
        self._floor = floor
        self._patience = patience
        self._clock = clock
        self._scpi = ScpiInstrument(name, way, clock, meanings=MEANINGS)
        self._corrected: set[int] = set()
        self._averaging: dict[int, int] = {}

    def identity(self) -> Identity:
        """Ask for model, serial number and firmware."""
        return self._scpi.identity()

    def set_attenuation(self, channel: int, decibel: float) -> None:
        """Attenuate by `decibel` on top of the insertion loss, and wait until that is so.

        Raises:
            DeniedError: outside 0 to 45 dB, or no such channel.
            NotDoneError: it took too long, or another value is set then.
        """
        slot = self._slot(channel)
        command = f":INP{slot}:ATT {decibel:.3f}DB"
        self._scpi.do(command)
        self._settle(slot, command)
        now = self.attenuation(channel)
        if abs(now - decibel) > _TOLERANCE_DB:
            raise self._scpi.failed(
                NotDoneError,
                f"said done, but channel {channel} attenuates by {now:g} dB",
                command,
                ("try", "is an offset set, or its power control on?"),
            )

    def attenuation(self, channel: int) -> float:
        """What is set, in dB."""
        return self._scpi.number(f":INP{self._slot(channel)}:ATT?")

    def set_shutter(self, channel: int, *, is_open: bool) -> None:
        """Open the shutter or close it, and wait until that is so; raises `NotDoneError`."""
        slot = self._slot(channel)
        command = f":OUTP{slot}:STAT {int(is_open)}"
        self._scpi.do(command)
        self._settle(slot, command)
        if self.shutter(channel) != is_open:
            raise self._scpi.failed(
                NotDoneError, f"did not move the shutter of channel {channel}", command
            )

    def shutter(self, channel: int) -> bool:
        """Whether the shutter is open."""
        return self._scpi.flag(f":OUTP{self._slot(channel)}:STAT?")

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note attenuation and shutter of `channels`; what it returns puts them back."""
        found = {c: (self.attenuation(c), self.shutter(c)) for c in channels}

        def put_back() -> None:
            for channel, (decibel, is_open) in found.items():
                if not is_open and self.shutter(channel):  # dark first, then less attenuation
                    self.set_shutter(channel, is_open=False)
                if self.attenuation(channel) != decibel:
                    self.set_attenuation(channel, decibel)
                if is_open and not self.shutter(channel):
                    self.set_shutter(channel, is_open=True)

        return put_back

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Power behind the attenuators of `ports` (dBm), as their monitors saw it last."""
        slots = {port: self._slot(port) for port in ports}
        for slot in slots.values():
            if slot not in self._averaging:
                seconds = self._scpi.number(f":OUTP{slot}:ATIM?")
                self._averaging[slot] = round(seconds * 1e9)
        command = ":READ:POW:ALL?"
        asked = self._clock.now()
        watts = self._scpi.floats(command, len(_CHANNELS)).tolist()
        answered = self._clock.now()
        for port in ports:
            if abs(watts[port - 1]) > NO_VALUE:
                raise over_range(self._scpi, command, port, "attenuate more")
        self._scpi.object_if_told(command)
        window = 2 * max(self._averaging[slot] for slot in slots.values())
        shown = {port: dbm(watts[port - 1], self._floor) for port in ports}
        return PowerReading(asked, answered, window, shown)

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _slot(self, channel: int) -> int:
        """The first slot of a channel, corrected for the wavelength; raises `DeniedError`."""
        if channel not in _CHANNELS:
            raise self._scpi.cannot(f"no channel {channel}; there are 1 to 4")
        slot = 2 * channel - 1
        if self._wavelength_nm is not None and slot not in self._corrected:
            self._scpi.do(f":INP{slot}:WAV {self._wavelength_nm:.4f}NM")
            self._corrected.add(slot)
        return slot

    def _settle(self, slot: int, command: str) -> None:
        late = self._clock.now() + self._patience
        while not self._scpi.flag(f":SLOT{slot}:OPC?"):
            if self._clock.now() > late:
                raise self._scpi.failed(
                    NotDoneError,
                    f"was not done after {self._patience / 1e9:g} s",
                    command,
                    ("try", "is its transition speed low? then say a longer `patience:`"),
                )
            self._clock.sleep(_POLL)
