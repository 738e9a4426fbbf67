"""Sensitivity from counts whose power is not exact, and a floor only where one is."""

from collections.abc import Sequence

import numpy as np
import pytest

from lightrig.harness.measure.bit_errors import curves
from lightrig.harness.measure.bit_errors.curves import Curve, fit
from lightrig.harness.measure.bit_errors.light import Arrival
from lightrig.harness.measure.gates import Counted
from lightrig.harness.statistics.sensitivity import Sensitivity
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ErrorCount

TRUE = Sensitivity(1e-12, -9.0, -9.0, -9.0, 0.1, None, 9, 0.95, 1.0)


def swept(
    random: np.random.Generator,
    powers: Sequence[float],
    *,
    noise_db: float = 0.0,
    floor: float = 0.0,
    bits: int = 10**10,
) -> list[tuple[Arrival, Counted]]:
    points = []
    for dbm in powers:
        ratio = TRUE.ratio_at(dbm) + floor
        errors = int(random.poisson(ratio * bits))
        count = ErrorCount(Span(0, 0), Span(9, 9), bits, errors, sync_lost=False, clock_lost=False)
        told = dbm + noise_db * random.normal()
        points.append(
            (Arrival(told, noise_db, told + 0.78, "voa.1"), Counted("b", count, 0, 0.95, 1e-12))
        )
    return points


POWERS = np.arange(-13.0, -9.4, 0.5).tolist()


@pytest.mark.long
def test_the_interval_holds_the_truth_though_the_power_is_noisy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a million errors a point, noise of the power is all that is left beside its scale."""
    monkeypatch.setattr(curves, "POWER_SCALE_DB", 0.0)
    random = np.random.default_rng(4)
    fitted = [fit(swept(random, POWERS, noise_db=0.01), [2.4e-4], 0.95) for _ in range(16)]
    true = -9.0 + 10 * np.log10(3.4921 / 7.0345)  # where Q is that of 2.4e-4
    held = [one.lower <= true <= one.upper for each in fitted for one in each.found]
    assert len(held) == 16
    assert sum(held) >= 13  # 15 are expected
    assert np.median([one.misfit for each in fitted for one in each.found]) > 0.05


def test_exact_powers_give_narrower_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "POWER_SCALE_DB", 0.0)
    random = np.random.default_rng(4)
    (noisy,) = fit(swept(random, POWERS, noise_db=0.02), [1e-12], 0.95).found
    (exact,) = fit(swept(random, POWERS), [1e-12], 0.95).found
    assert noisy.upper - noisy.lower > 3 * (exact.upper - exact.lower)
    assert exact.lower <= -9.0 <= exact.upper


def test_a_floor_is_found_where_there_is_one_and_nowhere_else() -> None:
    random = np.random.default_rng(5)
    powers = np.arange(-13.0, -7.9, 0.5).tolist()
    (without,) = fit(swept(random, powers), [1e-8], 0.95).found
    assert without.floor is None
    (floored,) = fit(swept(random, powers, floor=1e-7, bits=10**10), [1e-5], 0.95).found
    assert floored.floor == pytest.approx(1e-7, rel=0.1)


def test_too_few_errors_bound_nothing_and_say_why() -> None:
    curve = fit(swept(np.random.default_rng(6), [-8.0, -7.5, -7.0]), [1e-12], 0.95)
    assert curve.found == ()
    assert curve.reasons == (
        "no sensitivity at 1e-12: errors at 0 powers, 3 needed: count longer or attenuate more",
    )


def test_without_points_there_are_no_rows() -> None:
    assert list(Curve((), (), ()).rows("ber.1", 0)) == []


def test_the_scale_of_the_power_is_in_every_sensitivity() -> None:
    (found,) = fit(swept(np.random.default_rng(4), POWERS), [1e-12], 0.95).found
    assert found.upper - found.lower > 2 * 1.96 * curves.POWER_SCALE_DB
