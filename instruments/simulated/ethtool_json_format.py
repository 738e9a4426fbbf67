"""What `ethtool --json -m` prints of a simulated module; keys repeat as they really do."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from instruments.simulated.ethtool_format import Limits, crossed, limits
from instruments.simulated.host_ports import Registers, SimulatedPort

_LEVELS = ("high_alarm", "low_alarm", "high_warning", "low_warning")

Pairs = Iterable[tuple[str, Any]]


def module(port: SimulatedPort, *, repeating: bool) -> str:
    """`ethtool --json -m IF`; `repeating` as it was first released."""
    now, levels = port.registers(), limits(port)
    cmis = port.spec.lanes == 8
    lost = port.signal_lost(now)
    measured = "" if repeating else "_measurement"
    pairs: list[tuple[str, Any]] = [
        ("identifier", 0x18 if cmis else 0x11),
        ("identifier_description", "QSFP-DD" if cmis else "QSFP28"),
        ("connector", 7),
        ("laser_wavelength", port.limits.wavelength_nm),
        ("vendor_name", "Lightrig"),
        ("vendor_oui", [0, 0, 0]),
        ("vendor_pn", port.limits.name.upper()),
        ("vendor_sn", port.serial),
        ("rx_loss_of_signal", ["Yes" if each else "No" for each in lost] if any(lost) else False),
        ("tx_loss_of_signal", False),
        ("tx_fault", False),
    ]
    if cmis:
        pairs += [("module_state", 3), ("module_state_description", "ModuleReady")]
    pairs += [
        (f"module_temperature{measured}", round(now.temperature / 256, 4)),
        (f"module_voltage{measured}", now.voltage / 1e4),
        ("laser_tx_bias_current", [register / 500 for register in now.bias]),
        ("transmit_avg_optical_power", [register / 1e4 for register in now.tx_power]),
    ]
    received = [register / 1e4 for register in now.rx_power]
    kind = "Rcvr signal avg optical power"
    text = [*map(_pair, pairs)]
    text.append(_pair(("rx_power", {"values": received, "type": kind})))
    text += map(_pair, _flags(now, levels))
    text += [
        f"{json.dumps(name)}: {{{', '.join(map(_pair, inner))}}}" for name, inner in _levels(levels)
    ]
    return "[ {" + ", ".join(text) + "} ]\n"


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


def _levels(levels: Limits) -> Iterable[tuple[str, Sequence[tuple[str, float]]]]:
    for name, key, unit in (
        ("laser_bias_current", "bias", 500),
        ("laser_output_power", "tx", 1e4),
        ("module_temperature", "temperature", 256),
        ("module_voltage", "voltage", 1e4),
        ("laser_rx_power", "rx", 1e4),
    ):
        yield (
            name,
            [
                (f"{level}_threshold", register / unit)
                for level, register in zip(_LEVELS, levels[key], strict=True)
            ],
        )


def _pair(pair: tuple[str, Any]) -> str:
    name, value = pair
    return f"{json.dumps(name)}: {json.dumps(value)}"
