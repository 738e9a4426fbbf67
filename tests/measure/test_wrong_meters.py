"""Meters that are wrong are named, or inside the intervals: part of the campaign `meters`."""

import pytest

from tests.campaigns.meters import PLANTS, tried

NAMED = [
    "all meters +0.3 dB",
    "40 % of the meters +0.3 dB",
    "0.3 dB that comes and goes",
    "two egress monitors swapped",
    "two ingress monitors swapped",
    "connectors that improve, 0.4 dB",
]
COVERED = ["ideal", "all meters +0.1 dB", "connectors that improve, 0.1 dB"]
SEEDS = range(1, 3)


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_meter_is_named_by_no_false_cause(name: str) -> None:
    outcome = tried(name, SEEDS)
    assert (outcome.named, outcome.false) == (len(SEEDS), [])


@pytest.mark.parametrize("name", COVERED)
def test_intervals_hold_the_truths_where_nothing_is_named(name: str) -> None:
    outcome = tried(name, SEEDS)
    assert (outcome.named, outcome.false) == (0, [])
    assert outcome.n == 64 * len(SEEDS)
    assert outcome.missed <= 0.1 * outcome.n


@pytest.mark.parametrize(
    ("name", "seed"), [("0.3 dB that comes and goes", 16), ("two ingress monitors swapped", 18)]
)
def test_what_is_left_of_a_wrong_meter_is_no_other_fault(name: str, seed: int) -> None:
    """Five settings that are left show no drift; a monitor that shows more has no dirt behind."""
    assert tried(name, range(seed, seed + 1)).false == []


def test_monitors_that_wander_while_all_is_measured_are_in_the_budget() -> None:
    """A wander of 1 s, as long as the measurement, is in no more than half of the makings."""
    outcome = tried("noise that wanders, 0.1 dB in 1 s", range(2, 4))
    assert (outcome.n, outcome.false) == (128, [])
    assert outcome.missed <= 0.06 * outcome.n


@pytest.mark.parametrize("name", ["range switching, 0.15 dB", "range switching, 0.3 dB"])
def test_another_range_is_named_or_not_included(name: str) -> None:
    outcome = tried(name, SEEDS)
    assert (outcome.named + outcome.lacking, outcome.false) == (len(SEEDS), [])


@pytest.mark.parametrize("name", [name for name in PLANTS if name.startswith("steps")])
def test_monitors_with_coarse_steps_are_not_saturated(name: str) -> None:
    assert tried(name, SEEDS).false == []
