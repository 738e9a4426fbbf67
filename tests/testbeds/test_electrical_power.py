"""Electrical power in limits: watts, and what is not mistaken for them."""

import pytest

from lightrig.testbeds import QuantityError, format_watt, parse_watt


@pytest.mark.parametrize(("text", "watt"), [("3.2 W", 3.2), ("620 mW", 0.62), ("1.1 kW", 1100.0)])
def test_power_is_read_in_watts(text: str, watt: float) -> None:
    assert parse_watt(text) == pytest.approx(watt)
    assert format_watt(watt) == text


@pytest.mark.parametrize("text", ["3.2", "3.2 dBm", "3.2 w"])
def test_devices_without_stated_power_have_none(text: str) -> None:
    with pytest.raises(QuantityError, match="an electrical power in W"):
        parse_watt(text)
