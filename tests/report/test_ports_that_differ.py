"""Ports that take longer than the others of the same events: as rows, and named in the report."""

import re

import numpy as np
import pytest
from report_runs import context

from lightrig.harness.measure.stages import PortTimes, Reconfiguration, Seen
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span

PORTS = [f"server{server}.nic{nic}" for server in (0, 1) for nic in range(16)]
"""Ends of 16 links, of which each has one on either server."""


def measured(slow: set[int], events: int = 20) -> list[Row]:
    """Return rows of events in which some of 16 links take 30 % longer than the others."""
    draws, times = np.random.default_rng(34), PortTimes()
    for number in range(events):
        common, seen = 3.04e9 * np.exp(draws.normal(0, 0.1)), []
        for port in PORTS:
            link = int(port.partition("nic")[2])
            took = common * np.exp(draws.normal(0, 0.01)) * (1.3 if link in slow else 1.0)
            middle = 500 + round(took)
            seen.append(Seen(port, "carrier_up", Span(middle - 1_000_000, middle + 1_000_000)))
        sent = Span(500, 500)
        times.add(Reconfiguration("crossed", 32, sent, tuple(seen), ()), number)
    return list(times.rows(7))


def test_two_of_sixteen_links_30_percent_slower_are_rows() -> None:
    rows = measured({3, 12})
    assert sorted(row.subject for row in rows) == sorted(
        f"server{server}.nic{nic}" for server in (0, 1) for nic in (3, 12)
    )
    for row in rows:
        assert (row.quantity, row.unit) == ("port.excess", "ns")
        assert row.conditions["stage"] == "carrier_up"
        assert row.conditions["events"] == 20
        assert row.conditions["statistic"].startswith("median over events of its time less")
        assert row.conditions["share"] == pytest.approx(0.3, abs=0.02)
        usual = row.conditions["others_ms"] * 1e6
        assert row.lower <= 0.3 * usual <= row.upper


def test_like_ports_are_no_rows() -> None:
    assert measured(set()) == []


def stages(events: int = 20) -> list[Row]:
    name = "reconfiguration.carrier_up"
    return [
        Row("fabric", name, 4e9, 3.9e9, 4.1e9, "ns", 0, {"event": event}) for event in range(events)
    ]


def test_two_of_sixteen_links_30_percent_slower_are_named(show) -> None:
    text = " ".join(show((context(), [*stages(), *measured({3, 12})])).text.split())
    table = text.partition("Ports that differ")[2].partition("One event")[0]
    pattern = r"(server\d\.nic\d+) carrier up (\d+) ms \(\+(\d+)%; median of 20 events"
    named = re.findall(pattern, table)
    assert len(named) == 4
    assert {port for port, _, _ in named} == {
        f"server{server}.nic{nic}" for server in (0, 1) for nic in (3, 12)
    }
    assert all(800 < float(excess) < 1000 and 29 <= int(share) <= 31 for _, excess, share in named)


def test_like_ports_are_not_named(show) -> None:
    assert "Ports that differ" not in show((context(), stages())).text
