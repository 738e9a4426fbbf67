"""Limits that warn before they fail: what a file may say of it."""

import pytest

from lightrig.testbeds import LimitError, parse_limit


def test_a_warning_stands_beside_its_limit():
    limit = parse_limit("outage", {"p99": "70 ms", "warn": "60 ms", "confidence": "95 %"})
    assert (limit.value, limit.warn) == (70_000_000, 60_000_000)
    assert str(limit) == "outage p99 <= 70 ms, warn above 60 ms (95 % confident)"
    lower = parse_limit("received_power", {"min": "-10 dBm", "warn": "-9 dBm"})
    assert str(lower) == "received_power min >= -10 dBm, warn below -9 dBm"
    assert parse_limit("outage", {"p99": "70 ms"}).warn is None


@pytest.mark.parametrize(
    ("quantity", "body", "message"),
    [
        ("outage", {"p99": "70 ms", "warn": "70 ms"}, "expected it below the limit"),
        ("received_power", {"min": "-10 dBm", "warn": "-11 dBm"}, "expected it above the limit"),
        ("outage", {"p99": "70 ms", "warn": "3 dB"}, "expected a duration"),
        ("gain", {"max": "3 dB", "warn": "2 dBm"}, "expected a ratio in dB"),
        ("gain", {"max": "3 dB", "warn": "some"}, "expected a ratio in dB"),
    ],
)
def test_a_warning_that_makes_no_sense_is_named(quantity, body, message):
    with pytest.raises(LimitError, match=message) as caught:
        parse_limit(quantity, body)
    assert caught.value.key == "warn"


def test_a_warning_alone_is_no_limit():
    with pytest.raises(LimitError, match="found none, expected one of p99"):
        parse_limit("outage", {"warn": "60 ms"})
