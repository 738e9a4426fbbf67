"""Less and less light: gates over received power, until the pattern is lost."""

from collections.abc import Iterator
from typing import NamedTuple

from lightrig.harness.measure.bit_errors.light import Arrival, Receiver
from lightrig.harness.measure.gates import Counted, GatePlan, count_for, gate_for
from lightrig.instruments.core.capabilities import Attenuator, ErrorCounter
from lightrig.instruments.core.errors import DeniedError

MOST_POINTS = 14

_COARSE_DB, _FINE_DB = 1.0, 0.5
_LOOK_BITS = 1e9
_ENOUGH_ERRORS = 400
_LEAST_GATE = 10_000_000


class SweepPoint(NamedTuple):
    """One gate of a sweep: how much is attenuated, what arrives, what was counted."""

    decibel: float
    arrival: Arrival | None
    counted: Counted


class PowerSweep:
    """Counts over received power.

    Args:
        counter: what counts.
        plan: the longest gate of a point.
        receiver: the light in front of it.
        attenuator: what takes that light away; at 0 dB before and after.
    """

    def __init__(
        self, counter: ErrorCounter, plan: GatePlan, receiver: Receiver, attenuator: Attenuator
    ) -> None:
        self._counter = counter
        self._plan = plan
        self._receiver = receiver
        self._attenuator = attenuator
        self._channel = receiver.channel_of(attenuator)

    def points(self) -> Iterator[SweepPoint]:
        """One after the other; a gate that counted nothing is the last.

        Each gate is as long as a short look has planned for some hundred errors, but no longer
        than the plan: the look itself counts for nothing.
        """
        decibel = self._first_errors()
        for _ in range(MOST_POINTS):
            if not self._attenuated(decibel):
                break
            point = SweepPoint(decibel, self._receiver.arrival(), self._count())
            yield point
            if point.counted.void_reason is not None:
                break
            decibel += _FINE_DB
        self._attenuator.set_attenuation(self._channel, 0.0)

    def _first_errors(self) -> float:
        """A little less attenuation than what makes the first errors in a short look."""
        decibel, look = 0.0, self._gate(_LOOK_BITS)
        while self._attenuated(decibel):
            seen = count_for(self._counter, look)
            if seen.void_reason is not None or seen.count.errors:
                return max(decibel - _COARSE_DB, 0.0)
            decibel += _COARSE_DB
        return max(decibel - MOST_POINTS * _FINE_DB, 0.0)

    def _count(self) -> Counted:
        look = count_for(self._counter, self._gate(_LOOK_BITS))
        if look.void_reason is not None:
            return look
        if not look.count.errors:
            return count_for(self._counter, self._plan)
        ratio = look.count.errors / look.count.bits
        return count_for(self._counter, self._gate(_ENOUGH_ERRORS / ratio))

    def _gate(self, bits: float) -> GatePlan:
        wanted = max(gate_for(bits, self._counter.bits_per_second), _LEAST_GATE)
        duration = min(wanted, self._plan.duration)
        return GatePlan(self._plan.limit, self._plan.confidence, round(bits), duration)

    def _attenuated(self, decibel: float) -> bool:
        """Set an attenuation; False where the attenuator has no more."""
        try:
            self._attenuator.set_attenuation(self._channel, decibel)
        except DeniedError:
            if decibel == 0:
                raise
            return False
        return True
