"""Modules as SONiC shows them: nothing measured is None; text that is no number, an error."""

import math

import pytest
from tool_samples import sample

from lightrig.instruments.servers.tools.module import Lane
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.sonic_eeprom import parse

TEXT = sample("synthetic/sonic_eeprom.txt")


def test_lanes_monitors_and_thresholds_are_read() -> None:
    module = parse(TEXT)["Ethernet0"]
    assert (module.vendor, module.part, module.serial) == ("ACME", "QSFP28-LR4", "A0017")
    assert (module.temperature_c, module.voltage_v) == (41.5, 3.2875)
    assert module.lanes == (
        Lane(1, tx_bias_ma=31.25, tx_power_dbm=1.25, rx_power_dbm=-3.125),
        Lane(2, tx_bias_ma=32.5, tx_power_dbm=1.5, rx_power_dbm=-math.inf),
        Lane(3, tx_bias_ma=33.75, tx_power_dbm=1.75, rx_power_dbm=None),
        Lane(4, tx_bias_ma=None, tx_power_dbm=2.0, rx_power_dbm=0.5),
    )
    assert module.thresholds == {
        "rx_power": {"high_alarm": 5.5, "low_warning": -10.6},
        "tx_bias": {"high_alarm": 75.0},
        "temperature": {"high_warning": 70.0},
        "voltage": {"low_alarm": 2.97},
    }


def test_zeros_of_a_module_without_supply_are_no_measurement() -> None:
    modules = parse(TEXT)
    assert list(modules) == ["Ethernet0", "Ethernet8"]  # the port between has no module
    cable = modules["Ethernet8"]
    assert (cable.part, cable.lanes, cable.rx_power_is) == ("DAC-2M", (), None)
    assert (cable.temperature_c, cable.voltage_v) == (None, None)


@pytest.mark.parametrize(
    ("printed", "changed", "expected"),
    [
        ("RX1Power: -3.125dBm", "RX1Power: -3.125mW", "a value in dBm"),
        ("TX1Bias: 31.25mA", "TX1Bias: 31.2.5mA", "no number"),
        ("RX2Power: -infdBm", "RX1Power: -infdBm", "each value once"),
        ("Vcc: 3.2875Volts", "Vcc: 3.2875", "a value in Volts"),
        ("Ethernet8:", "Ethernet0:", "each port once"),
    ],
)
def test_a_value_that_is_not_certain_is_an_error(printed: str, changed: str, expected: str) -> None:
    assert printed in TEXT
    with pytest.raises(ToolOutputError, match=expected):
        parse(TEXT.replace(printed, changed, 1))
