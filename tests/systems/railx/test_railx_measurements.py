"""Rows of exchanges and phase changes, computed by hand, of nodes that differ."""

from types import SimpleNamespace

import pytest

from lightrig.harness.systems.railx.measurements.rail_links import PhaseChanges
from lightrig.harness.systems.railx.measurements.rail_traffic import RailExchange
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.collectives import Exchange, ExchangeMeasurement

LANES = (
    ((0, 10, 20), (5, 0, 5), (0, 0, 0)),
    ((0, 0, 30), (1, 0, 1), (2, 2, 0)),
)


def test_utilization_is_that_of_the_node_that_sends_most():
    """Node a sends 10 + 20 + 30 = 60 bytes, b 12, c 4; 4 ports of 1 Gb/s take 4,000 bits a us."""
    run = ExchangeMeasurement(Exchange(("a", "b", "c"), LANES), (1_000, 4_000), 0, "t", Span(0, 9))
    found = RailExchange("line", "all-to-all", run, 4, 1_000_000_000, 1.0)
    assert found.node_bytes == 60
    assert found.utilizations() == pytest.approx([480 / 4_000, 480 / 16_000])


def test_the_unaffected_share_is_of_ports_on_other_rails():
    """Both ports on X-rails and one of three on Y-rails lost their carriers: 2 of 3 did not."""
    names = ("a.x0", "a.y0", "b.y0", "b.y1", "b.x0")
    ports = [SimpleNamespace(port=Port(name)) for name in names]
    lost = ("a.x0", "b.y1", "b.x0")
    seen = [SimpleNamespace(subject=name, stage="carrier_down") for name in lost]
    seen.append(SimpleNamespace(subject="a.y0", stage="carrier_up"))
    event = SimpleNamespace(
        stages=lambda: {"first_datagram": Span(30, 41)}, sent=Span(5, 6), seen=seen
    )
    rows = []
    fabric = SimpleNamespace(testbed=SimpleNamespace(name="uneven", nic_ports=ports))
    changes = PhaseChanges(fabric, lambda _plan: event, rows.extend)
    changes.change(SimpleNamespace(name="columns"))
    total, unaffected = rows
    assert (total.value, total.lower, total.upper, total.time_ns) == (35, 30, 41, 5)
    assert unaffected.quantity == "phase_change.unaffected"
    assert unaffected.value == pytest.approx(2 / 3)
    assert unaffected.conditions == {"event": 0, "plan": "columns", "ports": 3}


class Port(str):
    """A port by its full name."""

    @property
    def name(self):
        return self.partition(".")[2]
