"""Rows of an event name the plans that it was between, whatever its test is named after."""

from collections.abc import Callable
from pathlib import Path

from bench.served_lab import describe

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.outage import measure_outage
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row


def test_rows_name_the_plans_of_their_event(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = simulated(describe(tmp_path))
    fabric, links = Fabric(bench), LinkObservation(bench)
    rows: list[Row] = []
    measure = Recording(rows.extend)
    bring_up(fabric, links, bench.testbed.plans["straight"])
    for name in ("crossed", "straight", "crossed"):
        measure_outage(fabric, links, measure, bench.testbed.plans[name])
    between = {("straight", "crossed"), ("crossed", "straight")}
    for quantity in ("reconfiguration.los", "carrier_up", "outage.carrier", "outage.packets"):
        found = [row for row in rows if row.quantity == quantity]
        stated = {
            row.conditions["event"]: (row.conditions["before"], row.conditions["after"])
            for row in found
        }
        assert stated == {
            0: ("straight", "crossed"),
            1: ("crossed", "straight"),
            2: ("straight", "crossed"),
        }, quantity
        assert set(stated.values()) == between
