"""Bit errors over nights: a ceiling, and never more than ten times what was usual."""

from pathlib import Path

import numpy as np
import pytest

from lightrig.harness.statistics.bit_errors import error_ratio
from lightrig.harness.statistics.drift import DriftVerdict, judge_drift
from lightrig.testbeds.baselines import baselines_path, load_baselines

HOME = Path(__file__).parents[2] / "testbeds"
BITS = 3 * 10**12
GATES = 6


def night(errors: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds of a night's gates."""
    ratio = error_ratio(errors, BITS)
    return np.full(GATES, ratio.lower), np.full(GATES, ratio.upper)


def judged(before: int, tonight: int, nights: int = 10) -> DriftVerdict:
    rule = load_baselines(baselines_path(HOME / "infinitehbd.yaml")).rule_for("bit_error_ratio")
    assert rule is not None
    return judge_drift([night(before)] * nights, night(tonight), rule)


def test_nights_without_errors_are_alike() -> None:
    assert judged(0, 0).outcome == "unchanged"


def test_ten_times_the_usual_is_a_broken_guard_long_before_the_ceiling() -> None:
    found = judged(300, 30_000)
    assert found.outcome == "guard broken"
    assert "more than 10 times" in found.reason
    assert 30_000 / BITS <= 1.0e-8


def test_a_few_errors_after_none_break_it_too() -> None:
    assert judged(0, 200).outcome == "guard broken"


def test_no_more_than_chance_allows_breaks_nothing() -> None:
    assert judged(0, 1).outcome != "guard broken"
    assert judged(300, 340).outcome != "guard broken"


@pytest.mark.parametrize("nights", [0, 10])
def test_the_ceiling_holds_even_on_the_first_night(nights: int) -> None:
    found = judged(60_000, 60_000, nights)
    assert found.outcome == "guard broken"
    assert "1e-08" in found.reason or "1e-8" in found.reason
