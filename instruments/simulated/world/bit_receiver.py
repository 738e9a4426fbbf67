"""A receiver that makes bit errors, and the detector that counts them.

The ratio follows the light: erfc(Q / sqrt 2) / 2 with Q in proportion to the received power, and
a floor that no light improves. PAM4 has three eyes, each a third as high, and two bits a symbol.
An error may cause the next, as behind a decision feedback equalizer, so that errors come in
bursts. Warmth costs power: that of the modules that the light came through is counted here. All
constants are chosen, not taken from a data sheet.
"""

import functools
import math
from dataclasses import dataclass, replace

import scipy

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.world.ambient import ROOM_C, Ambient
from lightrig.instruments.simulated.world.light import Channels
from lightrig.instruments.simulated.world.randomness import Stream
from lightrig.testbeds import Port, SimulatedReceiver

LOST_DBM = -28.0
"""Below this there is no signal, and no clock to be recovered."""

_UNLOCKED_RATIO = 1e-2
_DRAWN_DB = 0.3
_WARM_C = 25.0


@functools.cache  # SciPy's functions are loaded where bits are counted
def _q_at_1e12() -> float:
    return -float(scipy.special.ndtri(1e-12))


@functools.cache
def _pam4_db() -> float:
    """By how much more power four levels take for 1e-12 than two, at the same noise, in dB."""
    return 10 * math.log10(-3 * float(scipy.special.ndtri(1e-12 / 0.75)) / _q_at_1e12())


@dataclass(frozen=True, slots=True)
class Receiver:
    """Properties of a receiver.

    Attributes:
        sensitivity_dbm: the power that gives a ratio of 1e-12 with two levels, without the floor,
            up to 25 °C.
        floor: the ratio at any power.
        penalty_db_per_k: by how much more power it needs for each kelvin beyond that.
        pam4: whether the light has four levels instead of two.
    """

    sensitivity_dbm: float = -9.0
    floor: float = 1e-16
    penalty_db_per_k: float = 0.02
    pam4: bool = False

    def ratio(self, milliwatt: float, celsius: float = ROOM_C) -> float:
        """Return the bit error ratio at a received power and temperature."""
        if milliwatt <= 0:
            return 0.5
        needed = self.sensitivity_dbm + self.penalty_db_per_k * max(celsius - _WARM_C, 0.0)
        q = _q_at_1e12() * milliwatt / 10 ** (needed / 10)
        # Of four levels the two middle ones err to both sides; Gray coding spoils one bit of two.
        share = 0.75 * scipy.special.ndtr(-q / 3) if self.pam4 else scipy.special.ndtr(-q)
        return min(float(share) + self.floor, 0.5)


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of a detector since its start.

    Attributes:
        elapsed: for how many ns.
        bits: how many were compared; none while the pattern is lost.
        errors: how many of them were wrong.
        sync_lost: for how many ns the pattern was not followed.
        clock_lost: for how many ns there was no signal.
    """

    elapsed: int
    bits: int
    errors: int
    sync_lost: int
    clock_lost: int


class ErrorDetector:
    """Compares the bits at a channel with the pattern that the same instrument sends.

    By which of its channels that was sent is all the same: the pattern is.

    Attributes:
        added_ratio: errors that the sender adds to the pattern, for each bit.
    """

    def __init__(
        self,
        name: str,
        channel: int,
        light: Channels,
        clock: Clock,
        draws: Stream,
        ambient: Ambient,
        kind: SimulatedReceiver = SimulatedReceiver(),  # noqa: B008 -- frozen
    ) -> None:
        self._port = Port(name, str(channel))
        self._channel = channel
        self._light = light
        self._clock = clock
        self._draws = draws
        self._ambient = ambient
        sensitivity = Receiver().sensitivity_dbm + _DRAWN_DB * draws.normal()
        self.receiver = Receiver(sensitivity, pam4=kind.modulation == "PAM4")
        self._sensitivity_dbm = sensitivity
        self._follows_pattern = kind.modulation is None
        self._propagation = kind.propagation
        self.rate = 0.0
        self.expects_what_is_sent = True
        self.added_ratio = 0.0
        self._since = self._until = clock.now()
        self._bits = self._expected = self._added = 0.0
        self._errors = self._sync_lost = self._clock_lost = 0
        self._level = 0.0
        self._origin: Port | None = None
        light.on_arrival(channel, lambda _: self._take())
        self._take()

    @property
    def has_clock(self) -> bool:
        """Whether there is a signal."""
        return self._level >= 10 ** (LOST_DBM / 10)

    @property
    def has_sync(self) -> bool:
        """Whether the pattern is followed."""
        return (
            self.has_clock
            and self._origin is not None
            and self._origin.owner == self._port.owner
            and self.expects_what_is_sent
            and self._ratio() < _UNLOCKED_RATIO
        )

    @property
    def level_dbm(self) -> float:
        """Received power in dBm; minus infinity in the dark."""
        return 10 * math.log10(self._level) if self._level > 0 else -math.inf

    def begin(self) -> None:
        """Count from zero."""
        self._take()
        self._since = self._until
        self._bits = self._expected = self._added = 0.0
        self._errors = self._sync_lost = self._clock_lost = 0

    def true_ratio(self) -> float | None:
        """Return the expected bit error ratio since the start; None if nothing was compared."""
        return self._expected / self._bits if self._bits else None

    def counted(self) -> Counted:
        """Return the counts until now."""
        self._take()
        elapsed = self._until - self._since
        errors = self._errors + int(self._added)
        return Counted(elapsed, int(self._bits), errors, self._sync_lost, self._clock_lost)

    def settings_changed(self) -> None:
        """Count the bits until now by the present settings; call before changing one."""
        self._take()

    def expect_levels(self, *, pam4: bool) -> None:
        """Expect light of four levels or two, unless the world states which.

        A receiver made for four reaches 1e-12 at the same power as one made for two (chosen).
        """
        if self._follows_pattern:
            self._take()
            needed = self._sensitivity_dbm - (_pam4_db() if pam4 else 0.0)
            self.receiver = replace(self.receiver, sensitivity_dbm=needed, pam4=pam4)

    def add_error(self) -> None:
        """Receive one error that the sender has added."""
        self._take()
        self._added += self.has_sync

    def _ratio(self) -> float:
        return self.receiver.ratio(self._level, self._ambient.celsius)

    def _take(self) -> None:
        """Count the bits since the last call, during which the light was constant."""
        now = self._clock.now()
        passed, self._until = now - self._until, now
        if not self.has_clock:
            self._clock_lost += passed
        if not self.has_sync:
            self._sync_lost += passed
        elif passed:
            bits = self.rate * passed / 1e9
            self._bits += bits
            expected, added = bits * self._ratio(), bits * self.added_ratio
            self._expected += expected + added
            self._added += added
            self._errors += self._draws.bursts(expected, self._propagation)
        self._level = self._light.level(self._channel)
        self._origin = self._light.origin(self._channel)
