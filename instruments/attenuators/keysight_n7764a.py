"""Keysight N7764A variable attenuators."""

from collections.abc import Sequence
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import PowerReading
from lightrig.instruments.core.detected_power import dbm, missing_value, no_value
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option, from_seconds, within
from lightrig.instruments.core.keysight_n77 import MEANINGS
from lightrig.instruments.core.scpi_instrument import RestorableScpiInstrument, Setting
from lightrig.instruments.core.wire_facts import WireFact

_POLL = 2_000_000
_SAME_NM = 0.01


class KeysightN7764a(RestorableScpiInstrument):
    """Four attenuators in one box, channels 1 to 4; each has a shutter and a power monitor.

    A channel occupies two slots of the box: channel 2 is slots 3 and 4. The monitors see the
    light behind the attenuator and average all the time, so a reading may be of light up to
    two averaging times old; its `window` is that long.

    Source: Keysight N77xx Series Programming Guide, edition 7.
    """

    schemes = ("scpi", "visa")
    wire_facts = (
        WireFact("commands, slots, error codes", "Keysight N77xx Programming Guide, edition 7"),
        WireFact("least power of a monitor, -50 dBm (option)"),
    )
    error_meanings = MEANINGS
    channels = range(1, 5)
    wavelength_nm: Option[float | None] = Option(
        within(float, 800, 1700, "nm"),
        None,
        "wavelength of the filters' correction in nm; None leaves it",
        key="wavelength",
    )
    floor = Option(float, -50.0, "least power that a monitor reports, in dBm")
    change_timeout = Option(
        from_seconds,
        10_000_000_000,
        "how long a change may take, in ns (s in the file); more where the transition speed is low",
        key="timeout",
    )
    attenuation_setting = Setting(
        float,
        ":INP{channel}:ATT",
        "attenuation",
        unit="dB",
        argument="{:.3f}DB",
        tolerance=0.01,
        verified=True,
        light=-1,
        advice="is an offset set, or its power control on?",
    )
    shutter_setting = Setting(
        bool, ":OUTP{channel}:STAT", "shutter", verified=True, gates_light=True
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._corrected: set[int] = set()
        self._averaging: dict[int, int] = {}

    def address_of(self, channel: int) -> int:
        """Return the first slot of `channel`, corrected for the wavelength before its first use.

        Raises `DeniedError` for a channel that does not exist.
        """
        slot = 2 * super().address_of(channel) - 1
        if self.wavelength_nm is not None and slot not in self._corrected:
            command = f":INP{slot}:WAV"
            self.write(f"{command} {self.wavelength_nm:.4f}NM")
            found = self.query_number(f"{command}?") * 1e9
            if abs(found - self.wavelength_nm) > _SAME_NM:
                raise self.failed(
                    NotDoneError,
                    f"accepted {self.wavelength_nm:g} nm as wavelength of channel {channel}, but "
                    f"reports {found:g} nm",
                    command,
                    ("try", "state a `wavelength:` in the range of its filters"),
                )
            self._corrected.add(slot)
        return slot

    def settled(self, channel: int, command: str) -> None:
        """Wait until the slots of `channel` have completed `command`; raises `NotDoneError`."""
        query = f":SLOT{self.address_of(channel)}:OPC?"
        late = self.clock.now() + self.change_timeout
        while not self.query_bool(query):
            if self.clock.now() > late:
                raise self.failed(
                    NotDoneError,
                    f"was not done after {self.change_timeout / 1e9:g} s",
                    command,
                    ("try", "is its transition speed low? then a longer `timeout:`"),
                )
            self.clock.sleep(_POLL)

    def set_attenuation(self, channel: int, decibel: float) -> None:
        """Attenuate by `decibel` in addition to the insertion loss, and wait until it is reached.

        Raises:
            DeniedError: outside 0 to 45 dB, or no such channel.
            NotDoneError: it took too long, or another value is set then.
        """
        self.attenuation_setting.set(decibel, channel)

    def attenuation(self, channel: int) -> float:
        """Return the attenuation that is set, in dB."""
        return self.attenuation_setting.get(channel)

    def set_shutter(self, channel: int, *, is_open: bool) -> None:
        """Open or close the shutter and wait until it has moved; raises `NotDoneError`."""
        self.shutter_setting.set(is_open, channel)

    def shutter(self, channel: int) -> bool:
        """Return whether the shutter is open."""
        return self.shutter_setting.get(channel)

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power behind the attenuators of `ports` (dBm), as their monitors report it."""
        slots = {port: self.address_of(port) for port in ports}
        for slot in slots.values():
            if slot not in self._averaging:
                self._averaging[slot] = round(self.query_number(f":OUTP{slot}:ATIM?") * 1e9)
        command = ":READ:POW:ALL?"
        asked = self.clock.now()
        watts = self.query_floats(command, len(self.channels)).tolist()
        answered = self.clock.now()
        for port in ports:
            if missing_value(watts[port - 1]) is not None:
                raise no_value(self, command, port, watts[port - 1], "attenuate more")
        self.raise_on_error(command)
        window = 2 * max(self._averaging[slot] for slot in slots.values())
        shown = {port: dbm(watts[port - 1], self.floor) for port in ports}
        return PowerReading(asked, answered, window, shown)
