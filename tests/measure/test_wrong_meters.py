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


@pytest.mark.parametrize("name", ["range switching, 0.15 dB", "range switching, 0.3 dB"])
def test_another_range_is_named_or_not_included(name: str) -> None:
    outcome = tried(name, SEEDS)
    assert (outcome.named + outcome.lacking, outcome.false) == (len(SEEDS), [])


@pytest.mark.parametrize("name", [name for name in PLANTS if name.startswith("steps")])
def test_monitors_with_coarse_steps_are_not_saturated(name: str) -> None:
    assert tried(name, SEEDS).false == []
