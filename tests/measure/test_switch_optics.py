"""Polarization and wavelength dependent loss, crosstalk: by definition, and closed."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure import switch_optics
from lightrig.harness.measure.closure import unclosed
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switch_optics import polarization, wavelength
from lightrig.harness.measure.switch_optics.crosstalk import crosstalk
from lightrig.harness.record import Row
from lightrig.instruments.simulated.devices.simulated_agilent_8169a import retarder
from lightrig.instruments.simulated.lab import SimulatedLab

HOME = Path("testbeds/switchoptics.yaml")
STATES = tuple(itertools.product(range(3), (1, -1)))


def half(components: Any, factor: float) -> float:
    return factor * math.hypot(*(part.standard for part in components))


def through(loss_db: float, direction: Any, errors: Any, noise: Any) -> Any:
    """Readings in dBm behind a polarization dependent loss along `direction`."""
    share = math.tanh(loss_db * math.log(10) / 20)
    unit = np.asarray(direction) / np.linalg.norm(direction)
    return {
        (axis, sign): 10 * math.log10(1 + sign * share * unit[axis]) + errors[n] + noise[n]
        for n, (axis, sign) in enumerate(STATES)
    }


@pytest.mark.parametrize("loss_db", [0.0, 0.02, 0.3, 3.0])
@pytest.mark.parametrize("direction", [(1, 0, 0), (1, 1, 1), (-0.2, 0.9, 0.1)])
def test_six_states_find_the_loss_of_any_axis(loss_db: float, direction: Any) -> None:
    found, _, _ = polarization.dependence(through(loss_db, direction, [0] * 6, np.zeros((6, 4))))
    assert found == pytest.approx(loss_db, abs=1e-9)


def coverage(find: Callable[[Any, Any], tuple[float, float]], repetitions: int = 800) -> float:
    """Return the share of intervals that hold the truth, whose error is drawn."""
    draws = np.random.default_rng(7)
    errors = [find(draws, None) for _ in range(repetitions)]
    return sum(abs(error) <= bound for error, bound in errors) / repetitions


@pytest.mark.parametrize("loss_db", [0.0, 0.05, 0.5])
def test_intervals_of_polarization_dependence_hold_the_truth(loss_db: float) -> None:
    def once(draws: Any, _: Any) -> tuple[float, float]:
        # Normal errors of the size that rectangular ones of controller and meter have.
        plates = draws.normal(0, polarization.CONTROLLER_DB / 3**0.5, 6)
        meter = draws.normal(0, polarization.METER_DB / 3**0.5, 6)
        readings = through(
            loss_db, draws.normal(size=3), plates + meter, draws.normal(0, 0.02, (6, 5))
        )
        value, components, factor = polarization.dependence(readings)
        return value - loss_db, half(components, factor)

    # At a loss of 0 all three errors add up, far from it one of them decides.
    share = coverage(once)
    assert 0.935 <= share <= (0.97 if loss_db == 0 else 0.999)


def test_intervals_of_wavelength_dependence_hold_the_truth() -> None:
    def once(draws: Any, _: Any) -> tuple[float, float]:
        losses = np.linspace(0, draws.uniform(0, 0.3), 5)
        size = math.hypot(wavelength.SOURCE_DB, wavelength.METER_DB) / 3**0.5
        means = -losses + draws.normal(0, size, 5)
        readings = means[:, None] + draws.normal(0, 0.01, (5, 5))
        value, components, factor = wavelength.dependence(list(readings))
        return value - losses[-1], half(components, factor)

    assert coverage(once, 300) >= 0.95


def test_crosstalk_is_the_power_over_that_of_the_circuit() -> None:
    value, components, factor = crosstalk([-1.0, -1.0], [-51.0, -51.0001], [-90.0, -90.1])
    assert value == pytest.approx(-50, abs=0.01)
    assert half(components, factor) < 0.5


def test_crosstalk_below_the_dark_is_a_bound() -> None:
    dark, leak = [-80.0, -79.9, -80.1], [-80.02, -79.95, -80.05]
    value, components, factor = crosstalk([0.0, 0.0, 0.0], leak, dark)
    assert value + half(components, factor) > -97
    assert value + half(components, factor) < -80
    assert value - half(components, factor) < -115


def test_crosstalk_a_little_above_the_dark_may_be_none() -> None:
    dark = [-80.0, -79.9, -80.1]
    leak = [dbm + 0.1 for dbm in dark]  # 1.2 standard uncertainties more
    value, components, factor = crosstalk([0.0, 0.0, 0.0], leak, dark)
    assert value + half(components, factor) > -96
    assert value - half(components, factor) < -115


def measured(bench: Bench) -> list[Row]:
    rows = list[Row]()
    recording = Recording(rows.extend)
    for measure in (
        switch_optics.measure_polarization_dependence,
        switch_optics.measure_wavelength_dependence,
        switch_optics.measure_crosstalk,
    ):
        measure(Fabric(bench), recording)
    return rows


def test_every_quantity_of_a_switch_is_closed(simulated: Callable[..., Bench]) -> None:
    rows = measured(simulated(HOME))
    by_name = {
        name: [row for row in rows if row.quantity == name] for name in {r.quantity for r in rows}
    }
    assert len(by_name["polarization_dependent_loss"]) == 4
    assert len(by_name["wavelength_dependent_loss"]) == 4
    assert len(by_name["crosstalk"]) == 12
    assert all(0.05 < row.value < 0.15 for row in by_name["polarization_dependent_loss"])
    assert len({round(row.value, 3) for row in by_name["wavelength_dependent_loss"]}) == 4
    assert {f"closure.{name}" for name in ("polarization_dependent_loss", "crosstalk")} <= set(
        by_name
    )
    assert list(unclosed(rows)) == []


@pytest.mark.long
@pytest.mark.parametrize(("method", "bias"), [("crosstalk", 2.0), ("polarization_dependence", 0.3)])
def test_biased_optics_are_not_closed(
    method: str, bias: float, simulated: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    true: Callable[..., float] = getattr(SimulatedLab, method)
    monkeypatch.setattr(SimulatedLab, method, lambda *args: true(*args) + bias)
    names = {"crosstalk": "crosstalk", "polarization_dependence": "polarization_dependent_loss"}
    sentences = [str(found) for found in unclosed(measured(simulated(HOME)))]
    assert any(f"closure.{names[method]} of ocs is not closed" in each for each in sentences)


def test_a_lab_without_a_controller_says_so(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    text = HOME.read_text().replace(
        "  - laser -> plates\n  - plates -> ocs.1", "  - laser -> ocs.1"
    )
    path = tmp_path / "bare.yaml"
    path.write_text(text)
    fabric = Fabric(simulated(path))
    with pytest.raises(switch_optics.NoMeterPathError, match="no polarization controller between"):
        switch_optics.measure_polarization_dependence(fabric, Recording(lambda rows: None))


def test_a_half_wave_plate_mirrors_and_a_quarter_wave_plate_makes_circles() -> None:
    assert retarder(22.5, 180) @ [1, 0, 0] == pytest.approx([0, 1, 0], abs=1e-12)
    assert abs((retarder(45, 90) @ [1, 0, 0])[2]) == pytest.approx(1)
