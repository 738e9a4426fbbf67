"""The report names the ports that take longer than the others of the same events."""

import re

import numpy as np
from report_runs import context

from lightrig.harness.record import Row


def rows(slow, events=20, ports=16):
    draws = np.random.default_rng(34)
    for event in range(events):
        common = 3.04e9 * np.exp(draws.normal(0, 0.1))
        worst = 0.0
        for port in range(ports):
            value = common * np.exp(draws.normal(0, 0.01)) * (1.3 if port in slow else 1.0)
            worst = max(worst, value)
            ends = value - 1e6, value + 1e6
            yield Row(f"server0.nic{port}", "carrier_up", value, *ends, "ns", 0, {"event": event})
        name = "reconfiguration.carrier_up"
        yield Row("fabric", name, worst, worst - 1e6, worst + 1e6, "ns", 0, {"event": event})


def test_two_of_sixteen_ports_30_percent_slower_are_named(show):
    text = " ".join(show((context(), list(rows({3, 12})))).text.split())
    table = text.partition("Ports that differ")[2].partition("One event")[0]
    named = re.findall(r"server0\.nic(\d+) carrier up (\d+) ms \(\+(\d+)%; median of 20", table)
    assert {port for port, _, _ in named} == {"3", "12"}
    assert all(800 < float(excess) < 1000 and 29 <= int(share) <= 31 for _, excess, share in named)


def test_like_ports_are_not_named(show):
    assert "Ports that differ" not in show((context(), list(rows(set())))).text
