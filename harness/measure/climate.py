"""Temperature as a condition: set it and wait until it is stable."""

from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import ClimateChamber
from lightrig.testbeds import LightrigError

TOLERANCE_K = 0.5
SOAK = 300_000_000_000
"""Soak time at the set temperature, in ns: transceivers lag behind the chamber."""

_POLL = 15_000_000_000
_TIMEOUT = 4 * 3_600_000_000_000


class NotWarmError(LightrigError):
    """A climate chamber did not come to its temperature in time."""


def hold_temperature(
    clock: Clock, recording: Recording, chamber: ClimateChamber, celsius: float
) -> None:
    """Hold `chamber` at `celsius`; the temperature becomes a condition of all later rows.

    Raises what `settled_temperature` does.
    """
    recording.record([settled_temperature(chamber, celsius, clock)])
    recording.conditions["temperature_c"] = celsius


def settled_temperature(chamber: ClimateChamber, celsius: float, clock: Clock) -> Row:
    """Set `celsius`, wait until it is stable for five minutes, return the temperature as a row.

    Its bounds are the lowest and highest temperature during these five minutes.

    Raises:
        NotWarmError: it did not come to `celsius` in four hours.
        DeniedError: that is outside of what the chamber can do.
    """
    chamber.set_temperature(celsius)
    begun = clock.now()
    stood_since, stood = begun, list[float]()
    while True:
        found, now = chamber.temperature(), clock.now()
        if abs(found - celsius) > TOLERANCE_K:
            stood.clear()
        else:
            stood_since = stood_since if stood else now
            stood.append(found)
        if stood and now - stood_since >= SOAK:
            seen = min(stood), max(stood)
            return Row(chamber.name, "temperature", found, *seen, "°C", now, {})
        if now - begun > _TIMEOUT:
            raise NotWarmError(
                f"{chamber.name} is at {found:g} °C, {_TIMEOUT / 3.6e12:g} h after it was set to "
                f"{celsius:g} °C; is its door open, is too much heat in it?"
            )
        clock.sleep(_POLL)
