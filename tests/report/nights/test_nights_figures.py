"""Positions in a figure."""

import datetime
import re

import numpy as np
import pytest

from lightrig.harness.record.nights import Night
from lightrig.harness.report.nights.series import History, NightSeries
from lightrig.harness.report.nights.series_changes import LabChange, SeriesChange
from lightrig.harness.report.nights.trend_figures import (
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    layers,
    overview,
    spark,
    trend,
)
from lightrig.harness.statistics.changes import LevelChange

NAN = np.nan


def series(median, half=1.0, unit="dB", p99=NAN):
    median = np.array(median, dtype=float)
    empty = np.where(np.isnan(median), NAN, p99)
    n = np.where(np.isnan(median), 0.0, 20.0)
    ends = median - half, median + half
    of_night = (n, median, *ends, ends[1] - ends[0], empty, empty, median, median)
    return NightSeries("q", "a", "t", "case", unit, *of_night)


def history(nights):
    first = datetime.date(2026, 2, 1)
    days = (first + datetime.timedelta(day) for day in range(nights))
    return History(tuple(Night(str(day)) for day in days), ())


def paths(svg, kind):
    """The corners of each path of a class, in pixels."""
    return [_corners(one) for one in re.findall(rf'class="{kind}[^"]*" d="([^"]+)"', svg)]


def _corners(path):
    x = y = 0.0
    corners = []
    for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        values = [float(one) for one in re.findall(r"-?[\d.]+", numbers)]
        match command:
            case "M" | "L":
                x, y = values
            case "l":
                x, y = x + values[0], y + values[1]
            case "h" | "H":
                x = values[0] + (x if command == "h" else 0)
            case "v" | "V":
                y = values[0] + (y if command == "v" else 0)
        corners.append((x, y))
    return corners


def test_the_band_holds_the_interval_and_the_line_the_median():
    svg = trend(history(4), series([5, 6, 5, 6]))
    (band,), (line,) = paths(svg, "lr-band"), paths(svg, "lr-line")
    heights = {round(x): y for x, y in line}
    assert len(heights) == 4
    for x, median in heights.items():
        ends = sorted(y for bx, y in band if round(bx) == x)
        assert ends[0] < median < ends[-1]
        assert median - ends[0] == pytest.approx(ends[-1] - median, abs=0.2)
    assert min(y for _, y in line) < max(y for _, y in line)


def test_nights_stand_where_the_script_looks_for_them():
    nights = 10
    (line,) = paths(trend(history(nights), series([5, 6] * 5)), "lr-line")
    inner = WIDTH - LEFT - RIGHT
    for night, (x, _) in enumerate(line):
        assert x == pytest.approx(LEFT + inner * (night + 0.6) / (nights + 0.2), abs=0.1)


def test_lines_break_where_nights_are_missing_and_a_grey_column_stands_there():
    svg = trend(history(7), series([5, 6, NAN, NAN, 5, 6, 5]))
    assert [len(one) for one in paths(svg, "lr-line")] == [2, 3]
    (gap,) = paths(svg, "ln-none")
    lines = paths(svg, "lr-line")
    assert lines[0][-1][0] < min(x for x, _ in gap) < max(x for x, _ in gap) < lines[1][0][0]


def test_a_night_alone_is_seen():
    svg = trend(history(3), series([NAN, 5, NAN]))
    assert paths(svg, "lr-dot")
    (band,) = paths(svg, "lr-band")
    assert max(x for x, _ in band) > min(x for x, _ in band)


def test_an_unbounded_value_is_cut_at_the_top_not_dropped():
    one = series([5.0, 6.0, 5.0])
    one.upper[1] = np.inf
    (band,) = paths(trend(history(3), one), "lr-band")
    assert all(0 <= y <= HEIGHT for _, y in band)


def test_a_change_is_marked_before_its_night_with_direction_and_size():
    one = series([5, 5.1, 5, 7, 7.1, 7])
    svg = trend(history(6), one, SeriesChange(one, (LevelChange(3, 5, 7, 5, 5, 7, 7, 1e-9),), None))
    (mark,), (line,) = paths(svg, "ln-change"), paths(svg, "lr-line")
    assert line[2][0] < mark[0][0] < line[3][0]
    tip, left, _ = paths(svg, "ln-direction")[0][:3]
    assert tip[1] < left[1]
    assert ">+2 dB<" in svg
    before, after = paths(svg, "ln-level")
    assert before[0][1] > after[0][1]


def test_an_event_has_its_letter_and_its_text():
    events = [LabChange(1, "identity", "ocs: <6.8>"), LabChange(3, "cabling", "fibers")]
    svg = trend(history(5), series([5, 6, 5, 6, 5]), None, events)
    assert "<title>ocs: &lt;6.8&gt;</title>" in svg
    assert re.findall(r">([AB])</text></g>", svg) == ["A", "B"]


def test_an_overview_holds_the_least_and_the_greatest():
    many = [series([level, level]) for level in (1, 2, 3, 4, 9)]
    np.testing.assert_array_equal(layers(many), [[1, 1], [2, 2], [3, 3], [4, 4], [9, 9]])
    wide, half = paths(overview(history(2), many), "lr-band")
    assert min(y for _, y in wide) < min(y for _, y in half)
    assert max(y for _, y in wide) > max(y for _, y in half)


def test_layers_leave_out_what_a_series_lacks():
    many = [series([1, NAN, NAN]), series([3, 3, NAN])]
    np.testing.assert_array_equal(layers(many)[0], [1, 3, NAN])
    np.testing.assert_array_equal(layers(many)[4], [3, 3, NAN])


def test_ratios_over_decades_are_drawn_by_decades():
    svg = trend(history(3), series([1e-9, 1e-6, 1e-3], half=0, unit="1"))
    (line,) = paths(svg, "lr-line")
    (_, low), (_, middle), (_, high) = line
    assert middle == pytest.approx((low + high) / 2, abs=0.2)


def test_a_spark_marks_changes():
    svg = spark([series([5, 5, 7, 7])], [2])
    assert len(paths(svg, "ln-change")) == 1
    assert len(paths(spark([series([5, NAN, 7])], []), "lr-line")) == 2
