"""Do drawings stand where their values are, and say what they cannot show?"""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from drawings import boxes, corners, elements, filled_elements, marks, size, turns, words
from hypothesis import given
from hypothesis import strategies as st
from report_runs import MS

from lightrig.harness.report.drawing import Axis, Plot, decades, even, from_zero, path
from lightrig.harness.report.figures import Distribution, Line, curve, distribution_plot, heat_map
from lightrig.harness.report.units import round_steps, scale, shown
from lightrig.testbeds import Limit

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


# ---------------------------------------------------------------- positions of distributions

NAN = np.nan


def near(points, expected, within=0.06):
    """Whether points are where they are expected, to the tenth of a pixel that is written."""
    return np.shape(points) == np.shape(expected) and np.allclose(points, expected, 0, within)


EARLY = np.array([10, 10, 20, 40]) * MS
LATE = np.array([15, 12, 30, 50]) * MS


def across(value, low=10.0, high=50.0):
    """Return the x of a value in ms in a distribution of 270 pixels; 3 % of room at each end."""
    room = 0.03 * (high - low)
    return 34 + 226 * (value - low + room) / (high - low + 2 * room)


def down(share, rows=1):
    """Return the y of a share; each row below has 0.07 of the height, and 0.8 rows stay free."""
    under = 0.07 * (rows + 0.8)
    bottom = 150 + 7 * rows - 30
    return bottom - (bottom - 8) * (share + under) / (1 + under)


def test_distribution_has_a_step_for_each_earliest_and_each_latest_value():
    svg = distribution_plot([Distribution(0, EARLY, LATE)], None, "l")
    (area,) = marks(svg, "lr-area")
    shares = [
        *((10, 0), (10, 0.5), (20, 0.5), (20, 0.75), (40, 0.75), (40, 1), (50, 1), (50, 0.75)),
        *((30, 0.75), (30, 0.5), (15, 0.5), (15, 0.25), (12, 0.25), (12, 0)),
    ]
    assert near(turns(area), [(across(x), down(y)) for x, y in shares], 0.11)
    assert size(svg) == (270, 157)
    assert [label for label, *_ in words(svg)][-4:] == ["0", "50 %", "100 %", "ms"]
    assert not marks(svg, "lr-range")  # four samples have no interval of a median


def test_medians_are_below_each_other_with_their_intervals():
    six, later = np.array([3, 9, 4, 8, 5, 7]) * MS, np.array([13, 15, 14, 19, 16, 18]) * MS
    curves = [Distribution(0, six, six + MS), Distribution(4, later, later + 2 * MS)]
    svg = distribution_plot(curves, None, "l")
    # Six samples: the median lies between the least and the greatest at 1 - 2 / 2^6 = 96.9 %.
    for place, (found, low, high) in enumerate(
        zip(marks(svg, "lr-range"), (3, 13), (10, 21), strict=True)
    ):
        y = down(-0.07 * (place + 1), 2)
        ends = [(across(low, 3, 21), y), (across(high, 3, 21), y)]
        assert near(found[:2], ends, 0.11)
    assert [one.get("class") for one in elements(svg, "lr-area")] == [
        *("lr-area lr-k0 lr-d0", "lr-area lr-k4 lr-d0")
    ]


def test_interval_of_a_median_ends_at_the_greatest_known_value():
    early = np.array([1.0, 2, 3, 4, 5, 9]) * MS
    late = np.array([2.0, 3, 4, 5, np.inf, np.inf]) * MS
    svg = distribution_plot([Distribution(0, early, late)], None, "l")
    (found,) = marks(svg, "lr-range")
    assert near(found[:2], [(across(1, 1, 9), down(-0.07)), (across(9, 1, 9), down(-0.07))], 0.11)
    (unbounded,) = [each for each in words(svg) if "no bound" in each[0]]
    assert near(unbounded[1:3], (across(9, 1, 9), down(0.97)), 0.11)
    assert unbounded[3] == "end"


@pytest.mark.parametrize(
    ("limit", "ends"),
    [
        (90.0, (10, 90)),  # as far above as the samples are wide: drawn
        (91.0, None),
        (-30.0, (-30, 50)),
        (-31.0, None),
        (44.0, (10, 50)),
    ],
)
def test_limit_of_a_distribution_is_drawn_where_it_is_near(limit, ends):
    limit_ns = Limit("q", "upper", 0.99, limit * MS, "ns", 0.95)
    svg = distribution_plot([Distribution(0, EARLY, LATE)], limit_ns, "l")
    rules = marks(svg, "lr-rule")
    if ends is None:
        assert not rules
        return
    assert near([x for x, _ in rules[0]], [across(limit, *ends)] * 2, 0.11)
    assert near(marks(svg, "lr-area")[0][0], (across(10, *ends), down(0)), 0.11)


def test_many_distributions_are_faint_and_have_few_steps():
    many = np.arange(1000.0) * MS
    svg = distribution_plot([Distribution(n, many, many + MS) for n in range(4)], None, "l")
    found = marks(svg, "lr-faint")
    assert len(found) == 4
    assert not marks(svg, "lr-area")
    # 300 steps a side at most; from the least to the greatest.
    assert len(found[0]) <= 4 * 300
    assert near(min(found[0]), (across(0, 0, 1000), down(0, 4)), 0.2)
    assert near(max(found[0])[0], across(1000, 0, 1000), 0.2)
    few = distribution_plot([Distribution(n, many, many + MS) for n in range(30)], None, "l")
    assert max(len(each) for each in marks(few, "lr-faint")) <= 4 * 80
    three = distribution_plot([Distribution(n, EARLY, LATE) for n in range(3)], None, "l")
    assert len(marks(three, "lr-area")) == 3


# ---------------------------------------------------------------------- positions of curves


def test_curve_has_its_points_in_its_band():
    line = Line("a", [1, 2, 4], [10, 30, 20], [5, NAN, 18], [14, 38, np.inf])
    svg = curve([line], x="heat", x_unit="degC", y_unit="dB", label="l")
    # x: 1 … 4 with 0.09 of room; y: 5 … 38 with 0.99. Labels of two digits: 12 + 2 * 6 on the left.

    def place(x, y):
        return 24 + 386 * (x - 0.91) / 3.18, 210 - 194 * (y - 4.01) / 34.98

    (band,), (drawn,), (dots,) = (marks(svg, f"lr-{each}") for each in ("band", "line", "dot"))
    assert near(drawn, [place(1, 10), place(2, 30), place(4, 20)], 0.11)
    assert near(dots[::2], drawn)
    # Without a bound on one side the band reaches to the value itself.
    ends = [(1, 5), (2, 30), (4, 18), (4, 20), (2, 38), (1, 14)]
    assert near(band, [place(*each) for each in ends], 0.15)
    assert ("heat (degC)", 217, 236, "middle") in words(svg)
    assert ("dB", 0, 15, "start") in words(svg)
    assert size(svg) == (420, 240)


def test_arrow_from_the_upper_bound_of_a_point_without_value():
    line = Line("a", [1, 2, 3], [10, NAN, 20], [9, 0, 18], [14, 16, 30])
    svg = curve([Line("z", [1, 3], [0, 0], [0, 0], [0, 0]), line], x="x", x_unit="", y_unit="1",
                label="l")  # fmt: skip
    # y: 0 … 30 with 0.9 of room, 8 above; two digits of labels; x: 1 … 3 with 0.06.
    x, y = 24 + 386 * 1.06 / 2.12, 210 - 202 * 16.9 / 31.8
    (arrow,) = marks(svg, "lr-range")
    wanted = [(x - 4, y), (x + 4, y), (x, y), (x, y + 9), (x - 2.5, y + 5.5), (x, y + 9)]
    assert near(arrow, [*wanted, (x + 2.5, y + 5.5)], 0.11)
    assert "lr-k1" in elements(svg, "lr-range")[0].get("class")
    assert ("x", 217, 236, "middle") in words(svg)


@pytest.mark.parametrize(
    ("ys", "logarithmic", "upright"),
    [
        ([1, 100], None, False),  # a hundredfold is not above it
        ([1, 101], None, True),
        ([-1, 1000], None, False),
        ([0, 1, 1000], None, True),  # zero cannot be drawn in decades, and is not below it
        ([1, 1000], False, False),
        ([1, 5], True, True),
    ],
)
def test_curve_is_in_decades_above_a_hundredfold(ys, logarithmic, upright):
    line = Line("a", range(len(ys)), ys, ys, ys)
    svg = curve([line], x="x", x_unit="", y_unit="1", label="l", logarithmic=logarithmic)
    labels = {label for label, *_, anchor in words(svg) if anchor == "end"}
    assert (labels <= {"1", "10", "100", "1000"}) == upright


def test_limit_widens_the_axis_of_a_curve():
    line = Line("a", [1, 2], [10, 20], [10, 20], [10, 20])
    svg = curve([line], x="x", x_unit="", y_unit="dB", label="l", limit=30)
    (rule,) = marks(svg, "lr-rule")
    # 10 … 30 with 0.6 of room, from 210 up to 16.
    y = 210 - 194 * 20.6 / 21.2
    assert near(rule, [(24, y), (410, y)], 0.11)
    (named,) = [each for each in words(svg) if each[0] == "limit 30 dB"]
    assert near(named[1:3], (28, y - 3), 0.11)


# ------------------------------------------------------------------- positions of heat maps

ROWS, COLUMNS = ["a", "bb", "c"], ["in4", "in5", "in6", "in7", "in8"]
MATRIX = [[1.0, 2.0, 1.5, NAN, 1.25], [3.3, 1.75, 2.5, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 2.0]]


def test_heat_map_has_cells_labels_and_names_of_a_matrix_that_is_not_square():
    svg = heat_map(MATRIX, ROWS, COLUMNS, "dB", label="l", row_name="ingress", column_name="egress")
    # A cell is 26 wide; labels of two letters and the name to the left, the name above.
    left, top = 14 + 5.6 * 2 + 14, 16 + 14
    places = [one.get("d") for one in elements(svg, "lr-told")]
    titles = [one[0].text for one in elements(svg, "lr-told")]
    assert titles[7:9] == ["bb, in6: 2.5 dB", "bb, in7: 1 dB"]
    assert titles[3] == "a, in7: not measured"
    for place, d in enumerate(places):
        row, column = divmod(place, 5)
        x, y = left + 26 * column, top + 26 * row
        assert near(corners(d), [(x, y), (x + 26, y), (x + 26, y + 26), (x, y + 26)], 0.11)
    assert near(boxes(svg, "lr-frame"), [(left, top, 5 * 26, 3 * 26)])
    found = {label: (x, y, anchor) for label, x, y, anchor in words(svg)}
    for place, label in enumerate(ROWS):
        assert near(found[label][:2], (left - 4, top + 26 * place + 13 + 3))
    for place, label in enumerate(COLUMNS):
        assert near(found[label][:2], (left + 26 * place + 13, top - 5))
    assert near(found["egress"][:2], (left + 65, 10))
    assert f'<g transform="translate(10 {top + 39:.1f})rotate(-90)">' in svg
    assert {found[each][2] for each in ("in4", "egress", "ingress")} == {"middle"}
    assert found["bb"][2] == "end"
    right = left + 5 * 26
    assert near(size(svg), (right + 84, top + 132 + 6), 0.1)


def test_scale_of_a_heat_map_has_its_greatest_value_on_top():
    svg = heat_map(MATRIX, ROWS, COLUMNS, "dB", label="l")
    left, top = 14 + 5.6 * 2, 16
    right = left + 5 * 26
    # 24 colours of 5 pixels from 3.3 down to 1.0.
    found = {label: (x, y) for label, x, y, _ in words(svg) if label not in {*ROWS, *COLUMNS}}
    ticks = {label: place for label, place in found.items() if label != "dB"}
    assert list(ticks) == ["1", "2", "3"]
    for label, place in ticks.items():
        at = top + 3 + 120 * (3.3 - float(label)) / 2.3
        assert near(place, (right + 14 + 16, at), 0.11)
    assert near(found["dB"], (right + 14, top - 5))
    filled = [one for one in filled_elements(svg) if one.get("y")]
    assert near([float(one.get("y")) for one in filled], [top + 5 * n for n in range(24)])
    assert {(one.get("x"), one.get("width"), one.get("height")) for one in filled} == {
        (f"{right + 14:.1f}", "12", "5")
    }


def test_colours_of_cells_are_those_of_cividis():
    svg = heat_map([[0.0, 11.5, 23.0, 5.75]], ["a"], ["b", "c", "d", "e"], "dB", label="l")
    colours = {corners(one.get("d"))[0][0]: one.get("fill") for one in filled_elements(svg)[:4]}
    # Levels 0, 12 of 23 (half is rounded to even), 23 and 6 of the nine printed colours.
    x = sorted(colours)
    assert [colours[x[0]], colours[x[2]]] == ["#00224e", "#fee838"]
    # 12 / 23 * 8 = 4.174: from (125, 124, 120) 17.4 % towards (155, 148, 118).
    assert colours[x[1]] == "#828078"
    # 6 / 23 * 8 = 2.087: from (67, 78, 108) 8.7 % towards (97, 101, 111).
    assert colours[x[3]] == "#46506c"


def test_long_labels_of_columns_are_turned():
    names = ["before noon", "b"]
    svg = heat_map([[1, 2]], ["r"], names, "dB", label="l")
    left, top = 14 + 5.6, 14 + 5.6 * 11
    for place in range(2):
        x = left + 26 * place + 13
        assert f'<g transform="translate({x:.1f} {top - 5:.1f})rotate(-90)">' in svg
    assert ("before noon", 0, 3, "start") in words(svg)
    assert near(boxes(svg, "lr-frame"), [(left, top, 52, 26)])


def test_large_matrix_has_small_cells_and_every_second_or_third_label():
    names = [str(n) for n in range(100)]
    svg = heat_map(np.arange(9900.0).reshape(99, 100), names[:99], names, "dB", label="l")
    # 460 / 100 = 4.6 pixels a cell: a label of 10 pixels every 3 rows, of 11 every 3 columns.
    assert [label for label, *_, anchor in words(svg) if anchor == "end"] == names[:99:3]
    assert not elements(svg, "lr-told")  # above 1,024 cells
    (frame,) = boxes(svg, "lr-frame")
    assert near(frame[2:], (460, 455.4))
    top = frame[1]
    assert near(size(svg)[1], top + 455.4 + 6, 0.1)
