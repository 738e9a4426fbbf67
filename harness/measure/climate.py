"""Temperature as a condition: set it, or wait until it is stable, and record it."""

from collections import deque
from weakref import WeakKeyDictionary

from lightrig.harness.bench import Bench
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import ClimateChamber
from lightrig.testbeds import LightrigError

TOLERANCE_K = 0.5
SOAK = 300_000_000_000
"""Soak time at the set temperature, in ns: transceivers lag behind the chamber."""

POLL = 15_000_000_000
"""Period at which a chamber is read, in ns."""

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


def await_steady_temperature(bench: Bench, recording: Recording) -> None:
    """Wait until no climate chamber warms or cools; its temperature becomes a condition of rows.

    A test before may have heated the transceivers, and a chamber that was put back takes hours.
    Returns at once where this test holds a temperature, or where nothing has changed since the last
    call. Raises `NotWarmError`.
    """
    if "temperature_c" in recording.conditions:
        return
    for name, spec in bench.testbed.instruments.items():
        if spec.kind != "climate_chamber":
            continue
        chamber: ClimateChamber = bench.instruments[name]  # type: ignore[assignment]
        found, last = chamber.temperature(), _steady.get(chamber)
        if last is None or abs(found - last) > TOLERANCE_K:
            found = _steady[chamber] = steady_temperature(chamber, bench.clock)
        recording.conditions["temperature_c"] = round(found, 2)


_steady: WeakKeyDictionary[ClimateChamber, float] = WeakKeyDictionary()
"""Temperature at which each chamber was last seen to be steady."""


def steady_temperature(chamber: ClimateChamber, clock: Clock) -> float:
    """Wait until the temperature has changed by at most the tolerance for the time of a soak."""
    begun, readings = clock.now(), deque[tuple[int, float]]()
    while True:
        now = clock.now()
        readings.append((now, chamber.temperature()))
        while now - readings[0][0] > SOAK + POLL:
            readings.popleft()
        seen = [celsius for _, celsius in readings]
        if now - readings[0][0] >= SOAK and max(seen) - min(seen) <= TOLERANCE_K:
            return seen[-1]
        if now - begun > _TIMEOUT:
            raise NotWarmError(
                f"{chamber.name} is at {seen[-1]:g} °C and still changes by more than "
                f"{TOLERANCE_K:g} K in {SOAK / 60e9:g} min, after {_TIMEOUT / 3.6e12:g} h; is its "
                "door open, does it run a program?",
                subjects=[chamber.name],
            )
        clock.sleep(POLL)


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
                f"{celsius:g} °C; is its door open, is too much heat in it?",
                subjects=[chamber.name],
            )
        clock.sleep(POLL)
