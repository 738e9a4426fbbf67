"""A temperature as a condition: set it, and wait until it stands."""

from harness.record import Row
from instruments.capabilities import ClimateChamber
from instruments.clock import Clock
from testbeds import LightrigError

TOLERANCE_K = 0.5
SOAK = 300_000_000_000
"""How long the temperature must have stood before it counts, in ns: modules lag behind."""

_POLL = 15_000_000_000
_PATIENCE = 4 * 3_600_000_000_000


class NotWarmError(LightrigError):
    """A climate chamber did not come to its temperature in time."""


def hold_temperature(chamber: ClimateChamber, celsius: float, clock: Clock) -> Row:
    """Go to `celsius` and wait until it has stood for five minutes; what it is then, as a row.

    Its bounds are the least and the greatest that was seen while it stood.

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
        if now - begun > _PATIENCE:
            raise NotWarmError(
                f"{chamber.name} is at {found:g} °C, {_PATIENCE / 3.6e12:g} h after it was set to "
                f"{celsius:g} °C; is its door open, is too much heat in it?"
            )
        clock.sleep(_POLL)
