"""Positions in the figures of nights, from arithmetic on nights and values.

A figure is 360 x 172 pixels with margins of 40, 8, 24 and 18 (left, right, top, bottom); the first
night is 0.6 nights from the left edge, the last one 0.6 from the right.
"""

import numpy as np
import pytest
from drawings import elements, marks, words
from test_nights_figures import history, series

from lightrig.harness.report.nights.series_changes import LabChange, SeriesChange
from lightrig.harness.report.nights.trend_figures import (
    far,
    layers,
    letters,
    overview,
    spark,
    trend,
)
from lightrig.harness.statistics.changes import LevelChange, Trend
from lightrig.testbeds import Limit

NAN = np.nan


def across(night, nights):
    return 40 + 312 * (night + 0.6) / (nights + 0.2)


def down(value, low, high):
    """Return the y of a value on an axis over low … high, with 6 % of room at both ends."""
    room = 0.06 * (high - low)
    return 154 - 130 * (value - low + room) / (high - low + 2 * room)


def near(points, expected):
    return np.shape(points) == np.shape(expected) and np.allclose(points, expected, 0, 0.11)


def limit(value):
    return Limit("q", "upper", 0.99, value, "dB", 0.95)


def test_line_band_and_p99_of_nights():
    one = series([5, 7, 6, 9, 8], half=0.5, p99=11)
    one.lower[1], one.upper[3] = 4.0, 10.5
    svg = trend(history(5), one)
    ends = 4.0, 11.0

    def points(values, nights=range(5)):
        return [(across(n, 5), down(v, *ends)) for n, v in zip(nights, values, strict=True)]

    assert near(marks(svg, "lr-line")[0], points([5, 7, 6, 9, 8]))
    band = [4.5, 4, 5.5, 8.5, 7.5], [8.5, 10.5, 6.5, 7.5, 5.5]
    wanted = points(band[0]) + points(band[1], range(4, -1, -1))
    assert near(marks(svg, "lr-band")[0], wanted)
    (p99,) = marks(svg, "ln-p99")
    assert near((p99[0], p99[-1]), points([11, 11], [0, 4]))


def test_dates_of_a_figure_are_in_the_middle_of_its_fifths():
    dates = [each for each in words(trend(history(13), series([5] * 12 + [6]))) if "-" in each[0]]
    # 13 nights from 1 February: one date every 3 nights, beginning with the second.
    assert [label for label, *_ in dates] == ["02-02", "02-05", "02-08", "02-11"]
    assert near([x for _, x, *_ in dates], [across(night, 13) for night in (1, 4, 7, 10)])


@pytest.mark.parametrize(
    ("value", "ends"),
    [(12.0, (4, 12)), (12.1, None), (0.0, (0, 8)), (-0.1, None), (5.0, (4, 8))],
)
def test_limit_is_drawn_where_it_is_at_most_as_far_as_values_are_apart(value, ends):
    svg = trend(history(3), series([5, 6, 7]), limit=limit(value))
    rules = marks(svg, "lr-rule")
    if ends is None:
        assert not rules
    else:
        y = down(value, *ends)
        assert near(rules, [[(40, y), (352, y)]])
        assert near(marks(svg, "lr-line")[0][0], (across(0, 3), down(5, *ends)))


def test_constant_series_has_an_axis_as_wide_as_its_value():
    one = series([5, 5, 5], half=0)
    y = [y for _, y in marks(trend(history(3), one), "lr-line")[0]]
    # Without a width: 6 % of the value at both ends puts it in the middle.
    assert near(y, [89, 89])


def test_nights_without_data_are_grey_from_half_a_night_before_to_half_a_night_after():
    svg = trend(history(7), series([5, 6, NAN, NAN, 5, NAN, 5]))
    (gaps,) = marks(svg, "ln-none")
    wanted = []
    for first, last in ((2, 3), (5, 5)):
        left, right = across(first - 0.5, 7), across(last + 0.5, 7)
        wanted += [(left, 24), (right, 24), (right, 154), (left, 154)]
    assert near(gaps, wanted)
    # A night alone has a dot, and a band that is 0.6 nights wide.
    dots = marks(svg, "lr-dot")
    assert near(dots[0][0], (across(4, 7), down(5, 4, 7)))
    bands = marks(svg, "lr-band")
    left, right = across(3.7, 7), across(4.3, 7)
    assert near(bands[1], [(left, down(4, 4, 7)), (right, down(4, 4, 7)), (right, down(6, 4, 7)),
                           (left, down(6, 4, 7))])  # fmt: skip


def test_events_of_one_night_share_a_line_before_it():
    events = [
        LabChange(1, "identity", "ocs"),
        LabChange(3, "cabling", "fibers"),
        LabChange(1, "code", "new"),
    ]
    svg = trend(history(5), series([5, 6, 5, 6, 5]), None, events)
    lines = [one[1].get("d") for one in elements(svg, "ln-event")]
    assert lines == [f"M{across(night - 0.5, 5):.1f} 24.0V154.0" for night in (1, 3)]
    titles = [one[0].text for one in elements(svg, "ln-event")]
    assert titles == ["ocs; new", "fibers"]
    named = {label: (x, y, anchor) for label, x, y, anchor in words(svg)}
    assert near(named["AC"][:2], (across(0.5, 5), 151))
    assert named["B"][2] == "middle"


def test_names_of_events_repeat_with_a_number():
    found = letters(54)
    assert (found[0], found[25], found[26], found[51], found[52]) == ("A", "Z", "A1", "Z1", "A2")


def test_levels_and_triangles_of_two_changes():
    values = [5, 5, 9, 9, 9, 6]
    one = series(values, half=0)
    changes = LevelChange(2, 5, 9, 4, 6, 8, 10, 1e-9), LevelChange(5, 9, 6, 8, 10, 5, 7, 1e-9)
    svg = trend(history(6), one, SeriesChange(one, changes, None))
    levels = [
        [(across(start - 0.5, 6), down(level, 5, 9)), (across(end - 0.5, 6), down(level, 5, 9))]
        for start, end, level in ((0, 2, 5), (2, 5, 9), (5, 6, 6))
    ]
    assert near(marks(svg, "ln-level"), levels)
    x, right = across(1.5, 6), across(4.5, 6)
    assert near(marks(svg, "ln-change"), [[(x, 24), (x, 154)], [(right, 24), (right, 154)]])
    up, sinking = marks(svg, "ln-direction")
    # Up: its tip 8 above the figure and its base 1 above; down: the other way round.
    assert near(up, [(x, 16), (x - 4, 23), (x + 4, 23)])
    assert near(sinking, [(right, 23), (right - 4, 16), (right + 4, 16)])
    named = {label: (at, y, anchor) for label, at, y, anchor in words(svg)}
    assert near(named["+4 dB"][:2], (x + 7, 22))
    assert near(named["\N{MINUS SIGN}3 dB"][:2], (right - 7, 22))
    assert (named["+4 dB"][2], named["\N{MINUS SIGN}3 dB"][2]) == ("start", "end")


def test_drift_goes_through_the_middle_of_its_nights():
    values = [NAN, 4.0, 5.0, 9.0, 7.0, 8.0, NAN]
    one = series(values, half=0)
    svg = trend(history(7), one, SeriesChange(one, (), Trend(0.5, 0.4, 0.6, 1e-4, 5)))
    # The median of nights is 3, that of values 7: from 7 - 0.5 * 2 on night 1 to 7 + 0.5 * 2.
    (drift,) = marks(svg, "ln-drift")
    assert near(drift, [(across(1, 7), down(6, 4, 9)), (across(5, 7), down(8, 4, 9))])


@pytest.mark.parametrize(
    ("before", "after", "unit", "expected"),
    [
        (1.0, 30.0, "1", "\N{MULTIPLICATION SIGN} 30"),
        (1.0, 29.0, "1", "+28"),
        (30.0, 1.0, "1", "\N{MULTIPLICATION SIGN} 0.033"),
        (0.0, 1.0, "1", "+1"),
        (1.0, 100.0, "dB", "+99 dB"),
        (-3.0, -5.5, "dBm", "\N{MINUS SIGN}2.5 dB"),
        (2e6, 5e6, "ns", "+3 ms"),
    ],
)
def test_difference_of_levels(before, after, unit, expected):
    assert far(before, after, unit) == expected


def test_quartiles_of_eight_series_are_the_nearest_of_them():
    many = [series([level, 2 * level]) for level in (8, 1, 7, 2, 6, 3, 5, 4)]
    # Ranks 0, 1.75, 3.5, 5.25 and 7 of eight, counted from 0; a half goes to the even one.
    np.testing.assert_array_equal(layers(many)[:, 0], [1, 3, 5, 6, 8])
    many[1].median[1] = NAN
    # Seven left: ranks 0, 1.5, 3, 4.5 and 6.
    np.testing.assert_array_equal(layers(many)[:, 1], [4, 8, 10, 12, 16])


def test_overview_draws_the_middle_half_and_the_whole():
    many = [series([level, 3 * level], half=0) for level in (1, 2, 3, 4, 9)]
    svg = overview(history(2), many)
    whole, half = marks(svg, "lr-band")
    x = across(0, 2), across(1, 2)

    def corners(low, high):
        below = [(at, down(v, 1, 27)) for at, v in zip(x, low, strict=True)]
        return below + [(at, down(v, 1, 27)) for at, v in zip(x[::-1], high[::-1], strict=True)]

    assert near(whole, corners((1, 3), (9, 27)))
    assert near(half, corners((2, 6), (4, 12)))
    assert near(marks(svg, "lr-line")[0], [(x[0], down(3, 1, 27)), (x[1], down(9, 1, 27))])


def test_spark_is_a_small_figure_without_axis():
    one = series([5, 7, 6, 6], half=2)
    svg = spark([one], [2])
    # 132 x 26, 1 pixel free left and right, 2 above and below. Bands end at the greatest median.

    def place(night, value):
        share = (value - 3 + 0.06 * 4) / (1.12 * 4)
        return 1 + 130 * (night + 0.6) / 4.2, 24 - 22 * share

    assert near(marks(svg, "lr-line")[0], [place(0, 5), place(1, 7), place(2, 6), place(3, 6)])
    lower, upper = [3, 5, 4, 4], [7, 7, 7, 7]
    band = [place(n, v) for n, v in enumerate(lower)] + [place(3, 7), place(0, 7)]
    assert len(upper) == 4
    assert near(marks(svg, "lr-band")[0], band)
    x = place(1.5, 0)[0]
    assert near(marks(svg, "ln-change"), [[(x, 0), (x, 26)]])


def test_in_short_one_bad_port_shows_among_ports_of_other_levels():
    """Of levels 1, 5 and 9 dB the middle one grows by 0.5 and 0.75 dB, which 1 to 9 would hide."""
    found = [series([1] * 5), series([9] * 5), series([5, 5, 5, 5.5, 5.75])]
    least, _, _, _, most = layers(found, centered=True)
    assert list(least) == [0, 0, 0, 0, 0]
    assert list(most) == [0, 0, 0, 0.5, 0.75]
    least, _, _, _, most = layers(found)
    assert (list(least), list(most)) == ([1] * 5, [9] * 5)
    drawn = marks(spark(found, []), "lr-band")[0]
    assert len({y for _, y in drawn}) > 2
