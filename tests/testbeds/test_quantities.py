import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.testbeds import quantities as q


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("70 ms", 70_000_000),
        ("75 us", 75_000),
        ("75 \N{MICRO SIGN}s", 75_000),
        ("75 \N{GREEK SMALL LETTER MU}s", 75_000),
        ("0.354 ms", 354_000),
        ("3s", 3_000_000_000),
        ("1e3 ns", 1000),
        ("2 min", 120_000_000_000),
        ("0.5 h", 1_800_000_000_000),
        ("-2 ms", -2_000_000),
    ],
)
def test_durations(text, ns):
    assert q.parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100G", 100_000_000_000),
        ("200 Mbit/s", 200_000_000),
        ("25 Gb/s", 25_000_000_000),
        ("9600 bps", 9600),
        ("1.6T", 1_600_000_000_000),
    ],
)
def test_rates(text, rate):
    assert q.parse_rate(text) == rate


def test_levels_shares_and_wavelengths():
    assert q.parse_db("3 dB") == 3.0
    assert q.parse_dbm("-4.3 dBm") == -4.3
    assert q.parse_share("95 %") == 0.95
    assert q.parse_share("99.9%") == 0.999
    assert q.parse_wavelength("1310 nm") == 1310.0
    assert q.parse_wavelength("1.31 um") == 1310.0


@pytest.mark.parametrize(
    ("parse", "text", "example"),
    [
        (q.parse_duration, "70", "70 ms"),
        (q.parse_duration, "70 dB", "70 ms"),
        (q.parse_duration, "70 MS", "70 ms"),
        (q.parse_duration, "ms", "70 ms"),
        (q.parse_duration, "nan s", "70 ms"),
        (q.parse_db, "3 dBm", "3 dB"),
        (q.parse_dbm, "3 dB", "-4.3 dBm"),
        (q.parse_rate, "100", "100G"),
        (q.parse_rate, "100 GB/s", "100G"),
        (q.parse_rate, "0 Gbit/s", "100G"),
        (q.parse_share, "0.95", "95 %"),
        (q.parse_share, "101 %", "95 %"),
        (q.parse_wavelength, "1310", "1310 nm"),
        (q.parse_wavelength, "0 nm", "1310 nm"),
    ],
)
def test_errors_name_found_and_expected(parse, text, example):
    with pytest.raises(q.QuantityError) as caught:
        parse(text)
    assert f"found {text!r}" in str(caught.value)
    assert f"e.g. {example!r}" in str(caught.value)


def test_a_bare_number_has_no_unit():
    with pytest.raises(q.QuantityError, match="the number 70 without a unit"):
        q.parse_duration(70)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (75_000, "75 \N{MICRO SIGN}s"),
        (999_900, "1 ms"),
        (41_440_000, "41.4 ms"),
        (3_050_000_000, "3.05 s"),
        (3_000_000_000, "3 s"),
        (-2_000_000, "-2 ms"),
        (1_234_000_000_000, "1230 s"),
        (120.5, "120 ns"),
        (0.25, "0.25 ns"),
    ],
)
def test_durations_for_people(ns, text):
    assert q.format_duration(ns) == text


def test_remaining_quantities_as_text():
    assert q.format_rate(100_000_000_000) == "100 Gbit/s"
    assert q.format_db(1.2404) == "1.24 dB"
    assert q.format_dbm(-4.3) == "-4.3 dBm"
    assert (q.format_db(-0.003), q.format_dbm(-0.003)) == ("0 dB", "0 dBm")
    assert q.format_share(0.999) == "99.9 %"


@given(st.integers(-(10**15), 10**15))
def test_a_duration_survives_text_within_three_digits(ns):
    text = q.format_duration(ns)
    assert abs(q.parse_duration(text) - ns) <= abs(ns) * 0.005 + 0.5
    assert len(text.split()[0].lstrip("-").replace(".", "").strip("0")) <= 3


@given(st.integers(0, 10**18), st.sampled_from(["ns", "us", "ms", "s"]))
def test_whole_durations_are_exact(number, unit):
    factor = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    assert q.parse_duration(f"{number} {unit}") == number * factor


@given(st.integers(1, 10**15))
def test_a_rate_survives_text_within_three_digits(rate):
    assert abs(q.parse_rate(q.format_rate(rate)) - rate) <= rate * 0.005


@given(st.decimals(-100, 100, places=2))
def test_levels_survive_text(level):
    assert q.parse_dbm(q.format_dbm(float(level))) == float(level)
    assert q.parse_db(q.format_db(float(level))) == float(level)


@given(st.text())
def test_nothing_but_a_quantity_error_is_raised(text):
    for parse in (
        q.parse_duration,
        q.parse_db,
        q.parse_dbm,
        q.parse_rate,
        q.parse_share,
        q.parse_wavelength,
    ):
        with contextlib.suppress(q.QuantityError):
            parse(text)
