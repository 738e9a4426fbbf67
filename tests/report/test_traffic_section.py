"""Collectives and traffic under reconfiguration: what the page shows of their rows."""

import re

from report_runs import context, rows

from lightrig.harness.record import Row

RATE = 200_000_000


def collective(plan, share, name="all_reduce", sizes=(65_536, 1 << 20, 4 << 20), count=6):
    ring = "server0 - server1 - server2"
    conditions = {"plan": plan, "ring": ring, "ranks": 3, "hops": 1, "line_rate_bps": RATE}
    return [
        Row(
            f"{name} {ring}",
            "collective.bus_bandwidth",
            round(RATE * share * (1 - 0.01 * n) * size / sizes[-1] ** 0.5 / size**0.5),
            None,
            None,
            "bit/s",
            0,
            conditions | {"collective": name, "size": size, "tool": "Gloo"},
        )
        for size in sizes
        for n in range(count)
    ]


def recovery(event, survived=1, first=900_000_000):
    conditions = {"event": event, "size": 1 << 20, "tool": "Gloo"}
    found = [Row("rings", "recovery.survived", survived, survived, survived, "1", 0, conditions)]
    if survived:
        found.append(
            Row("rings", "recovery.first_collective", first, first, first, "ns", 0, conditions)
        )
    bandwidths = [(-90, 150), (-10, 150), (900, 10), (990, 140)]
    found += [
        Row(
            "server0 - server1",
            "recovery.bus_bandwidth",
            mbit * 1_000_000,
            None,
            None,
            "bit/s",
            0,
            {"event": event, "size": 1 << 20, "after_ns": ms * 1_000_000},
        )
        for ms, mbit in bandwidths
    ]
    return found


def test_a_line_for_each_topology_and_the_line_rate(show):
    page = show(
        (context(plan="ring"), collective("ring", 0.95)),
        (context(plan="mesh"), collective("mesh", 0.5)),
    )
    assert "Bus bandwidth of all-reduce over its size" in page.labelled
    assert "line rate 200 Mbit/s" in page.text
    assert re.search(r"ring server0 - server1 - server2", page.text)
    for excerpt in ("64 KiB", "1 MiB", "4 MiB"):
        assert excerpt in page.text
    assert re.search(r"18\d\.\d+ Mbit/s \(median of 6;", page.text)
    assert re.search(r"9[2-5](\.\d)? % of 200 Mbit/s", page.text)


def test_each_collective_has_a_figure(show):
    both = collective("ring", 0.9) + collective("ring", 0.4, name="all_to_all")
    page = show((context(plan="ring"), both))
    assert "Bus bandwidth of all-reduce over its size" in page.labelled
    assert "Bus bandwidth of all-to-all over its size" in page.labelled


def test_recovery_is_drawn_around_the_command(show):
    page = show((context(), [row for event in range(3) for row in recovery(event)]))
    assert any("Bus bandwidth around the change" in label for label in page.labelled)
    assert "3 of 3" in page.text
    assert "after the command (ms)" in page.text
    assert "900 ms" in page.text


def test_traffic_that_did_not_survive_is_counted(show):
    page = show((context(), recovery(0) + recovery(1, survived=0)))
    assert "1 of 2" in page.text


def test_a_page_without_traffic_has_no_such_section(show):
    page = show((context(), rows("small", 3)))
    assert "Collectives" not in page.text
    assert "Traffic under reconfiguration" not in page.text
