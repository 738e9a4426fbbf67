"""What modules that switch say of themselves: power of the core and in all, and temperature."""

from collections.abc import Iterable, Iterator, Mapping

from harness.record import Row, Scalar
from instruments.capabilities import ModuleTelemetry
from instruments.clock import Clock

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
            told, time = switch.telemetry(module), clock.now()
            held = {**conditions, "event": event}
            for quantity, value, digit, unit in (
                (CORE, told.core_w, 1e-3, "W"),
                (TOTAL, told.total_w, 1e-3, "W"),
                (TEMPERATURE, told.temperature_c, 1e-2, "°C"),
            ):
                low, high = value - digit / 2, value + digit / 2
                yield Row(f"{switch.name}.{module}", quantity, value, low, high, unit, time, held)
