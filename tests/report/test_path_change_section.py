"""Switch times by path, and a ring past a dead server: what the page shows of their rows."""

from report_runs import context

from lightrig.harness.record import Row

US, MS = 1_000, 1_000_000


def changes(session, paths=("a → b", "b → a"), count=8, low=60):
    found = []
    for event in range(count):
        conditions = {"event": event, "paths": paths[event % 2], "session": session}
        for subject, quantity, us in (
            ("trx.1", "dark", low + event),
            ("trx.2", "dark", low + 1 + event),
            ("trx", "end_to_end", low + 40),
            ("trx", "done", low + 50),
        ):
            name = f"path_change.{quantity}"
            low_ns, high_ns = us * US - 500, us * US + 500
            found.append(Row(subject, name, us * US, low_ns, high_ns, "ns", 0, conditions))
    return found


def test_the_slowest_transceiver_is_the_sample_and_each_path_has_a_curve(show):
    page = show((context(test="test_switch_time"), changes("written")))
    assert "Switch times of transceivers" in page.text
    assert "64.5 µs (median of 8" in page.text
    assert "a → b, 4" in page.text
    assert "b → a, 4" in page.text
    assert {"Loss of signal, by path", "Call to light, by session"} <= set(page.labelled)
    assert "path change.dark" not in page.text


def test_nothing_is_shown_where_nothing_changed(show):
    page = show((context(), [Row("x", "anything", 1, 1, 1, "1", 0, {"event": 0})]))
    assert "Path changes" not in page.text
    assert "failed server" not in page.text


def failure(event, kind="bypass", more=()):
    stages = [("detected", 5), ("switched", 8), ("carrier_up", 20 + event), *more]
    conditions = {"event": event, "ranks": 4}
    return [
        Row("node1", f"{kind}.{stage}", ms * MS, (ms - 1) * MS, (ms + 1) * MS, "ns", 0, conditions)
        for stage, ms in stages
    ]


def test_each_stage_of_a_failure_has_its_row_in_order(show):
    rows = [row for event in range(6) for row in failure(event, more=[("first_collective", 900)])]
    rows += failure(6, "return")
    page = show((context(test="test_the_ring"), rows))
    text = page.text
    assert "Bypass of a failed server" in text
    assert text.index("the managers have detected it") < text.index(
        "the transceivers have switched"
    )
    assert "900.0 ms (median of 6" in text
    assert "26 … 26 ms" not in text
    assert "(all of 1" in text
    assert "after the return" in text
    assert "bypass.carrier up" not in text
