"""What a Polatis reports of itself: sizes by its product code, and powers."""

import pytest

from lightrig.instruments.switches.polatis.session import level, size_of

SIZES = {
    "N-VST-32x32-LU1-DMHNV-701": (32, 32),
    "N-VST-48x96-LU1-DMHNV-801": (48, 96),
    # ONOS, PolatisDeviceDescription: `\d+x[\dC]+`, where CC stands for no ports of output.
    "N-OST-16xCC-LU1-DMHNS": (8, 8),
    "I-VST-7xCC": (3, 4),
    "N-VST-LU1": None,
    "N-VST-16xC-LU1": None,
}


@pytest.mark.parametrize(("code", "size"), SIZES.items())
def test_size_by_the_product_code(code: str, size: tuple[int, int] | None) -> None:
    assert size_of(code) == size


@pytest.mark.parametrize(
    ("reported", "dbm"), [("-12.34", -12.34), (-12.34, -12.34), ("-inf", float("-inf"))]
)
def test_a_power_is_a_number(reported: object, dbm: float) -> None:
    """RFC 7951: a decimal64 is a string; some units send a number."""
    assert level(reported) == dbm


@pytest.mark.parametrize("reported", ["nan", "NaN", "inf", 9.9e37, "9.91E37", "", None, "E"])
def test_what_no_fiber_carries_is_no_power(reported: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        level(reported)
