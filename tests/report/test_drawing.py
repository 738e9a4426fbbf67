"""Positions of marks and words in drawings, each from arithmetic on the values drawn.

Margins are 34 pixels to the left, 10 to the right, 8 above and 30 below unless stated.
"""

import pytest
from drawings import corners, elements, marks, size, words

from lightrig.harness.report.drawing import Axis, Plot, decades, even, path


def plot(**margins):
    """Return an empty plot of 200 x 120: x from 0 to 10 and y from -5 to 15, 20 pixels a unit."""
    x = Axis(0, 10, ((0, "0"), (4, "four")), "x (s)")
    y = Axis(-5, 15, ((-5, "low"), (10, "ten")), "dB")
    return Plot(200, 120, x, y, **margins)


def test_grid_and_labels_of_axes():
    svg = plot(left=40, right=20, top=10, bottom=30).svg("l")
    # x = 40 + 14 v; y = 90 - 4 (v + 5).
    (grid,), (axis,) = marks(svg, "lr-grid"), marks(svg, "lr-axis")
    upright, level = ((40, 10), (40, 90), (96, 10), (96, 90)), ((40, 90), (180, 90))
    assert grid == [*upright, *level, (40, 30), (180, 30)]
    assert axis == [(40, 90), (180, 90)]
    assert words(svg) == [
        *(("0", 40, 101, "middle"), ("four", 96, 101, "middle")),
        *(("low", 35, 93, "end"), ("ten", 35, 33, "end")),
        *(("x (s)", 110, 116, "middle"), ("dB", 0, 9, "start")),
    ]
    assert size(svg) == (200, 120)


def test_margins_where_none_are_given():
    ((left, bottom), (right, _)) = marks(plot().svg("l"), "lr-axis")[0]
    assert (left, right, bottom) == (34, 190, 90)
    assert marks(plot().svg("l"), "lr-grid")[0][0] == (34, 8)


def test_marks_at_their_values():
    one = plot(left=40, right=20, top=10, bottom=30)
    one.range(2, 7, 5, 8)
    one.boxes([1, 2], [3, 7], [0, 10], 6, 25)
    one.dots([1, 5], [10, 0], 0)
    one.rule(10, "limit", level=True)
    one.rule(3, "early")
    one.rule(8, "late")
    one.word(5, 5, "here", "middle", "k")
    one.beside(0, "side")
    svg = one.svg("l", 90)
    assert marks(svg, "lr-range") == [
        [(68, 50), (138, 50), (68, 47.5), (68, 52.5), (138, 47.5), (138, 52.5)]
    ]
    assert marks(svg, "lr-bar") == [
        [(54, 67), (82, 67), (82, 73), (54, 73), (68, 27), (138, 27), (138, 33), (68, 33)]
    ]
    assert marks(svg, "lr-dot") == [[(54, 30), (54, 30), (110, 70), (110, 70)]]
    assert marks(svg, "lr-rule") == [
        [(40, 30), (180, 30)],
        [(82, 10), (82, 90)],
        [(152, 10), (152, 90)],
    ]
    assert words(svg)[6:] == [
        *(("limit", 44, 27, "start"), ("early", 86, 86, "start"), ("late", 148, 86, "end")),
        *(("here", 110, 50, "middle"), ("side", 186, 73, "start")),
    ]
    # Six colours, then the next of four strokes.
    assert [elements(svg, kind)[0].get("class") for kind in ("lr-range", "lr-bar", "lr-dot")] == [
        *("lr-range lr-k2 lr-d1", "lr-bar lr-k1 lr-d0", "lr-dot lr-k0 lr-d0")
    ]
    assert 'style="min-width:90px"' in svg


def test_path_that_turns_back_keeps_its_turns():
    x, y = [0, 5, 9, 4, 4, 4, 4, 6], [1, 1, 1, 1, 8, 9, 2, 7]
    assert corners(path(x, y, closed=False)) == [(0, 1), (9, 1), (4, 1), (4, 9), (4, 2), (6, 7)]
    assert path([0, 2.04], [-0.06, -0.06], closed=True) == "M0 -0.1h2z"


@pytest.mark.parametrize(
    ("low", "high", "ends", "ticks"),
    [
        (-3.0, 17.0, (-3.6, 17.6), [0, 5, 10, 15]),
        (0.0, 0.0, (-0.03, 0.03), [-0.02, 0, 0.02]),
        (5.0, 5.0, (4.85, 5.15), [4.9, 5, 5.1]),
        (-4.0, -4.0, (-4.12, -3.88), [-4.1, -4.05, -4, -3.95, -3.9]),
        (-8.0, -3.0, (-8.15, -2.85), [-8, -6, -4]),
    ],
)
def test_even_axis_has_room_at_both_ends(low, high, ends, ticks):
    axis = even(low, high, "dB")
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert [value for value, _ in axis.ticks] == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "ends", "labels"),
    [
        (2e-15, 3e-2, (1e-15, 1e-1), ["1e-15", "1e-12", "1e-9", "1e-6", "0.001"]),
        (1e3, 1e3, (1e3, 1e4), ["1000", "10000"]),
        (20.0, 4e5, (10.0, 1e6), ["10", "100", "1000", "10000", "1e5", "1e6"]),
        (2e-4, 2e-3, (1e-4, 1e-2), ["1e-4", "0.001", "0.01"]),
    ],
)
def test_decades_hold_both_ends_and_at_most_seven_labels(low, high, ends, labels):
    axis = decades(low, high)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert [label for _, label in axis.ticks] == labels
    assert axis.ticks[0][0] == pytest.approx(ends[0])


def test_decades_of_a_multiple_of_the_unit():
    axis = decades(2e6, 5e8, "ns")
    assert (axis.low, axis.high, axis.label) == (1e6, 1e9, "ms")
    assert [label for _, label in axis.ticks] == ["1", "10", "100", "1000"]
