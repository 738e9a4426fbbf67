"""The timeline of one event, and tables of stages, from rows of uneven ports and events."""

import math
import re

import pytest
from drawings import elements, marks, size, words
from report_runs import MS, context

from lightrig.harness.record import Row

LOS = {"p2": (2, 3), "p9": (4, 9), "p10": (1, 5)}
"""Earliest and latest ms of loss of signal of three ports."""

SIGNAL = {"p2": (40, 44), "p9": (61, 80)}


def event_rows(event, shift=0.0):
    """Yield rows of both stages, of the whole event and of ports; later by `shift` ms."""
    for stage, of_ports, whole in (
        ("los", LOS, (1, 3, 2.5)),
        ("signal_recovered", SIGNAL, (61, 80, 70)),
    ):
        low, high, value = (round((each + shift) * MS) for each in whole)
        conditions = {"event": event}
        name = f"reconfiguration.{stage}"
        yield Row("small", name, value, low, high, "ns", event, conditions)
        for port, (early, late) in reversed(of_ports.items()):
            ends = round((early + shift) * MS), round((late + shift) * MS)
            yield Row(f"server0.nic0.{port}", stage, ends[0], *ends, "ns", event, conditions)


@pytest.fixture
def timeline(show, svg_of):
    """The timeline of a test of three events, the second of which is drawn."""
    found = [row for event, shift in ((0, 7), (1, 0), (2, 5)) for row in event_rows(event, shift)]
    return svg_of(show((context(), found)), "Timeline of event 1 of ")


def across(ms):
    """Return the x of a time: even up to 1 ms with 0.6 of a decade, then by decades to 112 ms.

    The earliest last moment is 3 ms, so that the first mark is at 1 ms; the axis ends at 1.4 times
    the greatest, 80 ms. Margins are 112 to the left and 166 of 760 to the right.
    """
    greatest = 0.6 + math.log10(112)
    return 112 + 482 * (0.6 * min(ms, 1) + math.log10(max(ms, 1))) / greatest


def test_bars_of_a_timeline_reach_from_the_earliest_to_the_latest_moment(timeline):
    los, signal = marks(timeline, "lr-bar")
    # Ports in the order of their numbers. Each stage is 15 high, with 6 between, from 6 on.
    for bars, ports, top in ((los, LOS, 6), (signal, SIGNAL, 27)):
        each = 15 / len(ports)
        for place, (early, late) in enumerate(ports.values()):
            middle, half = top + each * (place + 0.5), each * 0.55 / 2
            corners = bars[4 * place : 4 * place + 4]
            x = across(early), across(late)
            expected = [(x[0], -half), (x[1], -half), (x[1], half), (x[0], half)]
            for found, (at, by) in zip(corners, expected, strict=True):
                assert found == pytest.approx((at, middle + by), abs=0.16)
    assert size(timeline) == (760, 82)


def test_stages_of_a_timeline_are_named_beside_it(timeline):
    found = {label: (x, y, anchor) for label, x, y, anchor in words(timeline)}
    assert found["first at 2.5 ms, within 2 ms"] == (600, 16.5, "start")
    assert found["last at 70 ms, within 19 ms"] == (600, 37.5, "start")
    assert found["loss of signal"] == (107, 16.5, "end")
    assert found["signal recovered"] == (107, 37.5, "end")
    ticks = {label: x for label, (x, y, _) in found.items() if y == 59}
    assert ticks == {
        "0": pytest.approx(112),
        **{f"{ms} ms": pytest.approx(across(ms), abs=0.06) for ms in (1, 10, 100)},
    }
    assert 'style="min-width:640px"' in timeline


def test_timeline_is_of_the_test_with_the_most_stages(show, svg_of):
    fewer = [Row("small", "reconfiguration.los", MS, MS, MS, "ns", 0, {"event": 4})]
    page = show((context(test="test_few"), fewer), (context(), list(event_rows(6))))
    drawing = svg_of(page, "Timeline of event")
    assert "Timeline of event 6 of moves" in drawing
    assert {one.get("class") for one in elements(drawing, "lr-bar")} == {"lr-bar lr-k1 lr-d0"}


def test_port_without_a_last_moment_has_a_bar_to_the_end(show, svg_of):
    lost = Row("server0.nic0.p9", "los", 4 * MS, 4 * MS, None, "ns", 1, {"event": 1})
    others = [row for row in event_rows(1) if row.quantity != "los"]
    drawing = svg_of(show((context(), [*others, lost])), "Timeline of event 1")
    (bar, _) = sorted(marks(drawing, "lr-bar"))
    assert max(x for x, _ in bar) == pytest.approx(594, abs=0.1)
    assert min(x for x, _ in bar) < 300


@pytest.mark.parametrize(("tests", "left_out"), [(12, False), (13, True)])
def test_many_tests_without_a_p99_have_no_column_of_it(show, tests, left_out):
    """Twelve tests of two stages are 24 rows."""
    rows = [row for event in range(2) for row in event_rows(event)]
    text = show(*((context(moving=n), rows) for n in range(tests))).text
    assert ("No p99 is shown: not enough data, 299 events of a test needed." in text) == left_out


def test_distributions_are_named_by_their_stages(show):
    page = show((context(), [row for event in range(7) for row in event_rows(event, event)]))
    panels = [one for one in page.captions if "One event" not in one and "Wiring" not in one]
    titles = [re.sub(r"<[^>]+>", " ", one).split("simulated")[0].strip() for one in panels]
    assert [one for one in titles if one in {"loss of signal", "signal recovered"}] == [
        *("loss of signal", "signal recovered")
    ]
