"""Events of both directions of a change: labelled, shown by direction, and compared."""

import random

from report_runs import MS, context

from lightrig.harness.record import Row


def _rows(events, *, named, slower=0.0):
    """Recoveries of events to and fro, those back `slower` ms later."""
    dice = random.Random(5)
    for event in range(events):
        back = event % 2
        at = round((40 + dice.gauss(0, 1) + slower * back) * MS)
        plans = {"before": "crossed", "after": "straight"} if back else {}
        plans = plans or {"before": "straight", "after": "crossed"}
        conditions = {"event": event, **(plans if named else {})}
        yield Row(
            *("small", "reconfiguration.signal_recovered", at, at - MS, at + MS, "ns", event),
            conditions,
        )


def test_different_directions_are_shown_apart(show):
    page = show((context(), [*_rows(40, named=True, slower=6.0)]))
    assert "straight ⇄ crossed" in page.text
    table = page.text[page.text.index("Both directions of a change") :]
    assert "straight → crossed" in table
    assert "crossed → straight" in table
    assert "differ (p = " in table


def test_no_difference_is_reported_between_like_directions(show):
    text = show((context(), [*_rows(40, named=True)])).text
    assert "no difference found" in text
    assert "differ (p = " not in text


def test_labels_of_rows_of_earlier_versions_are_explained(show):
    text = show((context(), [*_rows(40, named=False)])).text
    assert "straight → crossed" in text
    assert "⇄" not in text
    assert "name the first direction of a test for events of both directions" in text


def test_few_events_of_one_direction_are_not_compared(show):
    few = [*_rows(11, named=True, slower=6.0)]  # six there, five back
    table = show((context(), few)).text.partition("Both directions of a change")[2]
    assert table.count("not enough data") >= 2
    assert "differ (p" not in table
