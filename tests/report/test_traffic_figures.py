"""Figures of collectives and of traffic around a change, from rows of uneven sizes and times."""

import math

import pytest
from drawings import elements, marks, words
from report_runs import MS, context

from lightrig.harness.record import Row

RATE = 200e6
RING = "server0 - server1 - server2"
LEFT, RIGHT = 36.0, 10.0


def collective(plan, by_size, rate=RATE):
    """Yield rows of an all-reduce: bandwidths in Mbit/s by size."""
    for size, values in by_size.items():
        for value in values:
            conditions = {"plan": plan, "ring": RING, "ranks": 3, "hops": 1, "size": size}
            conditions |= {"line_rate_bps": rate, "collective": "all_reduce", "tool": "Gloo"}
            bps = value * 1e6
            yield Row(f"all_reduce {RING}", "collective.bus_bandwidth", bps, None, None, "bit/s",
                      0, conditions)  # fmt: skip


FEW = {1 << 12: (60, 20, 50), 1 << 20: (150, 90, 120), 3 << 20: (170, 190, 180)}
MANY = {1 << 12: (30, 10, 20, 40, 70, 60), 3 << 20: (110, 90, 130, 100, 160, 150)}


def axes(drawing):
    """Return the ends of the axes of a drawing in pixels: left, right, top, bottom."""
    (left, bottom), (right, _) = marks(drawing, "lr-axis")[0]
    return left, right, 18, bottom


def test_bandwidth_over_size_is_a_median_in_its_band(show, svg_of):
    page = show(
        (context(plan="ring"), collective("ring", FEW)),
        (context(plan="mesh"), collective("mesh", MANY)),
    )
    drawing = svg_of(page, "Bus bandwidth of all-reduce over its size")
    left, right, top, bottom = axes(drawing)
    assert left == LEFT

    def place(size, mbit):
        # By powers of two from 4 KiB / 1.3 to 3 MiB x 1.3; from -6 to 206 Mbit/s.
        low, high = math.log2((1 << 12) / 1.3), math.log2((3 << 20) * 1.3)
        x = left + (right - left) * (math.log2(size) - low) / (high - low)
        return x, bottom - (bottom - top) * (mbit + 6) / 212

    few, many = marks(drawing, "lr-line")
    sizes = list(FEW)
    medians = zip(sizes, (50, 120, 180), strict=True)
    assert few == [pytest.approx(place(*at), abs=0.11) for at in medians]
    # The median of six is taken as the nearest of them, the lower or the upper middle one.
    assert many[0][0] == pytest.approx(place(1 << 12, 30)[0], abs=0.11)
    bands = marks(drawing, "lr-band")
    least, most = zip(sizes, (20, 90, 170), strict=True), zip(sizes, (60, 150, 190), strict=True)
    ends = [*least, *reversed([*most])]
    assert bands[0] == [pytest.approx(place(*each), abs=0.16) for each in ends]
    ends = [(1 << 12, 10), (3 << 20, 90), (3 << 20, 160), (1 << 12, 70)]
    assert bands[1] == [pytest.approx(place(*each), abs=0.16) for each in ends]
    labels = [label for label, _, y, anchor in words(drawing) if y == bottom + 11]
    assert labels == ["4 KiB", "1 MiB", "3 MiB"]
    assert [one.get("class") for one in elements(drawing, "lr-band")] == [
        *("lr-band lr-k0 lr-d0", "lr-band lr-k1 lr-d0")
    ]
    (rule,) = marks(drawing, "lr-rule")
    assert rule[0][1] == pytest.approx(place(1 << 12, 200)[1], abs=0.11)
    assert (
        "3 MiB 180 Mbit/s (median of 3; from 170 … 190; simulated) 90 % of 200 Mbit/s" in page.text
    )


def test_line_rates_of_different_hardware_are_all_drawn(show, svg_of):
    page = show(
        (context(plan="ring"), collective("ring", FEW, 400e6)),
        (context(plan="mesh", simulated=False), collective("mesh", MANY)),
    )
    drawing = svg_of(page, "Bus bandwidth of all-reduce over its size")
    assert [label for label, *_ in words(drawing) if label.startswith("line rate")] == [
        *("line rate 200 Mbit/s", "line rate 400 Mbit/s")
    ]
    (caption,) = [each for each in page.captions if "Bus bandwidth" in each]
    assert "lr-sim" in caption  # one of both is simulated


def curve_rows(event, points):
    for after, mbit in points:
        conditions = {"event": event, "size": 1 << 20, "after_ns": round(after * MS)}
        yield Row("server0 - server1", "recovery.bus_bandwidth", round(mbit * 1e6), None, None,
                  "bit/s", 0, conditions)  # fmt: skip
    survived = {"event": event, "size": 1 << 20, "tool": "Gloo"}
    yield Row("rings", "recovery.survived", 1, 1, 1, "1", 0, survived)


def test_bandwidth_around_a_change_applies_from_the_operation_before(show, svg_of):
    points = [(-90, 150), (-10, 120), (900, 10), (990, 140)]
    page = show((context(), [*curve_rows(3, points), *curve_rows(5, [(-50, 90), (400, 60)])]))
    drawing = svg_of(page, "Bus bandwidth around the change")
    left, right, top, bottom = axes(drawing)

    def place(ms, mbit):
        # -90 to 990 ms with 32.4 of room at both ends, 0 to 150 Mbit/s with 4.5.
        x = left + (right - left) * (ms + 122.4) / 1144.8
        return x, bottom - (bottom - top) * (mbit + 4.5) / 159

    steps = [(-90, 150), (-90, 120), (-10, 120), (-10, 10), (900, 10), (900, 140), (990, 140)]
    first, second = marks(drawing, "lr-line")
    assert first == [pytest.approx(place(*each), abs=0.16) for each in steps]
    assert second == [pytest.approx(place(*each), abs=0.16) for each in
                      [(-50, 90), (-50, 60), (400, 60)]]  # fmt: skip
    (rule,) = marks(drawing, "lr-rule")
    assert rule[0][0] == pytest.approx(place(0, 0)[0], abs=0.11)


def test_more_than_six_events_are_counted_and_the_first_six_drawn(show, svg_of):
    rows = [row for event in range(7) for row in curve_rows(event, [(-5, 90), (40, 60)])]
    page = show((context(), rows))
    assert len(marks(svg_of(page, "Bus bandwidth around the change"), "lr-line")) == 6
    assert "The first 6 of 7 events." in page.text


def test_six_events_are_all_drawn(show):
    rows = [row for event in range(6) for row in curve_rows(event, [(-5, 90), (40, 60)])]
    assert "The first 6" not in show((context(), rows)).text
