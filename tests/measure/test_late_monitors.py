"""Readings of a switch's monitors that are late: seen by the carriers of the same links."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from bench.served_lab import describe

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.simulated.world.light import LightTrace
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.testbeds import Limit

MS = 1_000_000
LATE = 80 * MS
LIMIT = Limit("reconfiguration.los", "upper", 1.0, 1e9, "ns", None)


@pytest.fixture
def changed(
    simulated: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[list[Row], list[str], Recording]]:
    """Two changes of plan, by monitors that show the light of 80 ms before."""
    mean, readings = LightTrace.mean, Matrix.readings

    def late(self: Matrix, *ports: Iterable[int]) -> list[float]:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(LightTrace, "mean", lambda t, a, b: mean(t, a - LATE, b - LATE))
            return readings(self, *ports)

    def build(option: str) -> tuple[list[Row], list[str], Recording]:
        path = describe(tmp_path)
        text = path.read_text()
        assert "size: 8x8" in text
        path.write_text(text.replace("size: 8x8", f"size: 8x8{option}"))
        bench = simulated(path)
        fabric, links = Fabric(bench), LinkObservation(bench)
        rows: list[Row] = []
        notes: list[str] = []

        def note(sentence: str, /, *, in_report: bool) -> None:
            assert in_report
            notes.append(sentence)

        measure = Recording(rows.extend, note=note)
        bring_up(fabric, links, bench.testbed.plans["straight"])
        monkeypatch.setattr(Matrix, "readings", late)
        for name in ("crossed", "straight"):
            bench.clock.sleep(200 * MS)
            plan = bench.testbed.plans[name]
            measure_reconfiguration(fabric, links, measure, plan)
        return rows, notes, measure

    return build


def test_light_that_goes_after_its_carriers_is_named_and_not_judged(
    changed: Callable[[str], tuple[list[Row], list[str], Recording]],
) -> None:
    rows, notes, measure = changed("")
    (note,) = notes
    assert "loss of signal after the loss of carrier" in note
    assert "ocs by" in note
    assert not [
        row
        for row in rows
        if row.quantity.endswith((".los", ".signal_recovered"))
        and row.quantity.startswith("reconfiguration.")
    ]
    bounds = [row for row in rows if row.quantity.startswith("late_light.")]
    assert {row.quantity.partition(".")[2] for row in bounds} == {"los", "signal_recovered"}
    assert all(row.lower == 0 and row.upper == row.value > 0 for row in bounds)
    # The world's light is back 2.7 ms or so after the command; the monitors show it 80 ms later.
    assert all(row.conditions["late_ns"] > 20 * MS for row in bounds)
    assert measure.verdict(LIMIT).n == 0


def test_a_stated_latency_widens_the_bounds_of_light_and_is_enough(
    changed: Callable[[str], tuple[list[Row], list[str], Recording]],
) -> None:
    rows, notes, measure = changed(", monitor_latency: 80 ms")
    assert notes == []
    assert measure.verdict(LIMIT).n == 2
    closed = [row.value for row in rows if row.quantity == "closure.los"]
    assert closed == [1.0, 1.0]
