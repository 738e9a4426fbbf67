"""Output of `ethtool --json -m` for a simulated module; keys repeat as in the real one."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from lightrig.instruments.simulated.hosts.ethtool_format import (
    Limits,
    connector,
    crossed,
    limits,
    measurements,
)
from lightrig.instruments.simulated.hosts.host_ports import Registers, SimulatedPort

_LEVELS = ("high_alarm", "low_alarm", "high_warning", "low_warning")

Pairs = Iterable[tuple[str, Any]]


_FORMS = {1: (0x03, "SFP"), 4: (0x11, "QSFP28"), 8: (0x18, "QSFP-DD")}


def module(port: SimulatedPort, *, repeating: bool) -> str:
    """`ethtool --json -m IF`; `repeating` as it was first released.

    That version repeats keys, and prints as text, behind the JSON, what an SFP measures (netdev,
    J. Eigner, "sfpid: Fix JSON output of SFP diagnostics", October 2025).
    """
    pairs = [*_identity(port)]
    if port.spec.lanes > 1 or not repeating:
        pairs += _measurements(port, "" if repeating else "_measurement")
    text = ", ".join(f'"{name}": {json.dumps(value)}' for name, value in pairs)
    behind = measurements(port) if repeating and port.spec.lanes == 1 else ""
    return f"[ {{{text}}} ]\n{behind}"


def _identity(port: SimulatedPort) -> Pairs:
    identifier, form = _FORMS[port.spec.lanes]
    yield "identifier", identifier
    yield "identifier_description", form
    code, name = connector(port)
    yield "connector", code
    yield "connector_description", name
    yield "laser_wavelength", port.limits.wavelength_nm
    yield "vendor_name", "Lightrig"
    yield "vendor_oui", [0, 0, 0]
    yield "vendor_pn", port.limits.name.upper()
    yield "vendor_sn", port.serial
    if port.spec.lanes == 8:
        yield "module_state", 3
        yield "module_state_description", "ModuleReady"


def _measurements(port: SimulatedPort, suffix: str) -> Pairs:
    now, levels = port.registers(), limits(port)
    single = port.spec.lanes == 1

    def by_lane(registers: Sequence[int], unit: float) -> object:
        values = [register / unit for register in registers]
        return values[0] if single else values

    if not single:
        lost = ["Yes" if each else "No" for each in port.signal_lost(now)]
        yield "rx_loss_of_signal", lost if "Yes" in lost else False
        yield "tx_loss_of_signal", False
        yield "tx_fault", False
    yield f"module_temperature{suffix}", round(now.temperature / 256, 4)
    yield f"module_voltage{suffix}", now.voltage / 1e4
    yield "laser_tx_bias_current", by_lane(now.bias, 500)
    yield "transmit_avg_optical_power", by_lane(now.tx_power, 1e4)
    kind = "Receiver signal average optical power" if single else "Rcvr signal avg optical power"
    received = by_lane(now.rx_power, 1e4)
    yield "rx_power", {"value" if single else "values": received, "type": kind}
    for name, value in _flags(now, levels):
        yield name, value[0] if single and isinstance(value, list) else value
    yield from _levels(levels)


def _flags(now: Registers, levels: Limits) -> Pairs:
    for name, values, key in (
        ("laser_bias_current", now.bias, "bias"),
        ("laser_tx_power", now.tx_power, "tx"),
        ("laser_rx_power", now.rx_power, "rx"),
    ):
        by_lane = [crossed(value, levels[key]) for value in values]
        for index, level in enumerate(_LEVELS):
            yield f"{name}_{level}", [flags[index] for flags in by_lane]
    for name, value, key in (
        ("module_temperature", now.temperature, "temperature"),
        ("module_voltage", now.voltage, "voltage"),
    ):
        for level, on in zip(_LEVELS, crossed(value, levels[key]), strict=True):
            yield f"{name}_{level}", on


def _levels(levels: Limits) -> Pairs:
    for name, key, unit in (
        ("laser_bias_current", "bias", 500),
        ("laser_output_power", "tx", 1e4),
        ("module_temperature", "temperature", 256),
        ("module_voltage", "voltage", 1e4),
        ("laser_rx_power", "rx", 1e4),
    ):
        yield (
            name,
            {
                f"{level}_threshold": register / unit
                for level, register in zip(_LEVELS, levels[key], strict=True)
            },
        )
