"""Telemetry of switching transceivers: power of the core, total power, and temperature."""

from collections.abc import Iterable, Iterator, Mapping

from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import ModuleTelemetry

CORE, TOTAL, TEMPERATURE = "module_power.core", "module_power.total", "module_temperature"


def telemetry_rows(
    switches: Iterable[ModuleTelemetry], clock: Clock, event: int, conditions: Mapping[str, Scalar]
) -> Iterator[Row]:
    """One reading of every module of `switches`.

    The modules' registers state no uncertainty: what they show is taken as it is, and the
    bounds are the last digit that the protocol carries, 1 mW and 0.01 °C.
    """
    for switch in switches:
        for module in range(1, switch.modules + 1):
            reading, time = switch.telemetry(module), clock.now()
            row_conditions = {**conditions, "event": event}
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
                    row_conditions,
                )
