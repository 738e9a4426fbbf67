"""A value and its interval as text: what is printed holds what is known."""

from decimal import Decimal

import numpy as np
import pytest
import scipy

from lightrig.testbeds.intervals import at_least, at_most, interval

MS = 1_000_000
SIZES = {
    "": 1, "ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9,
    "bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "Tbit/s": 10**12,
    "mW": Decimal("1e-3"), "W": 1, "kW": 1000, "%": Decimal("0.01"), "dB": 1, "dBm": 1, "°C": 1,
}  # fmt: skip


# Digits by hand: two of the half width, which is the expanded uncertainty (GUM, 7.2.6).
@pytest.mark.parametrize(
    ("value", "lower", "upper", "unit", "written"),
    [
        (1.23456, 1.0515, 1.41762, "dB", ("1.23 dB", "1.05 … 1.42")),
        (1.23456, 1.13496, 1.33416, "dB", ("1.23 dB", "1.13 … 1.34")),
        (-3.14159, -7.97159, 1.68841, "dBm", ("-3.1 dBm", "-8.0 … 1.7")),
        (1234.5, 1207.1, 1261.9, "packets", ("1234 packets", "1207 … 1262")),
        (100.3 * MS, 100.25 * MS, 100.44 * MS, "ns", ("100.300 ms", "100.250 … 100.440")),
        (1004.4 * MS, 1003.7 * MS, 1005.1 * MS, "ns", ("1.00440 s", "1.00370 … 1.00510")),
        (950 * MS, 800 * MS, 1230 * MS, "ns", ("950 ms", "800 … 1230")),
        (0.951, 0.93, 0.956, "share", ("95.1 %", "93.0 … 95.6")),
        (1e-12, 1.04e-15, 5.01e-12, "1", ("1.0e-12", "1.0e-15 … 5.1e-12")),
        (0.0, 0.0, 2.0319e-13, "1", ("0", "0 … 2.04e-13")),
        (2.5, 2.5, 2.5, "dB", ("2.5 dB", "2.5 … 2.5")),
        (133_333_333, 133_333_333, 133_333_333, "ns", ("133.333333 ms", "133.333333 … 133.333333")),
        (4.0, -np.inf, 5.0, "ns", ("4.00 ns", "no bound … 5.00")),
        (3 * MS, 0.2, 12 * MS, "ns", ("3.0 ms", "0 … 12.0")),
    ],
)  # fmt: skip
def test_digits_of_a_value_and_its_interval(value, lower, upper, unit, written):
    found = interval(lower, upper, unit, value)
    assert (found.value, found.ends) == written


def test_an_interval_alone_has_its_unit():
    assert interval(900_000, 41 * MS, "ns").ends == "0.90 … 41 ms"
    assert interval(2.35e-4, 2.46e-4, "1").ends == "2.350e-4 … 2.460e-4"
    assert interval(9.41e9, 9.43e9, "bit/s").ends == "9.410 … 9.430 Gbit/s"


def test_a_bound_is_rounded_away_from_what_it_bounds():
    assert at_most(113.316 * MS, "ns") == "114 ms"
    assert at_most(2.0319e-13, "1") == "2.04e-13"
    assert at_most(0.1176, "dB", digits=2) == "0.12 dB"
    assert at_least(113.916 * MS, "ns") == "113 ms"
    assert at_most(20 * MS, "ns") == at_least(20 * MS, "ns") == "20 ms"
    assert at_most(np.inf, "ns") == "no bound"


def read(text: str, unit: str) -> Decimal:
    return Decimal(text) * SIZES[unit]


def test_a_printed_interval_contains_the_computed_one_and_is_hardly_wider():
    draw = np.random.default_rng(7)
    for _ in range(1_000):
        unit = draw.choice(["ns", "bit/s", "W", "share", "1", "dB", "dBm"])
        value = 10 ** draw.uniform(-14, 14) * (-1 if unit == "dBm" and draw.random() < 0.5 else 1)
        half = abs(value) * 10 ** draw.uniform(-7, 2)
        lower, upper = float(value - half), float(value + half * draw.uniform(0.1, 3))
        found = interval(lower, upper, unit, float(value))
        low, high = read(found.lower, found.unit), read(found.upper, found.unit)
        assert low <= Decimal(repr(lower)), found
        assert high >= Decimal(repr(upper)), found
        legible = Decimal(2).scaleb(max(abs(low), abs(high)).adjusted() - 5)
        assert (
            high - low <= (Decimal(repr(upper)) - Decimal(repr(lower))) * Decimal("1.11") + legible
        ), found


@pytest.mark.parametrize(("sd", "n"), [(6, 299), (6, 40), (1, 40), (0.3, 40)])
@pytest.mark.parametrize("truth", [199.66, 1004.4])
def test_what_is_printed_covers_the_truth_as_often_as_what_is_computed(truth, sd, n):
    """The median's interval by order statistics, of normal samples in ms."""
    draw, half = np.random.default_rng(1), scipy.stats.binom(n, 0.5)
    lower = max(k for k in range(1, n + 1) if half.cdf(k - 1) <= 0.025)
    upper = next(k for k in range(1, n + 1) if half.sf(k - 1) <= 0.025)
    computed = printed = 0
    for _ in range(400):
        samples = np.sort(draw.normal(truth, sd, n)) * MS
        low, high = float(samples[lower - 1]), float(samples[upper - 1])
        computed += low <= truth * MS <= high
        found = interval(low, high, "ns", float(np.median(samples)))
        assert found.lower != found.upper
        ends = read(found.lower, found.unit), read(found.upper, found.unit)
        printed += ends[0] <= Decimal(repr(truth)) * MS <= ends[1]
    assert printed >= computed >= 0.92 * 400
