"""Telemetry of switching transceivers: power of the core, total power, and temperature."""

from collections.abc import Iterable, Iterator

from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import ModuleTelemetry

CORE, TOTAL, TEMPERATURE = "module_power.core", "module_power.total", "module_temperature"

SETTLING = 1_000_000_000
"""Settling time before telemetry is read, in ns."""


def measure_telemetry(
    clock: Clock, recording: Recording, switches: Iterable[ModuleTelemetry]
) -> None:
    """Record power and temperature of the transceivers of `switches` after one second."""
    clock.sleep(SETTLING)
    recording.record(telemetry_rows(switches, clock, recording.next_event()))


def telemetry_rows(switches: Iterable[ModuleTelemetry], clock: Clock, event: int) -> Iterator[Row]:
    """One reading of every module of `switches`.

    The modules' registers state no uncertainty: what they show is taken as it is, and the
    bounds are the last digit that the protocol carries, 1 mW and 0.01 °C.
    """
    for switch in switches:
        for module in range(1, switch.modules + 1):
            reading, time = switch.telemetry(module), clock.now()
            for quantity, value, digit, unit in (
                (CORE, reading.core_w, 1e-3, "W"),
                (TOTAL, reading.total_w, 1e-3, "W"),
                (TEMPERATURE, reading.temperature_c, 1e-2, "°C"),
            ):
                low, high = value - digit / 2, value + digit / 2
                yield Row(
                    f"{switch.name}.{module}",
                    quantity,
                    value,
                    low,
                    high,
                    unit,
                    time,
                    {"event": event},
                )
