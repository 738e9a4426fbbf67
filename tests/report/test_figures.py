"""Do drawings stand where their values are, and say what they cannot show?"""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import MS

from lightrig.harness.report.drawing import Axis, Plot, decades, even, from_zero, path
from lightrig.harness.report.figures import Distribution, Line, curve, distribution_plot, heat_map
from lightrig.harness.report.units import round_steps, scale, shown, span

SVG = "{http://www.w3.org/2000/svg}"


def points(d):
    """The points of a path of this project, back in pixels."""
    x = y = 0.0
    found = []
    for letter, numbers in re.findall(r"([MlhvzHV])([^MlhvzHV]*)", d):
        values = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        if letter == "M":
            x, y = values
        elif letter == "l":
            x, y = x + values[0], y + values[1]
        elif letter == "h":
            x += values[0]
        elif letter == "v":
            y += values[0]
        found.append((x, y))
    return found


def drawn(svg, kind):
    """The elements of a class."""
    return [one for one in ET.fromstring(svg).iter() if kind in one.get("class", "").split()]


pixels = st.lists(st.tuples(st.floats(0, 900), st.floats(0, 900)), min_size=1, max_size=40)


@given(pixels)
def test_path_goes_through_its_points(given_points):
    x, y = zip(*given_points, strict=True)
    found = points(path(x, y, closed=False))
    wanted = [(round(round(a * 10) / 10, 1), round(round(b * 10) / 10, 1)) for a, b in given_points]
    left = [(round(a, 1), round(b, 1)) for a, b in found]
    assert left[0] == wanted[0]
    assert left[-1] == wanted[-1]
    # What is left out lies between two that are level or upright.
    for a, b in wanted:
        assert any(
            min(p[0], q[0]) <= a <= max(p[0], q[0]) and min(p[1], q[1]) <= b <= max(p[1], q[1])
            for p, q in zip([left[0], *left], left, strict=False)
        )


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 9))
def test_round_steps_are_few_even_and_inside(low, width, most):
    steps = round_steps(low, low + width, most)
    assert len(steps) <= most + 1
    assert all(low - width * 1e-6 <= step <= low + width * (1 + 1e-6) for step in steps)


def test_axis_puts_values_where_they_belong():
    assert Axis(0, 10).shares([0, 5, 10, 99, -3]).tolist() == [0, 0.5, 1, 1, 0]
    log = decades(2e-9, 3e-4)
    assert log.ticks[0][1] == "1e-9"
    assert log.shares([1e-9, 1e-3]).tolist() == [0, 1]
    assert log.shares([1e-6]) == pytest.approx([0.5])
    time = from_zero(3 * MS, 4_000 * MS)
    assert [texts for _, texts in time.ticks] == ["0", "1 ms", "10 ms", "100 ms", "1 s"]
    shares = time.shares([0, MS / 2, MS, 10 * MS, 100 * MS])
    assert shares[1] == pytest.approx(shares[2] / 2)
    assert shares[4] - shares[3] == pytest.approx(shares[3] - shares[2])
    ms = even(40 * MS, 44 * MS, "ns", pad=0)
    assert ms.label == "ms"
    assert ms.ticks[0] == (40 * MS, "40")


def test_values_carry_the_unit_that_suits_them():
    assert [shown(41.4 * MS, "ns"), shown(1.236, "dB"), shown(3.2e-12, "1"), shown(4, "degC")] == [
        *("41.4 ms", "1.24 dB", "3.2e-12", "4 degC")
    ]
    assert shown(float("inf"), "ns") == "no bound"
    assert span(41.2 * MS, 41.6 * MS, "ns", "41.4 ms") == "41.2 … 41.6"
    assert span(900_000, 41 * MS, "ns") == "900 µs … 41 ms"
    assert scale("bit/s", 4e11) == (1e9, "Gbit/s")
    assert scale("lx", 3) == (1.0, "lx")


def test_lines_stand_at_their_points():
    plot = Plot(110, 110, Axis(0, 10), Axis(0, 10), left=0, right=10, top=0, bottom=10)
    plot.line([0, 10], [0, 10], 3)
    (line,) = drawn(plot.svg("a <line>"), "lr-line")
    assert points(line.get("d")) == [(0, 100), (100, 0)]
    assert "lr-k3" in line.get("class")
    assert ET.fromstring(plot.svg("a <line>")).get("aria-label") == "a <line>"


def test_distribution_is_between_its_bounds():
    low = np.arange(40.0, 60.0) * MS
    svg = distribution_plot([Distribution(0, low, low + 5 * MS)], None, "x")
    (area,) = drawn(svg, "lr-area")
    corners = points(area.get("d"))
    left, right = min(x for x, _ in corners), max(x for x, _ in corners)
    top = min(y for _, y in corners)
    # All are done at 59 ms at the earliest and 64 ms at the latest; the plot ends there.
    at_top = [x for x, y in corners if y == top]
    assert pytest.approx((min(at_top) - left) / (right - left), abs=0.01) == (59 - 40) / (64 - 40)
    assert max(at_top) == right
    assert len(drawn(svg, "lr-range")) == 1


def test_a_value_without_bound_is_marked():
    low = np.full(9, 40.0 * MS)
    assert "never seen: no bound" in distribution_plot(
        [Distribution(0, low, np.full(9, np.inf))], None, "x"
    )


def test_curve_has_bands_points_and_limit():
    x = [-12.0, -10.0, -8.0]
    lines = [Line("a", x, [1e-3, 1e-5, 1e-8], [5e-4, 5e-6, 1e-9], [2e-3, 2e-5, 1e-7])]
    svg = curve(lines, x="received power", x_unit="dBm", y_unit="1", label="l", limit=1e-6)
    assert len(drawn(svg, "lr-band")) == 1
    assert len(drawn(svg, "lr-dot")) == 1
    texts = " ".join(ET.fromstring(svg).itertext())
    assert "received power (dBm)" in texts
    assert "limit 1e-6" in texts
    assert "1e-7" in texts  # in decades


def test_point_without_value_is_an_arrow_down_from_its_bound():
    lines = [Line("a", [1, 2], [1e-3, np.nan], [5e-4, 0], [2e-3, 1e-9])]
    svg = curve(lines, x="x", x_unit="", y_unit="1", label="l")
    (dots,) = drawn(svg, "lr-dot")
    assert dots.get("d").count("M") == 1
    assert len(drawn(svg, "lr-range")) == 1


def test_curve_of_nothing_is_drawn_empty():
    lines = [Line("a", [1.0], [np.nan], [np.nan], [np.nan])]
    ET.fromstring(curve(lines, x="x", x_unit="", y_unit="dB", label="l"))


def test_heat_map_leaves_open_what_was_not_measured():
    matrix = [[1.0, 2.0], [np.nan, 1.5]]
    svg = heat_map(matrix, ["1", "2"], ["3", "4"], "dB", label="l")
    reported = [one.text for one in ET.fromstring(svg).iter(f"{SVG}title")] or [
        one.text for one in ET.fromstring(svg).iter("title")
    ]
    assert reported == ["1, 3: 1 dB", "1, 4: 2 dB", "2, 3: not measured", "2, 4: 1.5 dB"]
    filled = [one for one in ET.fromstring(svg).iter() if one.get("fill", "").startswith("#")]
    assert sum(one.get("d", "").count("M") for one in filled) == 3


def test_heat_map_of_one_value_and_of_many_ports_stays_small():
    ET.fromstring(heat_map([[3.0]], ["1"], ["2"], "dB", label="l"))
    names = [str(n) for n in range(128)]
    big = heat_map(np.arange(128 * 128.0).reshape(128, 128), names, names, "dB", label="l")
    assert len(big) < 450_000


def test_light_means_more_on_the_scale_as_in_the_cells():
    svg = heat_map([[0.0, 1.0]], ["a"], ["b", "c"], "dB", label="l")
    cells = [one for one in ET.fromstring(svg).iter() if one.get("fill", "").startswith("#")]
    brightness = {one.get("fill"): sum(bytes.fromhex(one.get("fill")[1:])) for one in cells}
    first, last = cells[0].get("fill"), cells[1].get("fill")
    assert brightness[first] < brightness[last]
    boxes = [one for one in cells if one.get("y")]
    assert boxes[0].get("fill") == last  # the scale's greatest is on top


@pytest.mark.parametrize(
    ("unit", "greatest", "expected"),
    [
        ("bit/s", 4e11, (1e9, "Gbit/s")),
        ("bit/s", 4e8, (1e6, "Mbit/s")),
        ("bit/s", 4e5, (1e3, "kbit/s")),
        ("bit/s", 4e12, (1e12, "Tbit/s")),
        ("bit/s", 4, (1.0, "bit/s")),
        ("ns", 3e9, (1e9, "s")),
        ("ns", 3e6, (1e6, "ms")),
        ("ns", 3e3, (1e3, "µs")),
        ("ns", 3, (1.0, "ns")),
        ("share", 0.5, (0.01, "%")),
        ("dB", 3, (1.0, "dB")),
    ],
)
def test_an_axis_has_the_unit_of_its_greatest_value(unit, greatest, expected):
    assert scale(unit, greatest) == expected
