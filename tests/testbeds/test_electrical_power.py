"""Electrical power in limits: watts, and what is not mistaken for them."""

import pytest

from testbeds import QuantityError, format_watt, parse_watt
from testbeds.limits import LimitError, parse_limit


@pytest.mark.parametrize(("text", "watt"), [("3.2 W", 3.2), ("620 mW", 0.62), ("1.1 kW", 1100.0)])
def test_power_is_read_in_watts(text: str, watt: float) -> None:
    assert parse_watt(text) == pytest.approx(watt)
    assert format_watt(watt) == text


@pytest.mark.parametrize("text", ["3.2", "3.2 dBm", "3.2 w"])
def test_what_has_no_watts_is_none(text: str) -> None:
    with pytest.raises(QuantityError, match="an electrical power in W"):
        parse_watt(text)


def test_limits_have_the_unit_of_their_family() -> None:
    assert str(parse_limit("module_power.core", {"max": "3.2 W"})).endswith("max <= 3.2 W")
    assert parse_limit("bit_error_ratio", {"max": 1e-12}).unit == "1"
    assert parse_limit("sensitivity", {"max": "-8 dBm"}).unit == "dBm"
    for quantity, found in (
        ("module_power.core", "3 dB"),
        ("bit_error_ratio", "3 %"),
        ("sensitivity", "3 W"),
    ):
        with pytest.raises(LimitError, match="expected"):
            parse_limit(quantity, {"max": found})
