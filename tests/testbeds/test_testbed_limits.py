import pytest

from lightrig.testbeds import LimitError, parse_limit


def test_a_quantile_with_its_confidence():
    limit = parse_limit("reconfiguration.signal_recovered", {"p99": "150 ms", "confidence": "90 %"})
    assert (limit.side, limit.quantile, limit.value) == ("upper", 0.99, 150_000_000)
    assert (limit.unit, limit.confidence) == ("ns", 0.9)
    assert str(limit) == "reconfiguration.signal_recovered p99 <= 150 ms (90 % confident)"


@pytest.mark.parametrize(
    ("quantity", "body", "bound", "unit", "confidence"),
    [
        ("outage", {"median": "3 s"}, ("upper", 0.5, 3_000_000_000), "ns", 0.95),
        ("outage", {"p99.9": "3 s"}, ("upper", 0.999, 3_000_000_000), "ns", 0.95),
        ("insertion_loss", {"max": "3 dB"}, ("upper", 1.0, 3.0), "dB", None),
        ("received_power", {"min": "-10 dBm"}, ("lower", 0.0, -10.0), "dBm", None),
        ("bit_error", {"max": 2.4e-4, "confidence": "95 %"}, ("upper", 1.0, 2.4e-4), "1", 0.95),
        ("collective.bus", {"min": "80 Gbit/s"}, ("lower", 0.0, 80_000_000_000), "bit/s", None),
        ("collective.utilization", {"min": "80 %"}, ("lower", 0.0, 0.8), "share", None),
    ],
)
def test_remaining_bounds(quantity, body, bound, unit, confidence):
    limit = parse_limit(quantity, body)
    assert (limit.side, limit.quantile, limit.value) == bound
    assert (limit.unit, limit.confidence) == (unit, confidence)


@pytest.mark.parametrize(
    ("quantity", "body", "key"),
    [
        ("outage", {"p0": "3 s"}, "p0"),
        ("outage", {"p100": "3 s"}, "p100"),
        ("outage", {"p99": "3 s", "max": "4 s"}, "max"),
        ("outage", {"p99": True}, "p99"),
        ("bit_error", {"max": float("nan")}, "max"),
        ("bit_error", {"max": "few"}, "max"),
        ("outage", {"p99": "3 s", "confidence": "100 %"}, "confidence"),
        ("outage", {}, None),
    ],
)
def test_mistakes_are_named(quantity, body, key):
    with pytest.raises(LimitError) as caught:
        parse_limit(quantity, body)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("unit", "found", "value"),
    [("dBm", "-8 dBm", -8.0), ("share", "80 %", 0.8), ("°C", "45 °C", 45.0), ("Hz", "12 Hz", 12.0)],
)
def test_a_known_quantity_is_read_in_its_unit(unit, found, value):
    limit = parse_limit("gain", {"max": found}, unit)
    assert (limit.value, limit.unit) == (value, unit)
    assert str(limit) == f"gain max <= {found}"


@pytest.mark.parametrize(
    ("unit", "found", "expected"),
    [
        ("ns", "3 dB", "a duration"),
        ("1", "3 %", "a plain number"),
        ("W", "3 dB", "an electrical power"),
        ("Hz", "12", "a number with its unit, e.g. '3 Hz'"),
    ],
)
def test_a_limit_in_another_unit_is_refused(unit, found, expected):
    with pytest.raises(LimitError, match=f"for gain, expected {expected}"):
        parse_limit("gain", {"max": found}, unit)
