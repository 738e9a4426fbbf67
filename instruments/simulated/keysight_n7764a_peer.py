"""Answers like a Keysight N7764A four-channel attenuator; knows nothing of any driver.

Commands, formats and errors are those of the N77xx Programming Guide, edition 7. Left out: the
set power and its closed loop, wavelength-dependent offsets, stored settings. Speeds, losses and
errors are chosen, not taken from a data sheet.
"""

from collections.abc import Callable, Mapping
from functools import partial

from instruments.clock import Scheduled
from instruments.simulated.detector import Detector, Photodiode
from instruments.simulated.keysight_power import power_block, slot_block, worded_power
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ErrorQueue,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    one,
)
from instruments.simulated.scpi_values import (
    DECIBELS,
    METRES,
    SECONDS,
    Setting,
    boolean,
)

CHANNELS = 4
SLOTS_EACH = 2
GREATEST_DB = 45.0
FASTEST_DB_PER_S = 1000.0
INSERTION_LOSS_DB = (2.0, 0.2)
"""Mean and standard deviation of what a channel loses at 0 dB (a guess)."""
ERROR_DB = 0.05
"""Standard deviation of the difference between what is set and what is so (a guess)."""

_STEP_DB = 0.5
_MOST_STEPS = 40
_SHUT_DB = 100.0
_RANGE_W = 0.2


class _Channel:
    """One attenuator with its shutter, and the monitor behind it.

    The shutter is the filter itself: it closes at full speed and opens at the speed that is set.
    """

    def __init__(self, around: Surroundings, number: int) -> None:
        name = f"{around.spec.name}.{number}"
        draws = around.chance.stream(f"{name}/attenuator")
        mean, sd = INSERTION_LOSS_DB
        self.number = number
        self.offset = Setting(0.0, -200.0, 200.0, DECIBELS)
        self.speed = Setting(FASTEST_DB_PER_S, 0.1, FASTEST_DB_PER_S, {"": 1.0, "DB/S": 1.0})
        self.wavelength = Setting(1550e-9, 1260e-9, 1640e-9, METRES)
        self.averaging = Setting(0.1, 2e-3, 1.0, SECONDS)
        self.filter_db = 0.0
        self.is_open = False
        self.in_watt = False
        self._loss_db = max(mean + sd * draws.normal(), 0.3)
        self._error_db = ERROR_DB * draws.normal()
        self._name = name
        self._clock = around.clock
        self._light = around.light
        self._monitor = Detector(name, around.chance, Photodiode(gain_db=0.2, noise_w=1e-10))
        self._now_db = _SHUT_DB
        self._moves: list[Scheduled] = []
        self._since = self._clock.now()
        around.light.on_arrival(number, self._pass_on)

    @property
    def settled(self) -> bool:
        """Whether the filter has come to where it was sent."""
        return not self._moves

    def reset(self) -> None:
        """As after switching on: no attenuation, shutter closed (a guess)."""
        for setting in (self.offset, self.speed, self.wavelength, self.averaging):
            setting.reset()
        self.filter_db, self.is_open, self.in_watt = 0.0, False, False
        self._go(_SHUT_DB, FASTEST_DB_PER_S)

    def limits(self) -> Setting:
        """What can be set: the filter's range, and the offset on top."""
        offset = self.offset.value
        return Setting(
            self.filter_db + offset, offset, GREATEST_DB + offset, DECIBELS, default=offset
        )

    def attenuate(self, text: str) -> None:
        """Set the attenuation, offset included; raises `ScpiError`."""
        wanted = self.limits()
        wanted.set(text)
        self.filter_db = wanted.value - self.offset.value
        if self.is_open:
            self._go(self.filter_db, self.speed.value)

    def shutter(self, *, is_open: bool) -> None:
        """Open the shutter or close it."""
        if is_open != self.is_open:
            self.is_open = is_open
            if is_open:
                self._now_db = min(self._now_db, GREATEST_DB)
                self._go(self.filter_db, self.speed.value)
            else:
                self._go(_SHUT_DB, FASTEST_DB_PER_S)

    def monitored_w(self) -> float:
        """The monitor's last completed average, in W."""
        now, width = self._clock.now(), round(self.averaging.value * 1e9)
        end = self._since + (now - self._since) // width * width
        mean = self._monitor.mean(max(end - width, 0), end)
        return self._monitor.reading(
            mean,
            averaging=width,
            wavelength_nm=self.wavelength.value * 1e9,
            full_scale_w=_RANGE_W,
        )

    def _go(self, target_db: float, speed: float) -> None:
        """Let the filter move from where it is, in steps of the light."""
        for move in self._moves:
            move.cancel()
        self._moves = []
        begin, start = self._clock.now(), self._now_db
        way = abs(target_db - start)
        steps = min(max(round(way / _STEP_DB), 1), _MOST_STEPS)
        for step in range(1, steps + 1):
            at = begin + round(way / speed * 1e9 * step / steps)
            decibel = start + (target_db - start) * step / steps
            self._moves.append(self._clock.schedule(at, self._name, partial(self._reach, decibel)))

    def _reach(self, decibel: float) -> None:
        del self._moves[0]
        self._now_db = decibel
        self._pass_on(self._clock.now())

    def _pass_on(self, at: int) -> None:
        loss = self._loss_db + self._error_db + self._now_db
        transmission = 10 ** (-loss / 10) if self._now_db < _SHUT_DB else 0.0
        milliwatt = self._light.level(self.number) * transmission
        self._monitor.lit(at, milliwatt)
        self._light.pass_on(self.number, milliwatt, at)


class KeysightN7764aPeer:
    """Four attenuators in one box, each in two slots, for any number of sessions."""

    def __init__(self, around: Surroundings) -> None:
        self._name = around.spec.name
        self._clock = around.clock
        self._channels = [_Channel(around, n) for n in range(1, CHANNELS + 1)]
        self._understand(
            ScpiCommands(
                f"Keysight Technologies,N7764A,{around.serial},V1.05",
                reset=self._reset,
                errors=ErrorQueue(30),
            )
        )

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket."""
        return {"scpi": self.session}

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        return ScpiDialogue(connection, self._clock, f"{self._name}#{index:04d}", self.commands)

    def _reset(self) -> None:
        for channel in self._channels:
            channel.reset()

    def _channel(self, request: ScpiRequest) -> _Channel:
        index, slot = divmod(request.suffixes[0] - 1, SLOTS_EACH)
        if not 0 <= index < len(self._channels) or slot < 0:
            raise ScpiError(-303, "Module slot empty or slot / channel invalid")
        return self._channels[index]

    def _understand(self, commands: ScpiCommands) -> None:
        self.commands = commands
        head, out = "INPut#[:CHANnel#]:", "OUTPut#[:CHANnel#]"
        commands.add(f"{head}ATTenuation", lambda r: self._channel(r).attenuate(one(r)))
        commands.add(f"{head}ATTenuation?", lambda r: self._channel(r).limits().answer(r.arguments))
        self._number(f"{head}OFFSet", lambda channel: channel.offset)
        self._number(f"{head}ATTenuation:SPEed", lambda channel: channel.speed)
        self._number(f"{head}WAVelength", lambda channel: channel.wavelength)
        self._number(f"{out}:ATIMe", lambda channel: channel.averaging)
        commands.add(f"{out}[:STATe]", self._shutter)
        commands.add(f"{out}[:STATe]?", lambda r: str(int(self._channel(r).is_open)))
        commands.add(f"{out}:APMode", self._ignored)  # there for an older model
        commands.add(f"{out}:POWer:CONTRol", self._control)
        commands.add(f"{out}:POWer:CONTRol?", lambda _: "0")
        commands.add(f"{out}:POWer:UNit", self._unit)
        commands.add(f"{out}:POWer:UNit?", lambda r: str(int(self._channel(r).in_watt)))
        commands.add("SLOT#:OPC?", lambda r: str(int(self._channel(r).settled)))
        for verb in ("FETCh#", "READ#"):
            power = f"{verb}[:CHANnel#][:SCALar]:POWer[:DC]"
            commands.add(f"{power}?", self._power)
            commands.add(f"{power}:ALL?", self._all_power)
            commands.add(f"{power}:ALL:CONFig?", lambda _: self._layout())
        commands.add("SYSTem:PRESet", lambda _: self._reset())

    def _number(self, pattern: str, setting: Callable[[_Channel], Setting]) -> None:
        self.commands.add(pattern, lambda r: setting(self._channel(r)).set(one(r)))
        self.commands.add(f"{pattern}?", lambda r: setting(self._channel(r)).answer(r.arguments))

    def _shutter(self, request: ScpiRequest) -> None:
        self._channel(request).shutter(is_open=boolean(one(request)))

    def _ignored(self, request: ScpiRequest) -> None:
        boolean(one(request))

    def _control(self, request: ScpiRequest) -> None:
        if boolean(one(request)):  # the closed loop is not simulated
            raise ScpiError(-200, "Execution error (StatExecError)")

    def _unit(self, request: ScpiRequest) -> None:
        text = one(request).upper()
        self._channel(request).in_watt = text in {"WATT", "W"} or (
            text not in {"DBM"} and boolean(text)
        )

    def _power(self, request: ScpiRequest) -> str:
        channel = self._channel(request)
        return worded_power(channel.monitored_w(), self.commands.errors, in_watt=channel.in_watt)

    def _all_power(self, _: ScpiRequest) -> bytes:
        return power_block([channel.monitored_w() for channel in self._channels])

    def _layout(self) -> bytes:
        return slot_block([SLOTS_EACH * (channel.number - 1) + 1 for channel in self._channels])
