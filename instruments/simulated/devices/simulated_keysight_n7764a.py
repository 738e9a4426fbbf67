"""Simulated Keysight N7764A four-channel attenuator.

Commands, formats and errors are those of the N77xx Programming Guide, edition 7. Left out:
wavelength-dependent offsets, stored settings. Speeds, losses and errors are chosen, not taken
from a data sheet; so is that a set power beyond the filter's range ends at the end of the range.
"""

import math
from functools import partial

from lightrig.instruments.clock import Scheduled
from lightrig.instruments.simulated.devices.keysight_lightwave import (
    NO_SUCH_SLOT,
    KeysightDevice,
    KeysightNode,
    format_power,
    keysight_float,
    parse_power_unit,
    power_block,
    slot_block,
)
from lightrig.instruments.simulated.protocols.commands import Query, command
from lightrig.instruments.simulated.protocols.scpi_device import ErrorQueue
from lightrig.instruments.simulated.protocols.scpi_values import (
    DBM,
    DECIBELS,
    METRES,
    SECONDS,
    WATTS,
    Number,
    Range,
    ScpiError,
    boolean,
    number_and_unit,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.detector import Detector, Photodiode

CHANNELS = 4
SLOTS_EACH = 2
GREATEST_DB = 45.0
FASTEST_DB_PER_S = 1000.0
INSERTION_LOSS_DB = (2.0, 0.2)
"""Mean and standard deviation of a channel's loss at 0 dB (a guess)."""
ERROR_DB = 0.05
"""Standard deviation of the difference between set and true attenuation (a guess)."""

_STEP_DB = 0.5
_MOST_STEPS = 40
_SHUT_DB = 100.0
_RANGE_W = 0.2


class _Channel(KeysightNode):
    """One attenuator with its shutter, and the monitor behind it.

    The shutter is the filter itself: it closes at full speed and opens at the speed that is set.
    """

    offset = Number(
        "INPut#[:CHANnel#]:OFFSet", default=0.0, minimum=-200.0, maximum=200.0, units=DECIBELS
    )
    speed = Number(
        "INPut#[:CHANnel#]:ATTenuation:SPEed",
        default=FASTEST_DB_PER_S,
        minimum=0.1,
        maximum=FASTEST_DB_PER_S,
        units={"": 1.0, "DB/S": 1.0},
    )
    wavelength = Number(
        "INPut#[:CHANnel#]:WAVelength",
        default=1550e-9,
        minimum=1260e-9,
        maximum=1640e-9,
        units=METRES,
    )
    power_offset = Number(
        "OUTPut#[:CHANnel#]:POWer:OFFSet",
        default=0.0,
        minimum=-200.0,
        maximum=200.0,
        units=DECIBELS,
    )
    set_power = Number(default=0.0, minimum=-50.0, maximum=20.0, units=DBM)
    averaging = Number(
        "OUTPut#[:CHANnel#]:ATIMe", default=0.1, minimum=2e-3, maximum=1.0, units=SECONDS
    )

    def __init__(self, context: DeviceContext, number: int, errors: ErrorQueue) -> None:
        super().__init__()
        name = f"{context.spec.name}.{number}"
        draws = context.chance.stream(f"{name}/attenuator")
        mean, sd = INSERTION_LOSS_DB
        self.number = number
        self.filter_db = 0.0
        self.is_open = False
        self.in_watt = False
        self.holds_power = False
        self._errors = errors
        self._loss_db = max(mean + sd * draws.normal(), 0.3)
        self._error_db = ERROR_DB * draws.normal()
        self._name = name
        self._clock = context.clock
        self._light = context.light
        self._monitor = Detector(name, context.chance, Photodiode(gain_db=0.2, noise_w=1e-10))
        self._now_db = _SHUT_DB
        self._moves: list[Scheduled] = []
        self._since = self._clock.now()
        context.light.on_arrival(number, self._on_arrival)

    def reset(self) -> None:
        """As after switching on: no attenuation, shutter closed (a guess)."""
        self.reset_parameters()
        self.filter_db, self.is_open, self.in_watt = 0.0, False, False
        self.holds_power = False
        self._go(_SHUT_DB, FASTEST_DB_PER_S)

    def _range(self) -> Range:
        """Return the limits of the attenuation: the filter's range, and the offset on top."""
        return Range(self.offset, GREATEST_DB + self.offset, self.offset, DECIBELS)

    @command("INPut#[:CHANnel#]:ATTenuation")
    def _attenuate(self, text: str) -> None:
        self.filter_db = self._range().parse(self, text) - self.offset
        self.holds_power = False
        if self.is_open:
            self._go(self.filter_db, self.speed)

    @command("INPut#[:CHANnel#]:ATTenuation?")
    def _query_attenuation(self, *limit: str) -> str:
        return self._range().query(self, self.filter_db + self.offset, limit)

    @command("OUTPut#[:CHANnel#][:STATe]")
    def _set_shutter(self, text: str) -> None:
        is_open = boolean(text)
        if is_open != self.is_open:
            self.is_open = is_open
            if is_open:
                self._now_db = min(self._now_db, GREATEST_DB)
                self._go(self.filter_db, self.speed)
            else:
                self._go(_SHUT_DB, FASTEST_DB_PER_S)

    _query_shutter = Query("OUTPut#[:CHANnel#][:STATe]?", reply=lambda self: self.is_open)

    @command("OUTPut#[:CHANnel#]:APMode")
    def _set_power_mode(self, text: str) -> None:
        """Ignore a command that exists for an older model."""
        boolean(text)

    @command("OUTPut#[:CHANnel#]:POWer:CONTRol")
    def _set_closed_loop(self, text: str) -> None:
        self.holds_power = boolean(text)
        if self.holds_power:
            self._reach_power()

    @command("OUTPut#[:CHANnel#]:POWer:CONTRol?")
    def _query_closed_loop(self) -> str:
        return str(int(self.holds_power))

    @command("OUTPut#[:CHANnel#]:POWer")
    def _set_power(self, text: str) -> None:
        """Attenuate to a power behind the attenuator, in the unit that is set."""
        parameter = type(self).set_power
        if self.in_watt and parameter.range.named(text) is None:
            value, unit = number_and_unit(text)
            milliwatt = value * WATTS[unit or "W"] * 1e3
            if milliwatt <= 0:
                raise self.out_of_range(too_large=False)
            text = f"{10 * math.log10(milliwatt):.12G}"
        self.set_power = parameter.parse(self, text)
        self._reach_power()

    @command("OUTPut#[:CHANnel#]:POWer?")
    def _query_set_power(self, *limit: str) -> str:
        dbm = float(type(self).set_power.query(self, limit))
        return keysight_float(1e-3 * 10 ** (dbm / 10) if self.in_watt else dbm)

    def _reach_power(self) -> None:
        """Move the filter to where the set power leaves, as far as it reaches."""
        entering = self._light.level(self.number)
        if not entering:
            return
        passing = 10 * math.log10(entering) - self._loss_db - self._error_db
        wanted = passing - (self.set_power - self.power_offset)
        self.filter_db = min(max(wanted, 0.0), GREATEST_DB)
        if self.is_open:
            self._go(self.filter_db, self.speed)

    @command("OUTPut#[:CHANnel#]:POWer:UNit")
    def _set_unit(self, text: str) -> None:
        self.in_watt = parse_power_unit(text)

    @command("OUTPut#[:CHANnel#]:POWer:UNit?")
    def _query_unit(self) -> str:
        return f"{int(self.in_watt):+d}"

    _query_settled = Query("SLOT#:OPC?", reply=lambda self: not self._moves)

    @command(
        "FETCh#[:CHANnel#][:SCALar]:POWer[:DC]?",
        "READ#[:CHANnel#][:SCALar]:POWer[:DC]?",
    )
    def _query_power(self) -> str:
        return format_power(self.monitored_w(), self._errors, in_watt=self.in_watt)

    def monitored_w(self) -> float:
        """Return the monitor's last completed average, in W."""
        now, width = self._clock.now(), round(self.averaging * 1e9)
        end = self._since + (now - self._since) // width * width
        mean = self._monitor.mean(max(end - width, 0), end)
        return self._monitor.reading(
            mean,
            averaging=width,
            wavelength_nm=self.wavelength * 1e9,
            full_scale_w=_RANGE_W,
        )

    def _go(self, target_db: float, speed: float) -> None:
        """Move the filter from where it is, in steps of the light."""
        for move in self._moves:
            move.cancel()
        self._moves = []
        begin, start = self._clock.now(), self._now_db
        distance = abs(target_db - start)
        steps = min(max(round(distance / _STEP_DB), 1), _MOST_STEPS)
        for step in range(1, steps + 1):
            at = begin + round(distance / speed * 1e9 * step / steps)
            decibel = start + (target_db - start) * step / steps
            self._moves.append(self._clock.schedule(at, self._name, partial(self._reach, decibel)))

    def _reach(self, decibel: float) -> None:
        del self._moves[0]
        self._now_db = decibel
        self._pass_on(self._clock.now())

    def _on_arrival(self, at: int) -> None:
        self._pass_on(at)
        if self.holds_power:
            self._reach_power()

    def _pass_on(self, at: int) -> None:
        loss = self._loss_db + self._error_db + self._now_db
        transmission = 10 ** (-loss / 10) if self._now_db < _SHUT_DB else 0.0
        milliwatt = self._light.level(self.number) * transmission
        self._monitor.lit(at, milliwatt)
        self._light.pass_on(self.number, milliwatt, at)


class SimulatedKeysightN7764a(KeysightDevice):
    """Four attenuators in one box, each in two slots."""

    channel_type = _Channel

    def __init__(self, context: DeviceContext) -> None:
        identity = f"Keysight Technologies,N7764A,{context.serial},V1.05"
        super().__init__(context.spec.name, context.clock, identity)
        self._channels = [_Channel(context, n, self.errors) for n in range(1, CHANNELS + 1)]

    def channel(self, suffixes: tuple[int, ...]) -> _Channel:
        """Return the attenuator in a slot; raise `ScpiError`."""
        index, slot = divmod(suffixes[0] - 1, SLOTS_EACH)
        if not 0 <= index < len(self._channels) or slot < 0:
            raise ScpiError(*NO_SUCH_SLOT)
        return self._channels[index]

    @command("SYSTem:PRESet")
    def reset(self) -> None:
        """Reset every channel."""
        for channel in self._channels:
            channel.reset()

    @command(
        "FETCh#[:CHANnel#][:SCALar]:POWer[:DC]:ALL?",
        "READ#[:CHANnel#][:SCALar]:POWer[:DC]:ALL?",
    )
    def _query_all_power(self) -> bytes:
        return power_block([channel.monitored_w() for channel in self._channels])

    @command(
        "FETCh#[:CHANnel#][:SCALar]:POWer[:DC]:ALL:CONFig?",
        "READ#[:CHANnel#][:SCALar]:POWer[:DC]:ALL:CONFig?",
    )
    def _query_layout(self) -> bytes:
        return slot_block([SLOTS_EACH * (channel.number - 1) + 1 for channel in self._channels])
