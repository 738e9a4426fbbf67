"""Figures of bit errors over received power and over temperature, at their values."""

import math
import re
from itertools import pairwise

import pytest
from drawings import elements, marks, words
from report_runs import context

from lightrig.harness.record import Row

RATIOS = {-12.0: (1e-3, 5e-4, 2e-3), -10.0: (2e-5, 1e-5, 4e-5), -8.0: (0.0, 0.0, 3e-9)}
"""Ratio, lower and upper bound by received power in dBm."""


def gates(ratios, **conditions):
    for event, (dbm, (value, low, high)) in enumerate(reversed(ratios.items())):
        given = {"event": event, "errors": round(value * 1e9), "bits": 10**9, "confidence": 0.95}
        given |= {"gate_ns": 10, "received_power_dbm": dbm, **conditions}
        yield Row("ber.1", "bit_error_ratio.over_power", value, low, high, "1", 0, given)


def sensitivity(target, dbm, low, high, **conditions):
    given = {"target": target, "slope": 0.1, "misfit": 0.5, "points": 3, "confidence": 0.95}
    given |= {"event": 9, **conditions}
    return Row("ber.1", "sensitivity", dbm, low, high, "dBm", 0, given)


def place(dbm, ratio, decades=(-7, -2), powers=(-12, -8)):
    """Return the place of a point: 520 x 320 pixels, margins of 42, 10, 16 and 30."""
    room = 0.03 * (powers[1] - powers[0])
    x = 42 + 468 * (dbm - powers[0] + room) / (powers[1] - powers[0] + 2 * room)
    share = (math.log10(ratio) - decades[0]) / (decades[1] - decades[0])
    return pytest.approx((x, 290 - 274 * min(max(share, 0), 1)), abs=0.11)


def test_points_bars_and_arrows_over_received_power(show, svg_of):
    # From a third of the least target, 1e-6 / 3, to the greatest bound, 2e-3, in whole decades.
    rows = [*gates(RATIOS), sensitivity(1e-6, -9.5, -9.7, -9.2), sensitivity(1e-4, -11, -11.5, -10)]
    page = show((context(), rows))
    drawing = svg_of(page, "Bit error ratio of ber.1 over received power")
    (dots,) = marks(drawing, "lr-dot")
    assert dots[::2] == [place(-12, 1e-3), place(-10, 2e-5)]
    ranges = marks(drawing, "lr-range")
    bars, arrow, first, second = ranges
    assert bars[0] == place(-12, 5e-4)
    assert bars[1] == place(-12, 2e-3)
    assert bars[2][0] == pytest.approx(bars[1][0] - 2.5, abs=0.11)
    assert bars[4] == pytest.approx((bars[0][0] - 2.5, bars[0][1]), abs=0.11)
    assert bars[6:8] == [place(-10, 1e-5), place(-10, 4e-5)]
    assert arrow[2] == place(-8, 3e-9)  # below the axis: on its lower end
    assert first[:2] == [place(-9.7, 1e-6), place(-9.2, 1e-6)]
    assert second[:2] == [place(-11.5, 1e-4), place(-10, 1e-4)]
    assert first[3][1] - first[2][1] == 10
    rules = marks(drawing, "lr-rule")
    # One decade above the lower end of five on 274 pixels, and three.
    assert [rule[0] for rule in rules] == [(42, 235.2), (42, 125.6)]
    assert {("1e-6", 46, 232.2, "start"), ("1e-4", 46, 122.6, "start")} <= set(words(drawing))
    # The fitted curve is within the axis: no point above the greatest bound.
    (fit,) = marks(drawing, "lr-line")
    assert min(y for _, y in fit) >= place(-8, 2e-3).expected[1] - 0.1
    assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(fit))


def test_fit_goes_through_its_sensitivity(show, svg_of):
    page = show((context(), [*gates(RATIOS), sensitivity(1e-6, -9.5, -9.7, -9.2)]))
    (fit,) = marks(svg_of(page, "Bit error ratio of ber.1"), "lr-line")
    x, y = place(-9.5, 1e-6).expected
    before = max(point for point in fit if point[0] < x)
    after = min(point for point in fit if point[0] >= x)
    assert before[1] - 0.2 <= y <= after[1] + 0.2


def test_axis_reaches_to_a_sensitivity_beyond_the_powers(show, svg_of):
    page = show((context(), [*gates(RATIOS), sensitivity(1e-6, -7.0, -7.2, -6.9)]))
    (dots,) = marks(svg_of(page, "Bit error ratio of ber.1"), "lr-dot")
    assert dots[0] == place(-12, 1e-3, powers=(-12, -7))


def test_tests_without_a_sensitivity_are_drawn_to_their_least_ratio(show, svg_of):
    page = show(
        (context(test="test_a"), gates(RATIOS)),
        (context(test="test_b", simulated=False), gates({-14.0: (2e-9, 1e-9, 6e-2)})),
    )
    drawing = svg_of(page, "Bit error ratio of ber.1")
    # 2e-9 / 3 to 6e-2: ten decades down to one.
    first, second = marks(drawing, "lr-dot")
    assert first[0] == place(-12, 1e-3, (-10, -1), (-14, -8))
    assert second[0] == place(-14, 2e-9, (-10, -1), (-14, -8))
    assert [one.get("class") for one in elements(drawing, "lr-dot")] == [
        *("lr-dot lr-k0 lr-d0", "lr-dot lr-k1 lr-d0")
    ]
    assert not marks(drawing, "lr-rule")


def test_sensitivity_over_temperature_has_a_line_for_each_target(show, svg_of):
    levels = {75.0: -8.0, -5.0: -9.5, 25.0: -9.0}
    parts = [
        (
            context(test=f"test_{n}", temperature_c=celsius, simulated=n == 1),
            [
                *gates(RATIOS, temperature_c=celsius),
                sensitivity(1e-6, dbm, dbm - 0.1, dbm + 0.3, temperature_c=celsius),
                sensitivity(1e-4, dbm - 1, dbm - 1.2, dbm - 0.8, temperature_c=celsius),
            ],
        )
        for n, (celsius, dbm) in enumerate(levels.items())
    ]
    page = show(*parts)
    drawing = svg_of(page, "Sensitivity of ber.1 over temperature")
    # 420 x 240, 16 above and 30 below; y from -9.5 - 1.2 to -8 + 0.3.
    low = -10.7
    (left, bottom), (right, _) = marks(drawing, "lr-axis")[0]

    def at(celsius, dbm):
        x = left + (right - left) * (celsius + 5 + 2.4) / 84.8
        return pytest.approx((x, bottom - 194 * (dbm - low + 0.09) / 3.18), abs=0.11)

    smaller, greater = marks(drawing, "lr-line")
    assert smaller == [at(celsius, levels[celsius]) for celsius in (-5, 25, 75)]
    assert greater == [at(celsius, levels[celsius] - 1) for celsius in (-5, 25, 75)]
    bands = marks(drawing, "lr-band")
    assert bands[0][:3] == [at(c, levels[c] - 0.1) for c in (-5, 25, 75)]
    assert bands[0][3:] == [at(c, levels[c] + 0.3) for c in (75, 25, -5)]
    (caption,) = [one for one in page.captions if "over temperature" in one]
    assert "lr-sim" in caption  # one of the three is simulated
    legend = page.text[page.text.index("an arrow where no bit was wrong") :]
    assert re.findall(r"-?\d+ °C", legend)[:3] == ["-5 °C", "25 °C", "75 °C"]


def test_worst_of_three_counters_is_neither_first_nor_last(show):
    def gate(name, errors, bits=10**12):
        ratio = errors / bits
        given = {"errors": errors, "bits": bits, "confidence": 0.95, "event": 0, "gate_ns": 10}
        return Row(name, "nic_error_ratio.before_fec", ratio, ratio / 2, ratio * 2, "1", 0, given)

    rows = [gate("a", 3), gate("b", 50), gate("c", 7), gate("b", 31), gate("a", 2)]
    text = show((context(), rows)).text
    assert "3 counters 5 " in text
    # 81 errors in two gates of 1e12 bits: 4.05e-11.
    assert "4.05e-11 (worst: b; 81 errors in 2e12; 95 % interval 3.21e-11 … 5.04e-11" in text
